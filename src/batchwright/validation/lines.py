"""The numbers of both sides, one line each: see `Line`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import hypot, inf, isnan, nan
from typing import Any, Final

import numpy as np

from batchwright.figures import Unit, plain_unit, seconds_unit
from batchwright.interval import paired_interval, series_interval
from batchwright.metrics import Numbers, number, statistic
from batchwright.run.counts import Count
from batchwright.run.run import METRICS
from batchwright.validation.side import PRESENT, RUNNING, WAITING, Side

STATISTICS: Final = ("mean", "p50", "p90", "p99")
TOTALS: Final = {  # key -> name of the total of a file
    "request_throughput_per_s": "requests_per_s",
    "output_throughput_tokens_per_s": "output_tokens_per_s",
    "total_throughput_tokens_per_s": "total_tokens_per_s",
    "num_preemptions": "preemptions",
}
LEVELS: Final = {RUNNING: "running", WAITING: "waiting", PRESENT: "running or waiting"}


@dataclass(frozen=True, kw_only=True)
class Line:
    """One number of both sides.  `half`: half of the 95 % interval of predicted - measured; nan: not known.

    `key`: its name in JSON and in `--bound`.  nan: not applicable.
    """

    key: str
    title: str
    unit: Unit
    predicted: float
    measured: float
    half: float = nan

    @property
    def difference(self) -> float:
        """Predicted less measured."""
        return self.predicted - self.measured

    @property
    def error(self) -> float:
        """Relative to what was measured; nan where that is 0 and something was predicted."""
        if self.predicted == self.measured:
            return 0.0
        return self.difference / self.measured if self.measured else nan

    @property
    def error_half(self) -> float:
        """Half of the interval of the error."""
        return self.half / self.measured if self.measured else nan

    @property
    def is_defined(self) -> bool:
        """Do both sides have it?"""
        return not isnan(self.difference)

    def to_json(self) -> dict[str, Any]:
        """All digits; null: not applicable, or no interval."""
        return {
            "predicted": number(self.predicted),
            "measured": number(self.measured),
            "error": number(self.error),
            "error_half_interval": number(self.error_half),
        }


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The requests that are compared: rows of each side.  `is_paired`: row i of both is one request."""

    predicted: Numbers
    measured: Numbers
    is_paired: bool


def all_lines(predicted: Side, measured: Side, kept: Kept, unqueued: Kept, skip: int) -> list[Line]:
    """Every line, whether or not both sides have it."""
    found = list(_times(predicted, measured, kept, "ttft_s", "TTFT"))
    found += _times(predicted, measured, unqueued, "ttft_s", "TTFT unqueued", "ttft_unqueued_s")
    for name in ("tpot_s", "e2e_s"):
        found += _times(predicted, measured, kept, name, METRICS[name])
    found += [
        *_itl(predicted, measured, skip),
        *_rates(predicted, measured, kept),
        _preemptions(predicted, measured, kept, skip),
    ]
    filled = (_filled(line, predicted, measured, skip) for line in found)
    return [*filled, *_levels(predicted, measured, kept)]


def _filled(line: Line, a: Side, b: Side, skip: int) -> Line:
    """With totals of a whole file where its requests do not tell the number."""
    mine, theirs = (side.total(TOTALS.get(line.key, line.key), skip) for side in (a, b))
    return replace(
        line,
        predicted=mine if isnan(line.predicted) else line.predicted,
        measured=theirs if isnan(line.measured) else line.measured,
    )


def _times(a: Side, b: Side, kept: Kept, name: str, title: str, key: str = "") -> Iterator[Line]:
    mine, theirs = a.column(name)[kept.predicted], b.column(name)[kept.measured]
    if kept.is_paired:
        mine, theirs = _both(mine, theirs)
    for which in STATISTICS:
        yield Line(
            key=f"{key or name}.{which}",
            title=f"{title} {which.replace('p', 'P')}",
            unit=seconds_unit,
            predicted=statistic(mine, which),
            measured=statistic(theirs, which),
            half=_half(mine, theirs, which, kept.is_paired),
        )


