"""The stretches of a cost without closed form: its single steps, added up."""

from __future__ import annotations

from collections.abc import Callable

from batchwright.cost.checks import checked
from batchwright.step import Step


class RunningSum:
    """The stretches of a cost without closed form, by adding up its single steps.

    The sums of the stretch at hand are kept, so that asking again for more or fewer steps of it
    prices only new ones.  Raises CostError on a time that no step can take.
    """

    def __init__(self, seconds: Callable[[Step], object]) -> None:
        self._seconds = seconds
        self._first = Step()
        self._next = Step()  # the first that has no sum yet
        self._sums = [0.0]  # of the first 0, 1, 2... steps

    def stretch(self, step: Step, steps: int) -> float:
        if not step.same(self._first):
            self._first = step.later(0)
            self._next = step.later(0)
            self._sums = [0.0]
        sums = self._sums
        while len(sums) <= steps:
            now = self._next
            sums.append(sums[-1] + checked(self._seconds(now), now))
            self._next = now.later(1)
        return sums[steps]
