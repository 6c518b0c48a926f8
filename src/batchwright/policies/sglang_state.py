"""What SGLang's scheduler remembers between steps, and what it has left within one.

    Ratio   `new_token_ratio`
    Full    `batch_is_full`
    Left    the budgets of a prefill step

Source: SGLang 0.5, `scheduler_components/new_token_ratio_tracker.py`, `scheduler.py`, `schedule_policy.py`.
"""

from __future__ import annotations

from typing import Final

from batchwright.batch import Batch
from batchwright.request import Block

START_RATIO: Final = 0.7
LEAST_RATIO: Final = 0.14  # of the one at the start
DECAY_STEPS: Final = 600


class Full:
    """Has somebody found no room, and has nobody been taken out since?

    The engine looks for prompts first, and takes out who has left when a decode step begins, so this
    makes room one step later.  Who leaves with a prefill step is taken out at once.
    """

    def __init__(self) -> None:
        self.is_full = False
        self._has_gone = False  # has somebody left who has not been taken out?
        self._empties = -1  # the step before which somebody was taken out; -1: nobody was
        self._asked = -1  # the last step that was planned,
        self._before = 0  # requests that had a seat when the one before it was planned,
        self._seated = 0  # and when it was itself
        self._prefilled = -2  # the last prefill step

    def look(self, b: Batch) -> None:
        """A step is about to be planned: who has left since the last one?"""
        if b.tick_count != self._asked:
            self._asked = b.tick_count
            self._before = self._seated
        if not b.running:
            self._has_gone = False
        elif len(b.running) < self._before and self._prefilled == b.tick_count - 1:
            self.is_full = False
        elif len(b.running) < self._before:
            self._has_gone = True
        if not b.running or 0 <= self._empties <= b.tick_count:
            self.is_full = False
            self._empties = -1

    def planned(self, b: Batch) -> None:
        """A step is planned."""
        self._seated = len(b.running)
        if b.chunks:
            self._prefilled = b.tick_count
        elif self._has_gone:
            self._has_gone = False
            self._empties = b.tick_count + 1
            if self.is_full and b.num_waiting > 0:
                b.wake_after(1)


class Left:
    """What is left to one prefill step."""

    def __init__(self, input: int, chunk: int) -> None:
        self.input = input  # tokens of max_prefill_tokens
        self.chunk = chunk  # tokens of chunked_prefill_size
        self.granted = 0  # tokens that those who join may sample
        self.promised = -1.0  # tokens kept for those who decode; below 0: not yet summed
        self.fresh: set[Block] = set()  # shared blocks that it computes


class Ratio:
    """`new_token_ratio`: for which share of the tokens to come room is kept; it falls as decodes run."""

    def __init__(self, conservativeness: float) -> None:
        self.start = min(START_RATIO * conservativeness, 1.0)
        self.least = self.start * LEAST_RATIO
        self.decay = (self.start - self.least) / DECAY_STEPS
        self.value = self.start
        self.since = 0  # on the decode clock

    def at(self, clock: int) -> float:
        steps = clock - self.since
        return self.value if steps <= 0 else max(self.value - steps * self.decay, self.least)

    def reset(self, clock: int) -> None:
        """Nobody runs."""
        self.value = self.start
        self.since = clock

    def jump(self, value: float, clock: int) -> None:
        """The coming step has retracted somebody: it does not count."""
        self.value = value
        self.since = clock + 1

    def skip(self) -> None:
        """The coming step does not count: its decodes, if there are any, run beside prompts."""
        self.since += 1
