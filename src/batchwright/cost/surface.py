"""Piecewise linear functions on grids of one, two and three dimensions.

Between grid points a function is linear in each dimension.  Below the first point of a dimension it
keeps that point's value; beyond the last it grows in proportion to the number itself, so it stays
positive and never falls:

    f(x) = f(last) * x / last          x > last
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from batchwright.errors import CostError


def check_points(name: str, points: list[float]) -> None:
    """Raises CostError unless there are two grid points or more, none negative, each above the one before."""
    if len(points) < 2 or points[0] < 0 or any(a >= b for a, b in pairwise(points)):
        raise CostError(
            f"{name} of a table must be two rising numbers or more, none negative, not {_short(points)}"
        )


def check_values(name: str, values: list[float], count: int) -> None:
    """Raises CostError unless there are `count` finite values, none of them negative."""
    if len(values) != count:
        raise CostError(f"{name} of a table has {len(values)} values for {count} grid points")
    for value in values:
        if not 0.0 <= value < float("inf"):
            raise CostError(f"{name} of a table has the value {value}, but must be finite and not negative")


def cell(points: list[float], at: float) -> int:
    """Index of the grid point at or before `at`; the first or the last but one where it lies outside."""
    found = bisect_right(points, at) - 1
    last = len(points) - 2
    return 0 if found < 0 else last if found > last else found


def share(points: list[float], at: float, index: int) -> float:
    """How far `at` is from grid point `index` to the next: 0 up to the one, 1 from the other on."""
    low, high = points[index], points[index + 1]
    return 0.0 if at <= low else 1.0 if at >= high else (at - low) / (high - low)


def over(points: list[float], at: float) -> float:
    """How many times the last grid point `at` is; 1 where it is not beyond it."""
    last = points[len(points) - 1]
    return at / last if at > last else 1.0


class Polyline:
    """A function of one number, from its grid points and its value at each."""

    __slots__ = ("name", "points", "values")

    def __init__(self, name: str, points: list[float], values: list[float]) -> None:
        check_points(name, points)
        check_values(name, values, len(points))
        self.name = name
        self.points = points
        self.values = values

    def __reduce__(self) -> tuple[object, ...]:
        return Polyline, (self.name, self.points, self.values)

    def at(self, number: float) -> float:
        index = cell(self.points, number)
        low = self.values[index]
        value = low + share(self.points, number, index) * (self.values[index + 1] - low)
        return value * over(self.points, number)


class Plane:
    """A function of two numbers, from the grid points of both and, for each of the first, a row of values."""

    __slots__ = ("columns", "name", "rows", "values")

    def __init__(
        self, name: str, rows: list[float], columns: list[float], values: list[list[float]]
    ) -> None:
        check_points(f"rows of {name}", rows)
        check_points(f"columns of {name}", columns)
        if len(values) != len(rows):
            raise CostError(f"{name} of a table has {len(values)} rows for {len(rows)} grid points")
        for row in values:
            check_values(name, row, len(columns))
        self.name = name
        self.rows = rows
        self.columns = columns
        self.values = values

    def __reduce__(self) -> tuple[object, ...]:
        return Plane, (self.name, self.rows, self.columns, self.values)

    def at(self, row: float, column: float) -> float:
        return self.sum(row, column, 1)

    def sum(self, row: float, column: float, steps: int) -> float:
        """Sum over j < steps of the function at (row, column + j): a straight line within each cell."""
        index = cell(self.rows, row)
        upper = share(self.rows, row, index)
        total = 0.0 if upper >= 1.0 else (1.0 - upper) * self._sum(index, column, steps)
        if upper > 0.0:
            total += upper * self._sum(index + 1, column, steps)
        return total * over(self.rows, row)

    def _sum(self, index: int, column: float, steps: int) -> float:
        """The same of one row of values."""
        values, columns = self.values[index], self.columns
        last = len(columns) - 1
        total, done = 0.0, 0
        while done < steps:
            at, count = column + done, steps - done
            k = cell(columns, at)
            if at >= columns[last]:
                slope = values[last] / columns[last]
                first = slope * at
            elif at < columns[0]:
                slope, first = 0.0, values[0]
                count = min(count, int(columns[0] - at) + 1)
            else:
                slope = (values[k + 1] - values[k]) / (columns[k + 1] - columns[k])
                first = values[k] + slope * (at - columns[k])
                count = min(count, int(columns[k + 1] - at) + 1)
            total += count * first + slope * (count * (count - 1) // 2)
            done += count
        return total


class Volume:
    """A function of three numbers: a `Plane` for each grid point of the first."""

    __slots__ = ("layers", "name", "planes")

    def __init__(self, name: str, layers: list[float], planes: list[Plane]) -> None:
        check_points(f"layers of {name}", layers)
        if len(planes) != len(layers):
            raise CostError(f"{name} of a table has {len(planes)} layers for {len(layers)} grid points")
        self.name = name
        self.layers = layers
        self.planes = planes

    def __reduce__(self) -> tuple[object, ...]:
        return Volume, (self.name, self.layers, self.planes)

    def at(self, layer: float, row: float, column: float) -> float:
        index = cell(self.layers, layer)
        value = self.planes[index].at(row, column)
        upper = share(self.layers, layer, index)
        if upper > 0.0:
            value += upper * (self.planes[index + 1].at(row, column) - value)
        return value * over(self.layers, layer)


def _short(points: list[float]) -> str:
    return f"[{', '.join(f'{point:g}' for point in points[:8])}{', ...' if len(points) > 8 else ''}]"
