"""Chunked prefill that keeps every step, and so every gap between tokens, under a target.

    batchwright compare chat --policies vllm --policy-file examples/custom_policy.py
"""

from batchwright import Batch

TARGET = 0.020  # seconds


def policy(b: Batch) -> None:
    if b.edits > 0:  # asked again before the step has run
        return
    while b.decode_blocks() > b.blocks.free:
        b.preempt(b.newest())
    left = budget(b)
    for r in [*b.prefilling, *b.waiting.head(left)]:
        tokens = min(r.unfilled, left, b.room(r))
        if tokens < 1 or (r not in b.running and b.num_running == b.limits.max_num_seqs):
            break
        b.chunk(r, tokens) if r in b.running else b.admit(r, tokens)
        left -= tokens
    if b.num_decoding == 0 and not b.chunks and b.num_running > 1:  # half prompts hold all blocks
        b.preempt(b.newest())


def budget(b: Batch) -> int:
    """The most prompt tokens, in powers of two, with which the coming step meets the target."""
    sizes = [2**i for i in range(4, 14) if b.predict(2**i) <= TARGET]
    return max(sizes, default=16 if b.num_decoding == 0 else 0)
