"""A machine that decodes what others have prefilled: DistServe's decoding instance.

order fcfs · gate those that come hold less than `waiting_block_prop_threshold` of the blocks · KV what a
request has now, nothing for its output · composition decodes · victim the newest; swapped out, or
recomputes here · leave at once

Requests are pulled: the machine takes blocks, then their KV comes.  Until it is there the blocks count as
waiting, which bounds what comes at once, and leaves the rest with the machine that computed it
(back-pressure).
Nobody is pulled while somebody is in host memory, who comes back first.

Source: Zhong et al., DistServe, OSDI 2024; its code, `decoding_stage_scheduler.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.handover import pull
from batchwright.policies.preemption import Preemption, preemption
from batchwright.policies.prompts import admit_prompts
from batchwright.request import Request


@ordinary
@dataclass(frozen=True, kw_only=True)
class Pulls:
    """`max_batch_size`: requests that decode at once.  The last four are those of `preemption.SwapFlags`."""

    max_batch_size: int
    waiting_block_prop_threshold: float
    preemption_mode: str
    swap_space: float
    swap_bandwidth: float | None
    kv_bytes_per_token: float | None

    def begin(self, batch: Batch) -> Policy:
        batch.max_running = min(self.max_batch_size, batch.max_running)
        threshold = self.waiting_block_prop_threshold * batch.blocks.size
        return PullsRun(preemption("distserve", self, batch), threshold)


class PullsRun:
    """`Pulls` on one batch.  `threshold`: blocks."""

    def __init__(self, taking_back: Preemption, threshold: float) -> None:
        self.preemption = taking_back
        self.threshold = threshold

    def __call__(self, b: Batch) -> None:
        if b.edits > 0 or self.preemption.waits(b):
            return
        self.preemption.make_room(b)
        if b.edits > 0:
            return
        self.preemption.resume(b)
        if not self.preemption.holds_prompts(b):
            self.admit(b)

    def admit(self, b: Batch) -> None:
        """Pull from the head of the queue; who was preempted here is computed again."""
        while b.num_waiting > 0 and b.num_running + b.num_coming < b.max_running:
            r = b.waiting.first()
            if r not in b.movers.elsewhere:
                admit_prompts(b, 1, r.unfilled)
                return
            if b.movers.coming_blocks >= self.threshold or not fits(b, r):
                return
            pull(b, r)


def fits(b: Batch, r: Request) -> bool:
    """Are the blocks of the KV of `r` and its next token free, beside what all others take next?"""
    return b.blocks.count(b.movers.elsewhere[r] + 1) + b.num_coming <= b.spare_blocks
