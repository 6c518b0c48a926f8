"""A machine that computes prompts, whose requests then decode elsewhere: DistServe's prefill instance.

order fcfs · gate none · KV the prompt; those that are computed and have not left count, too · composition
whole prompts, up to `max_batch_size` requests and `max_tokens_per_batch` tokens · victim nobody · leave
when the KV has gone

A prompt longer than `max_tokens_per_batch` is computed alone.
Source: Zhong et al., DistServe, OSDI 2024; its code, `context_stage_scheduler.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy


@ordinary
@dataclass(frozen=True, kw_only=True)
class Prompts:
    """`max_batch_size`: requests of one step; `max_tokens_per_batch`: prompt tokens."""

    max_batch_size: int
    max_tokens_per_batch: int

    def begin(self, batch: Batch) -> Policy:
        return PromptsRun(min(self.max_batch_size, batch.max_running), self.max_tokens_per_batch)


class PromptsRun:
    """`Prompts` on one batch."""

    def __init__(self, most: int, tokens: int) -> None:
        self.most = most
        self.tokens = tokens

    def __call__(self, b: Batch) -> None:
        if b.edits == 0:
            admit_prompts(b, self.most, self.tokens)


def admit_prompts(b: Batch, most: int, tokens: int) -> None:
    """Admit whole prompts from the head of the queue: at most `most`, and `tokens` tokens or one prompt."""
    left = tokens
    while b.num_waiting > 0 and len(b.chunks) < most and b.num_running + b.num_coming < b.max_running:
        r = b.waiting.first()
        if r in b.movers.elsewhere or (r.unfilled > left and b.chunks):
            return
        if b.blocks.count(r.unfilled) > b.blocks.free:
            return
        left -= r.unfilled
        b.admit(r, r.unfilled)
