"""Predicted beside measured: a table per policy, and what the numbers alone do not say."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import TYPE_CHECKING, Final

import numpy as np

from batchwright.figures import (
    NOT_APPLICABLE,
    Unit,
    count,
    plain_unit,
    seconds,
    seconds_unit,
    share_unit,
    signed_share,
    with_interval,
)
from batchwright.measured.calibration import Calibration
from batchwright.measured.side_by_side import MOST_DRIFT, Cell, SideBySide
from batchwright.plain_table import plain_table

if TYPE_CHECKING:
    from rich.table import Table

TOLD_BEFORE: Final = ("duration_s", "e2e_s.mean", "e2e_s.p99", "ttft_s.mean")  # where space is short
UNITS: Final[dict[str, Unit]] = {  # seconds for all others
    "output_throughput": plain_unit,
    "attainment": share_unit,
    "goodput": plain_unit,
}


def tables(found: SideBySide) -> Iterator[Table]:
    """One per policy."""
    for name in found.cells:
        yield _table(found, name)


def _table(found: SideBySide, name: str) -> Table:
    from rich.text import Text

    result = plain_table()
    result.add_column(Text(name), min_width=18, overflow="fold")
    for title in ("predicted", "measured", "error"):
        result.add_column(title, justify="right", min_width=14, overflow="fold")
    for metric, title in found.metrics.items():
        unit = UNITS.get(metric, seconds_unit)
        sides = (found.predicted.estimates, found.measured.estimates)
        cells = [with_interval(side.interval(name, metric), unit) for side in sides]
        result.add_row(title, *cells, _error(found, name, metric))
    return result


def _error(found: SideBySide, name: str, metric: str) -> str:
    """The median error, and its range over several loads."""
    errors = found.errors(name, metric)
    if isnan(median := found.error(name, metric)):
        return NOT_APPLICABLE
    spread = f" ({signed_share(min(errors))} to {signed_share(max(errors))})" if len(errors) > 1 else ""
    return f"{signed_share(median)}{spread}"


def remarks(found: SideBySide) -> Iterator[str]:
    """How errors are found, then a line for each policy: the machine's drift, and the model's own error."""
    loads = len(next(iter(found.cells.values())))
    if loads > 1:
        yield f"means of {loads} loads, ± half of the 95 % interval; errors: median, least to greatest"
    yield "error = predicted / measured - 1; all requests count, none is left out as warm-up"
    for name, cells in found.cells.items():
        yield f"{name}: {_drift(cells)}{_cpus(found, cells)}; step times {_step_error(cells)}"
    for name, cells in found.cells.items():
        if paces := [cell.pace.range() for cell in cells if cell.pace is not None]:
            yield f"{name}: {_meanwhile(found, name, paces)}"
    for name, cells in found.cells.items():
        if any(cell.has_drifted for cell in cells):
            yield (
                f"{name}: NOT COMPARABLE: in every attempt the machine drifted by more than "
                f"{MOST_DRIFT:.0%}, or the engine's share of its CPUs did; run again when nothing else "
                "runs, or give --calibration meanwhile"
            )


def _drift(cells: list[Cell]) -> str:
    drifts = ", ".join(signed_share(cell.drift) for cell in cells)
    repeats = sum(cell.attempts - 1 for cell in cells)
    again = f" after {count(repeats)} repeated run{'s' if repeats > 1 else ''}" if repeats else ""
    return f"the machine drifted by {drifts}{_slowdown(cells)}{again}"


def _meanwhile(found: SideBySide, name: str, paces: list[tuple[float, float]]) -> str:
    """How uneven the machine was during the runs, and what was predicted without knowing that."""
    told = ", ".join(f"{low:.2f} to {high:.2f}" for low, high in paces)
    metrics = [metric for metric in found.metrics if metric in TOLD_BEFORE]
    errors = ", ".join(
        f"{found.metrics[metric]} {signed_share(float(np.median(found.errors_before(name, metric))))}"
        for metric in metrics
    )
    return (
        f"calibrated meanwhile, when the same steps took {told} times as long as before (5th to 95th "
        f"percentile of the run's seconds); predicted before the run, the errors were {errors}"
    )


def _slowdown(cells: list[Cell]) -> str:
    """What a probe after the run cannot see."""
    told = [signed_share(cell.slowdown) for cell in cells if not isnan(cell.slowdown)]
    return f" (during the run {', '.join(told)})" if told else ""


def _cpus(found: SideBySide, cells: list[Cell]) -> str:
    """What the engine had of the machine, if it computes here."""
    if not found.calibrations[-1].is_here:
        return ""
    return f", the engine had {', '.join(f'{cell.cpus:.2f}' for cell in cells)} CPUs"


def _step_error(cells: list[Cell]) -> str:
    return "err by " + ", ".join(signed_share(cell.step_error) for cell in cells)


def calibration_lines(found: Calibration) -> Iterator[str]:
    """What was measured, how well the model fits, and what it says."""
    yield (
        f"calibrated on {found.num_steps:,} steps: {found.num_shapes} small loads and a burst; "
        f"a step errs by {found.fit_error:.1%}"
    )
    yield (
        f"held out: of the burst, which the small loads' model had not seen, a step errs by "
        f"{found.burst_error:.1%}, the whole by {signed_share(found.burst_total)}"
    )
    if found.is_here:
        yield f"the engine had {found.cpus:.2f} CPUs meanwhile"
    model = found.step_time
    rows = [int(knot) for knot in model.head.knots if knot >= 1]
    steps = ", ".join(f"{rows_} {seconds(model.decode_seconds(rows_, 128))}" for rows_ in rows)
    yield f"a step of so many decodes over 128 tokens each takes: {steps}"
