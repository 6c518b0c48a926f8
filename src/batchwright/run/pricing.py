"""When the steps inside quiet stretches end, for many stretches at once.

A run-length log holds the end of every stretch.  The ends inside are priced anew:

    end of step k = begin of the stretch + seconds of k quiet steps

The costs of the package have a closed form, which is evaluated in arrays, with the operations
of `cost` in their order; any other cost is asked step by step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from batchwright.cost import Constant, CostModel, Fitted, Hosted, Linear, Roofline, Stretch, Table
from batchwright.hardware import coefficients
from batchwright.metrics import Numbers
from batchwright.run.table_pricing import table_seconds
from batchwright.step import Step

# Seconds of so many quiet steps, from decodes, rows (decodes and padded ones) and KV tokens read
# in the first of them, and the number of steps: four arrays of one shape.
Closed = Callable[[Numbers, Numbers, Numbers, Numbers], Numbers]


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """Quiet stretches.  Arrays with one entry per stretch; `context`: KV tokens its first step reads.

    `extremes`: its least and greatest context, where the cost model asks for them.
    """

    decodes: Numbers
    padded: Numbers
    context: Numbers
    steps: Numbers
    extremes: tuple[Numbers, Numbers] | None = None


def inner_seconds(quiet: Quiet, cost: CostModel, overlap: bool, stretch: Stretch) -> Numbers:
    """Seconds of the first 1, 2... steps of every stretch, but not of all its steps; one flat array."""
    inner = quiet.steps - 1
    starts = np.repeat(np.cumsum(inner) - inner, inner)
    steps = np.arange(len(starts)) - starts + 1
    closed = closed_form(cost, overlap)
    if closed is None:
        return _asked(quiet, stretch, len(steps))
    rows = quiet.decodes + quiet.padded
    spread_out = [np.repeat(column, inner) for column in (quiet.decodes, rows, quiet.context)]
    return closed(spread_out[0], spread_out[1], spread_out[2], steps)


def closed_form(cost: CostModel, overlap: bool) -> Closed | None:
    """The time of quiet steps under `cost` for arrays; None if it has no closed form known here."""
    if type(cost) is Constant:
        each = cost.each
        return lambda decodes, rows, context, steps: steps * each
    if type(cost) is Linear:
        return _linear(cost)
    if type(cost) is Fitted:
        return _fitted(cost)
    if type(cost) is Roofline:
        return _roofline(cost) if cost.is_plain else None
    if type(cost) is Table:
        return table_seconds(cost)
    if type(cost) is Hosted:
        device = closed_form(cost.cost, overlap)
        return device and _hosted(cost, device, overlap)
    return None


def _asked(quiet: Quiet, stretch: Stretch, count: int) -> Numbers:
    """The same, from one call per step."""
    seconds = np.empty(count)
    step, at = Step(), 0
    nothing = np.zeros_like(quiet.steps)
    least, greatest = quiet.extremes or (nothing, nothing)
    columns = (quiet.decodes, quiet.padded, quiet.context, quiet.steps, least, greatest)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for decodes, padded, context, steps, low, high in rows:
        step.quiet(decodes, padded, context)
        step.least_context, step.greatest_context = low, high
        for k in range(1, steps):
            seconds[at] = stretch(step, k)
            at += 1
    return seconds


def _linear(cost: Linear) -> Closed:
    def seconds(decodes: Numbers, rows: Numbers, context: Numbers, steps: Numbers) -> Numbers:
        each = cost.base + cost.decode * rows + cost.context * context
        result: Numbers = steps * each + cost.context * (rows * (steps * (steps - 1) // 2))
        return result

    return seconds


def _fitted(cost: Fitted) -> Closed:
    line = cost.line
    knots, points, slopes = np.array(line.knots), np.array(line.seconds), np.array(line.slopes)

    def seconds(decodes: Numbers, rows: Numbers, context: Numbers, steps: Numbers) -> Numbers:
        i = np.clip(np.searchsorted(knots, rows, side="right") - 1, 0, len(slopes) - 1)
        each = points[i] + slopes[i] * (rows - knots[i]) + cost.decode * rows
        each = each + cost.context * context
        result: Numbers = steps * each + cost.context * (rows * (steps * (steps - 1) // 2))
        return result

    return seconds


def _roofline(cost: Roofline) -> Closed:
    unit = coefficients(cost.gpu, cost.model, cost.tp, cost.mfu, cost.mbu, cost.link)

    def seconds(decodes: Numbers, rows: Numbers, context: Numbers, steps: Numbers) -> Numbers:
        is_read = decodes > 0  # the output head
        memory = unit.core + unit.head * is_read
        if unit.experts > 0.0:
            memory = memory + unit.experts * (1.0 - np.power(unit.missed, rows.astype(float)))
        matrices = np.maximum(unit.token * rows + unit.sample * decodes, memory)
        each = cost.fixed_seconds + unit.hops + unit.transfer * rows + matrices
        attention = sum_of_greater(
            unit.pair * (context + rows),
            unit.pair * rows,
            unit.read * (context + rows),
            unit.read * rows,
            steps,
        )
        return np.where(rows > 0, steps * each + attention, steps * cost.fixed_seconds)

    return seconds


def sum_of_greater(a: Numbers, a_step: Numbers, b: Numbers, b_step: Numbers, steps: Numbers) -> Numbers:
    """Sum over j < steps of max(a + j a_step, b + j b_step), for arrays."""
    is_b = a < b
    a, b = np.where(is_b, b, a), np.where(is_b, a, b)
    a_step, b_step = np.where(is_b, b_step, a_step), np.where(is_b, a_step, b_step)
    gains = b_step > a_step
    meet = (a - b) / np.where(gains, b_step - a_step, 1.0)
    lead = np.where(gains & (meet < steps - 1), np.minimum(meet, steps).astype(np.int64) + 1, steps)
    rest = steps - lead
    total: Numbers = lead * a + a_step * (lead * (lead - 1) // 2)
    total = total + rest * b + b_step * (rest * lead + rest * (rest - 1) // 2)
    return total


def _hosted(cost: Hosted, device: Closed, overlap: bool) -> Closed:
    def added(decodes: Numbers, rows: Numbers, context: Numbers, steps: Numbers) -> Numbers:
        host = cost.base + cost.per_running * rows
        return device(decodes, rows, context, steps) + steps * host

    def hidden(decodes: Numbers, rows: Numbers, context: Numbers, steps: Numbers) -> Numbers:
        seconds = device(decodes, rows, context, steps)
        host = cost.base + cost.per_running * rows
        is_slow = device(decodes, rows, context, np.ones_like(steps)) < host
        if is_slow.any():
            columns = [column[is_slow] for column in (decodes, rows, context, steps)]
            seconds[is_slow] = _behind_host(device, columns, host[is_slow])
        return seconds

    return hidden if overlap else added


def _behind_host(device: Closed, columns: list[Numbers], host: Numbers) -> Numbers:
    """Seconds where the host is slower in the first step: it is so up to some step, the device after it."""
    decodes, rows, context, steps = columns
    slow, fast, one = np.zeros_like(steps), steps.copy(), np.ones_like(steps)
    while (fast - slow > 1).any():
        middle = (slow + fast) // 2
        is_device = device(decodes, rows, context + middle * rows, one) >= host
        is_open = fast - slow > 1
        fast = np.where(is_open & is_device, middle, fast)
        slow = np.where(is_open & ~is_device, middle, slow)
    rest = device(decodes, rows, context + fast * rows, steps - fast)
    return fast * host + np.where(fast < steps, rest, 0.0)
