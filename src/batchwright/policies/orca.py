"""Orca: iteration-level scheduling with whole prompts.

order fcfs · gate a free slot · KV every slot reserves the longest request · composition
decodes and whole prompts in one step · victim none · leave at once

Source: Yu et al., "Orca", OSDI 2022, algorithm 1; the reservation as in Sarathi-Serve's
`orca` scheduler: ceil(max_model_len / block_size) blocks a slot.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.policies.about import About
from batchwright.policies.check import batch_size, check_count
from batchwright.policies.kv import admit_whole, can_reserve


@ordinary
@dataclass(frozen=True)
class Orca:
    """`max_batch_size`: slots; None: `max_num_seqs`.  Raises InputError on a value that cannot be."""

    about = About(
        engine="Orca",
        order="first come",
        first="decodes and whole prompts in one step",
        chunking="none",
        kv="max_model_len, in every slot",
        victim="nobody",
        leave="at once",
        source="Yu et al., OSDI 2022, algorithm 1; the reservation as in sarathi-serve's orca",
        left_out="pipelining over several workers",
    )
    max_batch_size: int | None = None

    def __post_init__(self) -> None:
        check_count("orca", self, "max_batch_size", optional=True)

    def begin(self, batch: Batch) -> Policy:
        slots = batch.limits.max_num_seqs
        if self.max_batch_size is not None:
            slots = batch_size("orca", "max_batch_size", self.max_batch_size, batch.limits.max_num_seqs)
        batch.max_running = slots
        return OrcaRun(slots, batch.limits.longest)


class OrcaRun:
    """Orca on one batch."""

    def __init__(self, slots: int, longest: int) -> None:
        self.slots = slots
        self.longest = longest

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        while b.num_waiting > 0 and b.num_running < self.slots and can_reserve(b, self.longest):
            admit_whole(b, b.waiting.first(), self.longest)
