"""A function between the points of a grid: linear along every axis, exact on the points.

Below the first point of an axis it is that of the first point.  Beyond the last it goes on along the
straight line through the last two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


class Axis:
    """The points of a grid along one axis, increasing."""

    __slots__ = ("points",)

    def __init__(self, points: Sequence[int]) -> None:
        self.points = [float(point) for point in points]

    def below(self, x: float) -> int:
        """The point from which the line that holds `x` begins; of the last line, beyond the grid."""
        found = bisect_right(self.points, x) - 1
        last = len(self.points) - 2
        return max(min(found, last), 0)

    def share(self, x: float, at: int) -> float:
        """How far `x` is from the point `at` to the next, as a share; 0 if there is no next."""
        points = self.points
        if len(points) == 1 or x <= points[0]:
            return 0.0
        return (x - points[at]) / (points[at + 1] - points[at])


def along(axis: Axis, values: list[float], x: float) -> float:
    """The value at `x` of a line of the grid."""
    at = axis.below(x)
    share = axis.share(x, at)
    return values[at] if share == 0.0 else values[at] + share * (values[at + 1] - values[at])


def sum_along(axis: Axis, values: list[float], x: float, steps: int) -> float:
    """Sum over j < steps of the value at x + j: straight from point to point."""
    points, last = axis.points, len(axis.points) - 2
    total, done = 0.0, 0
    while done < steps:
        now = x + done
        at = axis.below(now)
        count = steps - done
        if at < last or now < points[0]:
            edge = points[0] if now < points[0] else points[at + 1]
            count = min(count, max(int(edge - now), 0) + 1)
        first, final = along(axis, values, now), along(axis, values, now + (count - 1))
        total += 0.5 * count * (first + final)
        done += count
    return total


class Grid:
    """Values on a grid of four axes; the last one varies fastest."""

    __slots__ = ("_values", "axes")

    def __init__(self, axes: Sequence[Sequence[int]], values: Sequence[float]) -> None:
        self.axes = [Axis(points) for points in axes]
        self._values = list(values)

    def __reduce__(self) -> tuple[object, ...]:
        return Grid, ([[int(point) for point in axis.points] for axis in self.axes], self._values)

    def at(self, a: float, b: float, c: float, d: float) -> float:
        """The value at one place."""
        return self.on(self.edges(a, b, c), d)

    def edges(self, a: float, b: float, c: float) -> list[tuple[int, float]]:
        """The lines along the last axis around a place: where each begins, and its weight."""
        found = [(0, 1.0)]
        for which, x in enumerate((a, b, c)):
            axis = self.axes[which]
            size, at = len(axis.points), axis.below(x)
            share = axis.share(x, at)
            if share == 0.0:
                found = [(start * size + at, weight) for start, weight in found]
            else:
                found = [(start * size + at, weight * (1.0 - share)) for start, weight in found] + [
                    (start * size + at + 1, weight * share) for start, weight in found
                ]
        width = len(self.axes[3].points)
        return [(start * width, weight) for start, weight in found]

    def on(self, edges: list[tuple[int, float]], d: float) -> float:
        """The value at `d` of the last axis, between these lines."""
        axis, values = self.axes[3], self._values
        at = axis.below(d)
        share, total = axis.share(d, at), 0.0
        for start, weight in edges:
            value = values[start + at]
            if share != 0.0:
                value += share * (values[start + at + 1] - value)
            total += weight * value
        return total

    def line(self, c: float) -> list[float]:
        """The values along the last axis, at the first points of the first two and at `c` of the third."""
        edges = self.edges(self.axes[0].points[0], self.axes[1].points[0], c)
        return [self.on(edges, point) for point in self.axes[3].points]
