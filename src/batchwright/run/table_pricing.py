"""Quiet steps under tables of operators, in arrays: `cost.surface` with its operations in their order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from batchwright.cost import Table
from batchwright.cost.surface import Plane, Polyline
from batchwright.metrics import Numbers

Closed = Callable[[Numbers, Numbers, Numbers, Numbers], Numbers]


def table_seconds(cost: Table) -> Closed:
    """Seconds of so many quiet steps, from decodes, rows, KV tokens that the first reads, and steps."""
    tokens, head, decode = cost.times.decodes, cost.times.head, cost.times.decode

    def seconds(decodes: Numbers, rows: Numbers, context: Numbers, steps: Numbers) -> Numbers:
        each = at(tokens, np.maximum(rows, 1))
        each = each + np.where(decodes > 0, at(head, decodes), 0.0)
        mean = context / np.maximum(rows, 1)
        return steps * each + np.where(rows > 0, sums(decode, rows, mean, steps), 0.0)

    return seconds


def at(line: Polyline, numbers: Numbers) -> Numbers:
    """`Polyline.at`."""
    points, values = np.array(line.points), np.array(line.values)
    index, share, over = place(points, numbers)
    found: Numbers = (values[index] + share * (values[index + 1] - values[index])) * over
    return found


def place(points: Numbers, numbers: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Cell, share of the way through it, and how many times the last point each number is."""
    index = cell(points, numbers)
    low, high = points[index], points[index + 1]
    share = np.clip((numbers - low) / (high - low), 0.0, 1.0)
    return index, share, np.maximum(numbers / points[-1], 1.0)


def cell(points: Numbers, numbers: Numbers) -> Numbers:
    found: Numbers = np.clip(np.searchsorted(points, numbers, "right") - 1, 0, len(points) - 2)
    return found


def sums(plane: Plane, rows: Numbers, column: Numbers, steps: Numbers) -> Numbers:
    """`Plane.sum`."""
    columns, values = np.array(plane.columns), np.array(plane.values)
    index, upper, over = place(np.array(plane.rows), rows)
    low = _sums(columns, values, index, column, steps)
    high = _sums(columns, values, index + 1, column, steps)
    found: Numbers = ((1.0 - upper) * low + upper * high) * over
    return found


def _sums(columns: Numbers, values: Numbers, index: Numbers, column: Numbers, steps: Numbers) -> Numbers:
    """Of one row of values each: cell by cell, those together that have as many cells."""
    total, done = np.zeros(len(steps)), np.zeros(len(steps), np.int64)
    while (left := np.flatnonzero(done < steps)).size:
        first, slope, count = _piece(columns, values, index[left], column[left] + done[left])
        count = np.minimum(count, steps[left] - done[left])
        total[left] += count * first + slope * (count * (count - 1) // 2)
        done[left] += count
    return total


def _piece(
    columns: Numbers, values: Numbers, index: Numbers, now: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Value and slope at `now` of a row of values each, and how many steps stay on that line."""
    k = cell(columns, now)
    left, right = values[index, k], values[index, k + 1]
    slope = (right - left) / (columns[k + 1] - columns[k])
    first = left + slope * (now - columns[k])
    count = (columns[k + 1] - now).astype(np.int64) + 1
    is_under, is_over = now < columns[0], now >= columns[-1]
    beyond = values[index, -1] / columns[-1]
    slope = np.where(is_over, beyond, np.where(is_under, 0.0, slope))
    first = np.where(is_over, beyond * now, np.where(is_under, values[index, 0], first))
    count = np.where(is_under, (columns[0] - now).astype(np.int64) + 1, count)
    return first, slope, np.where(is_over, np.iinfo(np.int64).max, count)
