"""vLLM's first scheduler (V0): prompts alone whenever one can be admitted, else decodes.

order fcfs · gate a seat is free · KV the blocks of the prompt and 1 % of all · composition
whole prompts alone, else decodes · victim the newest; recompute or swap · leave at once

    prefill step   from the head of the queue, while a seat is free, the prompts fit the token
                   budget, and free blocks - blocks of the prompt >= 1 % of all blocks
    decode step    if nobody could be admitted: everybody gains a token; the newest is
                   preempted while a block is missing, and waits in front; or it is swapped out, and
                   no prompt is admitted before it is back (`preemption`)

So a stream of prompts stalls all decodes, and no prompt is ever cut.  A prefix found in the cache
costs no tokens of the budget, but counts in the block test.

Source: vLLM 0.6.6, `core/scheduler.py` (`_schedule_default`, `_schedule_swapped`) and
`core/block_manager.py`; the same rules, without swaps, in sarathi-serve's `vllm_scheduler.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import LimitError
from batchwright.policies.about import About
from batchwright.policies.check import check_count
from batchwright.policies.kv import watermark
from batchwright.policies.preemption import RECOMPUTE, Preemption, check_swap, preemption
from batchwright.request import Request


@ordinary
@dataclass(frozen=True, kw_only=True)
class VllmV0:
    """vLLM's V0 scheduler under its own flags.

    `max_num_seqs`: seats; None: those of the server's limits.

    `max_num_batched_tokens`: prompt tokens of one step; None: those of the server's limits, or
    `max_model_len` if that is more, which is V0's own default where the limits say 2048.

    `preemption_mode`: recompute, V0's choice for one sequence a request, or swap; the other flags
    are those of `preemption.SwapFlags`.

    Raises InputError on a value that cannot be.
    """

    about = About(
        engine="vLLM V0, as of 0.6",
        order="first come",
        first="whole prompts alone, as soon as one can be admitted; else decodes",
        chunking="none",
        kv="the prompt, and 1% of all blocks beside it",
        victim="the newest; recomputes, or is swapped out",
        leave="at once",
        source="vLLM 0.6.6, core/scheduler.py, _schedule_default",
        left_out="chunked prefill, priorities, multi-step scheduling, the delay factor, several "
        "sequences a request; V0 drops a prompt that leaves less than 1% of the blocks free even in an empty "
        "server, or is over max_num_batched_tokens: here it runs, alone in its step",
    )
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    preemption_mode: str = RECOMPUTE
    swap_space: float = 4.0
    swap_bandwidth: float | None = None
    kv_bytes_per_token: float | None = None

    def __post_init__(self) -> None:
        check_count("vllm_v0", self, "max_num_seqs", optional=True)
        check_count("vllm_v0", self, "max_num_batched_tokens", optional=True)
        check_swap("vllm_v0", self)

    def begin(self, batch: Batch) -> Policy:
        limits = batch.limits
        longest = limits.max_model_len or 0
        seats = self.max_num_seqs or limits.max_num_seqs
        tokens = self.max_num_batched_tokens or max(limits.max_num_batched_tokens, longest)
        _check_limits(seats, tokens, longest)
        batch.max_running = seats
        return VllmV0Run(seats, tokens, preemption("vllm_v0", self, batch))


class VllmV0Run:
    """vLLM's V0 scheduler on one batch."""

    def __init__(self, seats: int, budget: int, taking_back: Preemption) -> None:
        self.seats = seats
        self.budget = budget
        self.preemption = taking_back

    def __call__(self, b: Batch) -> None:
        if b.edits > 0 or self.preemption.waits(b):
            return
        if not self.preemption.holds_prompts(b):
            self.admit_prompts(b)
        if b.edits > 0:
            b.decodes_run = False
            return
        self.preemption.make_room(b)
        if b.edits == 0:
            self.preemption.resume(b, watermark(b))

    def admit_prompts(self, b: Batch) -> None:
        """Admit whole prompts from the head of the queue, until one does not fit."""
        left = self.budget
        while b.num_waiting > 0 and b.num_running < self.seats:
            r = b.waiting.first()
            hit = b.blocks.lookup(r)
            tokens = r.unfilled - len(hit) * b.blocks.block_size
            if (tokens > left and left < self.budget) or not fits(b, r):
                return
            b.admit(r, tokens, hit)
            left -= tokens


def fits(b: Batch, r: Request) -> bool:
    """Are the blocks of the prompt of `r` free, its cached prefix counted, and 1 % of all beside them?"""
    return b.blocks.count(r.tokens) + watermark(b) <= b.blocks.free


def _check_limits(seats: int, tokens: int, longest: int) -> None:
    """What V0 refuses to start with."""
    if tokens < longest:
        raise LimitError(
            f"vllm_v0: max_num_batched_tokens {tokens} is below max_model_len {longest}, and prompts run "
            "whole; raise it or lower max_model_len"
        )
    if seats > tokens:
        raise LimitError(
            f"vllm_v0: max_num_seqs {seats} is over max_num_batched_tokens {tokens}; "
            "lower max_num_seqs or raise max_num_batched_tokens"
        )
