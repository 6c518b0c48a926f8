"""Seconds by a whole number of tokens or rows, from a table of all of them."""

from __future__ import annotations

from collections.abc import Sequence


class Curve:
    """The seconds of 0, 1, 2... of something.

    Beyond the table it goes on along a straight line, through its last point and the one halfway to it.
    """

    __slots__ = ("_seconds", "_slope", "last")

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = list(seconds)
        self.last = len(self._seconds) - 1  # the greatest number in the table
        middle = self.last // 2
        rise = self._seconds[self.last] - self._seconds[middle]
        self._slope = max(rise, 0.0) / (self.last - middle) if self.last > middle else 0.0

    def __reduce__(self) -> tuple[object, ...]:
        return Curve, (self._seconds,)

    def at(self, count: int) -> float:
        if count <= self.last:
            return self._seconds[count]
        return self._seconds[self.last] + self._slope * (count - self.last)
