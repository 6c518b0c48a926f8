"""What a cost model is: a function of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from batchwright.step import Step

Stretch = Callable[[Step, int], float]  # seconds of so many quiet steps


class Cost(Protocol):
    """A cost model.  Its time is finite and greater than 0, and a function of the step alone.

    It may also offer `stretch(step, steps)`, the seconds of that many quiet steps, if a step
    never gets cheaper as its context grows.  One that reads `least_context` and `greatest_context`
    of a step says so with `reads_extremes = True`: nobody else pays for them.
    """

    def seconds(self, step: Step) -> float: ...


CostModel = Cost | Callable[[Step], float]
