"""One side of a comparison, predicted or measured, in one form: see `Side`.

Columns that a file lacks are made from those that it has, by the definitions of `metrics`; what
cannot be made stays away, and what needs it is not applicable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import nan
from typing import Final

import numpy as np

from batchwright.imported import Imported
from batchwright.metrics import NOTHING, Numbers, Spread, spread, tpot
from batchwright.run.counts import Count

Columns = Mapping[str, Numbers]
RUNNING, WAITING, PRESENT = "running", "waiting", "present"  # present: come, and not ended


@dataclass(frozen=True, kw_only=True)
class Side:
    """What one side says.

    requests  a row per request in order of arrival: the columns of `Run.requests` that there are
    levels    how many requests run, wait, or are there, over time
    itl       of all gaps of all requests; `itl_skip`: of all but so many of the first requests
    steps     a row per step, as `Run.steps`; None: not known
    totals    single numbers of all requests that stand for columns that are missing, as `preemptions`
    remarks   what wrote it, what it means by its metrics, and what is odd or wrong in it
    """

    name: str
    requests: Columns
    remarks: tuple[str, ...] = ()
    levels: Mapping[str, Count] = field(default_factory=dict)
    gaps: tuple[Numbers, ...] | None = None
    itl: Spread = NOTHING
    itl_skip: int = 0
    steps: Columns | None = None
    totals: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(next(iter(self.requests.values()))) if self.requests else 0

    def column(self, name: str) -> Numbers:
        """A column of the requests; nan where it is missing."""
        found = self.requests.get(name)
        return np.full(len(self), np.nan) if found is None else found

    def total(self, name: str, skip: int) -> float:
        """A number of all requests, if none of them is to be skipped; nan if it is not known."""
        return nan if skip else float(self.totals.get(name, nan))

    def gaps_from(self, skip: int) -> Spread:
        """The spread of the gaps between tokens without the first `skip` requests; nothing if not known."""
        if self.gaps is not None:
            kept = self.gaps[skip:]
            return spread(np.concatenate(kept)) if kept else NOTHING
        return self.itl if skip == self.itl_skip else NOTHING


def measured_side(found: Imported) -> Side:
    """What a file of measurements says."""
    requests = completed(in_order(found.requests or {}))
    gaps = found.gaps
    if gaps is not None and found.requests and "arrival_s" in found.requests:
        gaps = tuple(gaps[i] for i in _order(found.requests))
    return Side(
        name=found.file,
        remarks=_remarks(found),
        requests=requests,
        levels=present(requests) | _levels_of_requests(requests) | _levels_of_series(found.series),
        gaps=gaps,
        steps=found.steps,
        totals=found.totals,
    )


def _remarks(found: Imported) -> tuple[str, ...]:
    findings = (f"{'wrong: ' if one.is_wrong else ''}{one.text}" for one in found.findings)
    return (found.form, *found.conventions, *findings)


def in_order(requests: Columns) -> Columns:
    """The rows in order of arrival, as floats; nan for all times of a request that failed."""
    rows = {name: np.asarray(values) for name, values in requests.items()}
    failed = np.asarray(rows.pop("is_completed", 1.0)) == 0
    for name in rows:
        if name.endswith("_s") and name != "arrival_s":
            rows[name] = np.where(failed, np.nan, rows[name])
    order = _order(rows)
    return {name: values[order] for name, values in rows.items()}


def _order(requests: Columns) -> Numbers:
    if "arrival_s" in requests:
        return np.argsort(requests["arrival_s"], kind="stable")
    return np.arange(len(next(iter(requests.values()))) if requests else 0)


# --- columns -----------------------------------------------------------------------------

_MADE: Final[list[tuple[str, tuple[str, ...], Callable[..., Numbers]]]] = [
    ("finished_s", ("arrival_s", "e2e_s"), np.add),
    ("first_token_s", ("arrival_s", "ttft_s"), np.add),
    ("ttft_s", ("first_token_s", "arrival_s"), np.subtract),
    ("e2e_s", ("finished_s", "arrival_s"), np.subtract),
    ("tpot_s", ("first_token_s", "finished_s", "output_tokens"), tpot),
    ("tpot_s", ("ttft_s", "e2e_s", "output_tokens"), tpot),
]


def completed(requests: Columns) -> Columns:
    """With the columns that follow from others; one that is there is never replaced."""
    found = dict(requests)
    for name, needs, make in _MADE:
        if name not in found and all(need in found for need in needs):
            found[name] = make(*(found[need] for need in needs))
    return found


# --- levels ------------------------------------------------------------------------------


def present(requests: Columns) -> dict[str, Count]:
    """How many requests have come and have not ended, from their times."""
    found = level(requests, "arrival_s", "finished_s")
    return {} if found is None else {PRESENT: found}


def _levels_of_requests(requests: Columns) -> dict[str, Count]:
    """Who runs and who waits, but for waits after a preemption, which requests do not tell."""
    running = level(requests, "scheduled_s", "finished_s")
    waiting = level(requests, "arrival_s", "scheduled_s")
    return {} if running is None or waiting is None else {RUNNING: running, WAITING: waiting}


def _levels_of_series(series: Columns | None) -> dict[str, Count]:
    """The server's own samples."""
    if series is None or "time_s" not in series:
        return {}
    names = (name for name in (RUNNING, WAITING) if name in series)
    found = {name: _sampled(series["time_s"], series[name]) for name in names}
    return {name: level for name, level in found.items() if len(level.times)}


def _sampled(times: Numbers, values: Numbers) -> Count:
    """The level from samples, in order of time; those without a time or a value are none."""
    is_told = ~np.isnan(times + values)
    order = np.argsort(times[is_told], kind="stable")
    return Count(times=times[is_told][order], values=values[is_told][order])


def level(requests: Columns, begin: str, end: str) -> Count | None:
    """How many requests are between two of their times; None without the columns."""
    if begin not in requests or end not in requests:
        return None
    is_whole = ~np.isnan(requests[begin] - requests[end])
    return changes(
        np.concatenate((requests[begin][is_whole], requests[end][is_whole])),
        np.repeat((1, -1), is_whole.sum()),
    )


def changes(times: Numbers, by: Numbers) -> Count:
    """The level that begins at 0 and changes by so much at each of these times."""
    moments, at = np.unique(times, return_inverse=True)
    return Count(times=moments, values=np.cumsum(np.bincount(at, by, len(moments))).round().astype(np.int64))
