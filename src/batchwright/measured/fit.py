"""Fit the time of a step to measured ones.

Least squares of the relative errors, without negative coefficients (Lawson and Hanson 1974, chapter 23).
Errors are relative to the fitted times: relative to measured ones, short steps, whose times vary most,
would be fitted too short.
Steps that took far longer or shorter than the others like them lose weight (Huber 1964), so that a pause
of the machine is not taken for a property of a shape.  Pauses do lengthen runs, though: so at last all
coefficients are scaled alike, until a step takes its measured time on average.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from batchwright.cost.line import Line
from batchwright.errors import InputError
from batchwright.measured.samples import Samples
from batchwright.measured.shapes import knots
from batchwright.measured.step_time import StepTime, tokens_of
from batchwright.metrics import Numbers

FEWEST: Final = 12  # steps of a fit
ROUNDS: Final = 12  # of new weights
HUBER: Final = 1.5  # in standard deviations; errors beyond it count linearly
WIDE: Final = 3.0  # the same where the mean is asked for, of times that are skewed
NORMAL: Final = 1.4826  # standard deviation over median deviation, of a normal law
LONGEST: Final = 2.0  # times its fitted time; how much longer a pause is is chance
LEAST: Final = 1e-3  # of the measured time: the least fitted one that errors are relative to
SMALLEST: Final = 1e-4  # relative: errors below it are rounding
Solve = Callable[[Numbers, Numbers], Numbers]


def fit(samples: Samples) -> StepTime:
    """The model of measured steps.  Raises InputError on too few."""
    steps, taken = samples.steps, np.array(samples.seconds)
    if len(steps) < FEWEST:
        raise InputError(f"{len(steps)} steps were measured; a fit needs {FEWEST}")
    tokens = np.array([tokens_of(s) for s in steps], float)
    sampled = np.array([s.sampled_rows for s in steps], float)
    shared_knots, head_knots = _knots(tokens), (0.0, *_knots(sampled[sampled > 0]))
    columns = np.column_stack(
        [np.ones(len(steps)), *ramps(tokens, shared_knots), *ramps(sampled, head_knots), *_linear(samples)]
    )
    found = typical(columns, taken)
    found *= _level(columns @ found, taken)
    base, rest = found[0], found[1:]
    shared, head = len(shared_knots) - 1, len(head_knots) - 1
    chunk, decode, context, pair, switch, chunk_switch = rest[shared + head :].tolist()
    return StepTime(
        shared=_line(base, shared_knots, rest[:shared]),
        head=_line(0.0, head_knots, rest[shared : shared + head]),
        chunk=chunk,
        decode=decode,
        context=context,
        pair=pair,
        switch=switch,
        chunk_switch=chunk_switch,
        most_tokens=int(tokens.max()),
    )


def _knots(values: Numbers) -> tuple[float, ...]:
    """Where kernels may change, up to the greatest value, and that one."""
    most = max(int(values.max()), 2) if len(values) else 2
    return tuple(float(knot) for knot in knots(most))


def ramps(values: Numbers, knots: Sequence[float]) -> list[Numbers]:
    """How far each value is through each piece; the last piece has no end."""
    ends = [*knots[1:-1], np.inf]
    return [np.clip(values - a, 0.0, b - a) for a, b in zip(knots, ends, strict=False)]


def _linear(samples: Samples) -> list[Numbers]:
    steps, switches = samples.steps, np.array(samples.switches, float)
    chunks = np.array([s.num_chunks for s in steps], float)
    return [
        chunks,
        np.array([s.num_decodes + s.padded_rows for s in steps], float),
        np.array([s.context_tokens + s.past_tokens for s in steps], float),
        np.array([s.prefill_attention for s in steps], float),
        switches * (chunks == 0),
        switches * (chunks > 0),
    ]


def _line(first: float, knots: tuple[float, ...], slopes: Numbers) -> Line:
    seconds = [float(first)]
    for slope, a, b in zip(slopes.tolist(), knots, knots[1:], strict=False):
        seconds.append(seconds[-1] + slope * (b - a))
    return Line(knots, tuple(seconds))


def robust(columns: Numbers, taken: Numbers, solve: Solve | None = None) -> Numbers:
    """Coefficients under which the relative errors are least, outliers counting less.

    `solve(columns, values)`: the x >= 0 with the least |columns x - values|; default: `nonnegative`.
    """
    solve = solve or nonnegative
    relative = columns / taken[:, None]
    trust = np.ones(len(taken))
    found = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        weights = np.sqrt(trust)
        found = solve(relative * weights[:, None], weights)
        trust = _trust(relative @ found - 1.0, HUBER)
    return found


def typical(columns: Numbers, taken: Numbers) -> Numbers:
    """Coefficients of the mean: the same, but errors are relative to the fitted times."""
    base, trust = taken, np.ones(len(taken))
    found = np.zeros(columns.shape[1])
    for _ in range(ROUNDS):
        weights = np.sqrt(trust) / base
        found = nonnegative(columns * weights[:, None], taken * weights)
        base = np.maximum(columns @ found, LEAST * taken)
        trust = _trust(taken / base - 1.0, WIDE)
    return found


def _trust(errors: Numbers, huber: float) -> Numbers:
    """Weights of squares under which errors beyond so many standard deviations count linearly."""
    sizes = np.abs(errors)
    width = max(huber * NORMAL * float(np.median(sizes)), SMALLEST)
    trust: Numbers = np.minimum(1.0, width / np.maximum(sizes, width))
    return trust


def _level(fitted: Numbers, taken: Numbers) -> float:
    """Measured over fitted time of a step, on average; each counts LONGEST at most."""
    return float(np.minimum(taken / fitted, LONGEST).mean())


def nonnegative(columns: Numbers, values: Numbers) -> Numbers:
    """The x >= 0 with the least |columns x - values|.  Source: Lawson and Hanson, algorithm NNLS."""
    scale = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    unit = columns / scale
    x = np.zeros(columns.shape[1])
    free = np.zeros(len(x), bool)
    for _ in range(3 * len(x)):
        gain = unit.T @ (values - unit @ x)
        gain[free] = 0.0
        if gain.max() <= 1e-10 * np.linalg.norm(values):
            break
        free[gain.argmax()] = True
        x = _descend(unit, values, x, free)
    found: Numbers = x / scale
    return found


def _descend(unit: Numbers, values: Numbers, x: Numbers, free: Numbers) -> Numbers:
    """The least squares over `free`, which loses those that would become negative."""
    while True:
        target = np.zeros_like(x)
        target[free] = np.linalg.lstsq(unit[:, free], values, rcond=None)[0]
        falls = free & (target <= 0)
        if not falls.any():
            return target
        share = np.min(x[falls] / np.maximum(x[falls] - target[falls], 1e-300))
        x = x + share * (target - x)
        free &= x > 1e-12
        x[~free] = 0.0
