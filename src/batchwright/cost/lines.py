"""Sums over the steps of a stretch of what is slower: costs that grow along straight lines."""

from __future__ import annotations


def sum_of_greater(a: float, a_step: float, b: float, b_step: float, steps: int) -> float:
    """Sum over j < steps of max(a + j a_step, b + j b_step)."""
    if a < b:
        a, a_step, b, b_step = b, b_step, a, a_step
    lead = steps  # steps in which a, the greater at first, stays so
    if b_step > a_step:
        meet = (a - b) / (b_step - a_step)
        if meet < steps - 1:
            lead = int(meet) + 1
    rest = steps - lead
    total = lead * a + a_step * (lead * (lead - 1) // 2)
    return total + rest * b + b_step * (rest * lead + rest * (rest - 1) // 2)


def sum_of_greatest(lines: list[tuple[float, float]], steps: int) -> float:
    """Sum over j < steps of the greatest of a + j b over the lines (a, b).

    The greatest only ever gives way to a steeper line, so each line leads at most once.
    """
    total, at = 0.0, 0
    while at < steps:
        value, slope = _greatest(lines, at)
        count = _lead(lines, value, slope, at, steps)
        total += count * value + slope * (count * (count - 1) // 2)
        at += count
    return total


def _greatest(lines: list[tuple[float, float]], at: int) -> tuple[float, float]:
    """Value and slope of the greatest line at step `at`; of equal ones the steepest."""
    value, slope = lines[0][0] + at * lines[0][1], lines[0][1]
    for a, b in lines:
        now = a + at * b
        if now > value or (now == value and b > slope):
            value, slope = now, b
    return value, slope


def _lead(lines: list[tuple[float, float]], value: float, slope: float, at: int, steps: int) -> int:
    """Steps from `at` in which the line with this value and slope stays the greatest, at least 1."""
    lead = steps - at
    for a, b in lines:
        behind, gain = value - (a + at * b), b - slope
        if gain > 0.0 and behind < gain * (lead - 1):
            lead = int(behind / gain) + 1
    return lead
