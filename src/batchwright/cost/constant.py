"""Every step takes the same time."""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.cost.checks import check_floor, check_not_negative
from batchwright.step import Step


@dataclass(frozen=True, init=False, repr=False)
class Constant:
    """Every step takes the same seconds, but for one that computes nothing, which takes `empty`.

    Raises CostError unless the seconds are finite and greater than 0, and `empty` is not negative.
    """

    each: float
    empty: float

    def __init__(self, seconds: float, empty: float = 0.0) -> None:
        check_floor("constant", "seconds", seconds)
        check_not_negative("constant", "empty", empty)
        object.__setattr__(self, "each", float(seconds))
        object.__setattr__(self, "empty", float(empty))

    def __repr__(self) -> str:
        empty = f", empty={self.empty!r}" if self.empty else ""
        return f"Constant(seconds={self.each!r}{empty})"

    def __reduce__(self) -> tuple[object, ...]:
        return Constant, (self.each, self.empty)

    def seconds(self, step: Step) -> float:
        return self.each

    def stretch(self, step: Step, steps: int) -> float:
        return steps * self.each
