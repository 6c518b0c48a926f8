"""KV admission that several policies share: how many blocks a request must find free."""

from __future__ import annotations

from typing import Final

from batchwright.batch import Batch
from batchwright.request import DECODING, Block, Request

WATERMARK: Final = 0.01  # of all blocks


def whole_length(r: Request) -> int:
    """Tokens of `r` in the worst case: its prompt and all that its client allows."""
    return r.prompt + r.max_tokens


def can_reserve(b: Batch, tokens: int) -> bool:
    """Are the blocks of `tokens` tokens free, beside what the decodes of the coming step take?"""
    return b.blocks.count(tokens) <= b.spare_blocks


def admit_whole(b: Batch, r: Request, tokens: int) -> None:
    """Admit `r` with its whole prompt as one chunk, and set aside the blocks of `tokens` tokens.

    Prompts are computed in full: these engines have no prefix cache.  They preempt nobody, but an order
    around them may: then the tokens that `r` has are computed again, too.
    """
    b.admit(r, r.unfilled, reserve=tokens)


def blocks_to_take(b: Batch, tokens: int, hit: list[Block]) -> int:
    """Free blocks that a request of `tokens` tokens takes when it starts on the cached blocks `hit`.

    Those of `hit` that nobody else holds are free until then, too.
    """
    need = b.blocks.count(tokens) - len(hit)
    for block in hit:
        if block.users == 0:
            need += 1
    return need


def watermark(b: Batch) -> int:
    """Blocks that an admission must leave free, so that those who run can go on: 1 %; none if nobody runs.

    Source: the block managers of vLLM V0 and Sarathi-Serve.
    """
    return int(WATERMARK * b.limits.blocks) if b.running else 0


def sampled(b: Batch, r: Request) -> int:
    """Tokens that `r` has sampled so far, also while it decodes."""
    return b.clock + r.shift - r.prompt + 1 if r.state == DECODING else r.generated