def _both(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    """Those rows that both have; all, if only one side has any."""
    has_both = ~np.isnan(a - b)
    return (a[has_both], b[has_both]) if has_both.any() else (a, b)


def _half(a: Numbers, b: Numbers, which: str, is_paired: bool) -> float:
    if is_paired:
        return paired_interval(a, b, which).half
    return hypot(series_interval(a, which).half, series_interval(b, which).half)


def _itl(a: Side, b: Side, skip: int) -> Iterator[Line]:
    mine, theirs = a.gaps_from(skip), b.gaps_from(skip)
    for which in STATISTICS:
        yield Line(
            key=f"itl_s.{which}",
            title=f"ITL {which.replace('p', 'P')}",
            unit=seconds_unit,
            predicted=getattr(mine, which),
            measured=getattr(theirs, which),
        )


# --- rates and counts --------------------------------------------------------------------

_RATES: Final = {
    "request_throughput_per_s": "requests/s",
    "output_throughput_tokens_per_s": "output tokens/s",
    "total_throughput_tokens_per_s": "total tokens/s",
}


def _rates(a: Side, b: Side, kept: Kept) -> Iterator[Line]:
    mine, theirs = rates(a, kept.predicted), rates(b, kept.measured)
    for key, title in _RATES.items():
        yield Line(key=key, title=title, unit=plain_unit, predicted=mine[key], measured=theirs[key])
    yield Line(
        key="duration_s",
        title="first arrival to last end",
        unit=seconds_unit,
        predicted=mine["duration_s"],
        measured=theirs["duration_s"],
    )


def rates(side: Side, rows: Numbers) -> dict[str, float]:
    """Throughput of the requests `rows`, from the first arrival among them to their last end."""
    arrival, finished = side.column("arrival_s")[rows], side.column("finished_s")[rows]
    is_done = ~np.isnan(finished)
    if not is_done.any():
        return dict.fromkeys((*_RATES, "duration_s"), nan)
    duration = float(finished[is_done].max() - np.nanmin(arrival))
    prompt, output = (side.column(name)[rows][is_done].sum() for name in ("prompt_tokens", "output_tokens"))
    amounts = (is_done.sum(), output, prompt + output)
    found = {key: float(each) / duration for key, each in zip(_RATES, amounts, strict=True)}
    return found | {"duration_s": duration}


def _preemptions(a: Side, b: Side, kept: Kept, skip: int) -> Line:
    return Line(
        key="num_preemptions",
        title="preemptions",
        unit=plain_unit,
        predicted=_preempted(a, kept.predicted, skip),
        measured=_preempted(b, kept.measured, skip),
    )


def _preempted(side: Side, rows: Numbers, skip: int) -> float:
    """Of these requests; those of all steps, if they are all."""
    if "preemptions" in side.requests:
        return float(side.requests["preemptions"][rows].sum())
    if skip or side.steps is None or "preempted" not in side.steps:
        return nan
    return float(np.nansum(side.steps["preempted"]))


# --- levels ------------------------------------------------------------------------------


def _levels(a: Side, b: Side, kept: Kept) -> Iterator[Line]:
    for name, title in LEVELS.items():
        begin, end = window(a, b, kept, name)
        for which, find in (("mean", Count.mean), ("peak", Count.greatest)):
            mine, theirs = (_of(side.levels.get(name), find, begin, end) for side in (a, b))
            yield Line(
                key=f"{name}.{which}",
                title=f"{title}, {which}",
                unit=plain_unit,
                predicted=mine,
                measured=theirs,
            )


def window(a: Side, b: Side, kept: Kept, name: str) -> tuple[float, float]:
    """The seconds over which a level is compared: from the first arrival kept to where both end.

    nan if neither side has it.
    """
    known = [side.levels[name] for side in (a, b) if name in side.levels and len(side.levels[name].times)]
    if not known:
        return nan, nan
    arrival = b.column("arrival_s")[kept.measured]
    first = float(np.nanmin(arrival)) if not np.isnan(arrival).all() else -inf
    begin = max([first, *(float(count.times[0]) for count in known)])
    end = max(float(count.times[-1]) for count in known)
    return begin, min([end, *map(_known_until, known)])


def _known_until(count: Count) -> float:
    """A level that ends above 0 was cut there."""
    return float(count.times[-1]) if count.values[-1] else inf


def _of(count: Count | None, find: Callable[[Count, float, float], float], begin: float, end: float) -> float:
    return float(find(count, begin, end)) if count is not None and end > begin else nan
