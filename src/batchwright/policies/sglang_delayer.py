"""SGLang's prefill delayer: hold those that wait back until a prefill step is worth its interruption.

With R running, W waiting, and at most `largest` requests in any prefill step so far, they wait on while

    seats - R < largest                     as many as that could not join
    W < min(int(ratio * R), largest)        too few wait; at most `longest` seconds

Source: SGLang 0.5, `managers/prefill_delayer.py`, where all ranks have prompts to compute.
"""

from __future__ import annotations

from batchwright.batch import Batch
from batchwright.request import NEVER


class Delayer:
    """`ratio`: of the running, 0: few may wait; `longest`: seconds."""

    def __init__(self, ratio: float, longest: float) -> None:
        self.ratio = ratio
        self.longest = longest
        self.largest = 0  # requests of one prefill step
        self.deadline = NEVER  # seconds, while they are held back

    def saw(self, requests: int) -> None:
        """A prefill step has so many requests."""
        self.largest = max(self.largest, requests)

    def holds(self, b: Batch, running: int, seats: int) -> bool:
        """Shall those that wait wait on?"""
        is_few = b.num_waiting < min(int(self.ratio * running), self.largest)
        if seats - running >= self.largest and (not is_few or b.now >= self.deadline):
            self.deadline = NEVER
            return False
        if self.deadline == NEVER:
            self.deadline = b.now + self.longest
            if self.deadline == b.now:
                b.wake_after(1)
        if self.deadline > b.now:
            b.wake_at(self.deadline)
        return True
