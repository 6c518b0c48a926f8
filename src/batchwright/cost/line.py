"""Seconds that grow along pieces of straight lines."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from batchwright.errors import CostError


@dataclass(frozen=True)
class Line:
    """Seconds at some knots, linear between them and beyond the last one.

    Raises CostError unless there are two knots at least, in order, whose seconds never fall.
    """

    knots: tuple[float, ...]
    seconds: tuple[float, ...]
    slopes: tuple[float, ...] = field(init=False, repr=False, compare=False)  # of each piece

    def __post_init__(self) -> None:
        if len(self.knots) != len(self.seconds) or len(self.knots) < 2:
            raise CostError(
                f"a line has {len(self.knots)} knots and {len(self.seconds)} seconds; give two each"
            )
        for values, least in ((self.knots, 1e-9), (self.seconds, 0.0)):
            if not all(values[i + 1] - values[i] >= least for i in range(len(values) - 1)):
                raise CostError(
                    f"knots {self.knots} or seconds {self.seconds} of a line fall; put them in order"
                )
        object.__setattr__(self, "slopes", tuple(self._slope(i) for i in range(len(self.knots) - 1)))

    def _slope(self, i: int) -> float:
        return (self.seconds[i + 1] - self.seconds[i]) / (self.knots[i + 1] - self.knots[i])

    def __reduce__(self) -> tuple[object, ...]:
        return Line, (self.knots, self.seconds)

    def at(self, x: float) -> float:
        """Seconds at `x`, which may lie outside the knots."""
        i = min(max(bisect_right(self.knots, x) - 1, 0), len(self.slopes) - 1)
        return self.seconds[i] + self.slopes[i] * (x - self.knots[i])
