"""Predicted less measured, request by request: the greatest, by name, and whether they grow.

    residual of E2E = residual of TTFT + residual of the time from first to last token

A queue that is predicted a little too short adds to the waits of all that come after: such errors grow with
time, while those of step times do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any, Final

import numpy as np

from batchwright.interval import CONFIDENCE, Interval, around, student
from batchwright.metrics import Numbers, number
from batchwright.validation.lines import Kept
from batchwright.validation.side import Side

SHOWN: Final = 10  # greatest residuals
PARTS: Final = 10  # consecutive parts of the requests, by arrival


@dataclass(frozen=True, kw_only=True)
class Residual:
    """One request.  Seconds; `of_ttft` and `of_decoding` add up to predicted - measured E2E."""

    request: int  # its place in order of arrival, from 0
    arrival: float
    prompt: float
    output: float
    predicted: float
    measured: float
    of_ttft: float
    of_decoding: float

    @property
    def size(self) -> float:
        """Predicted less measured."""
        return self.predicted - self.measured

    def to_json(self) -> dict[str, Any]:
        """With units in the names."""
        return {
            "request": self.request,
            "arrival_s": number(self.arrival),
            "prompt_tokens": number(self.prompt),
            "output_tokens": number(self.output),
            "predicted_e2e_s": number(self.predicted),
            "measured_e2e_s": number(self.measured),
            "ttft_difference_s": number(self.of_ttft),
            "decoding_difference_s": number(self.of_decoding),
        }


def greatest(predicted: Side, measured: Side, kept: Kept) -> list[Residual]:
    """The requests whose E2E is off by most, most first; none if they are not in pairs."""
    if not kept.is_paired:
        return []
    e2e = _apart(predicted, measured, "e2e_s")[kept.measured]
    order = np.argsort(-np.abs(e2e), kind="stable")[: np.count_nonzero(np.nan_to_num(e2e))]
    return [_residual(predicted, measured, int(row)) for row in kept.measured[order[:SHOWN]]]


def _apart(predicted: Side, measured: Side, name: str) -> Numbers:
    found: Numbers = predicted.column(name) - measured.column(name)
    return found


def _residual(predicted: Side, measured: Side, row: int) -> Residual:
    a, b = (float(side.column("e2e_s")[row]) for side in (predicted, measured))
    of_ttft = float(_apart(predicted, measured, "ttft_s")[row])
    return Residual(
        request=row,
        arrival=float(measured.column("arrival_s")[row]),
        prompt=float(measured.column("prompt_tokens")[row]),
        output=float(measured.column("output_tokens")[row]),
        predicted=a,
        measured=b,
        of_ttft=of_ttft,
        of_decoding=a - b - of_ttft,
    )


# --- over time ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Part:
    """The requests that came from `begin` to `end`: mean differences, and the measured mean; seconds."""

    begin: float
    end: float
    num_requests: int
    ttft: float
    tpot: float
    e2e: float
    measured_e2e: float

    def to_json(self) -> dict[str, Any]:
        """With units in the names."""
        return {
            "begin_s": self.begin,
            "end_s": self.end,
            "num_requests": self.num_requests,
            "ttft_difference_s": number(self.ttft),
            "tpot_difference_s": number(self.tpot),
            "e2e_difference_s": number(self.e2e),
            "measured_e2e_s": number(self.measured_e2e),
        }


def parts(predicted: Side, measured: Side, kept: Kept) -> list[Part]:
    """The requests in `PARTS` parts, by measured arrival; none without arrivals, or with fewer requests."""
    arrival = measured.column("arrival_s")[kept.measured]
    if len(arrival) < PARTS or np.isnan(arrival).any():
        return []
    theirs = np.array_split(kept.measured, PARTS)
    if kept.is_paired:
        mine = theirs
    else:
        edges = [measured.column("arrival_s")[rows[0]] for rows in theirs[1:]]
        places = np.searchsorted(predicted.column("arrival_s")[kept.predicted], edges)
        mine = np.split(kept.predicted, places)
    return [_part(predicted, measured, a, b) for a, b in zip(mine, theirs, strict=True)]


def _part(predicted: Side, measured: Side, mine: Numbers, theirs: Numbers) -> Part:
    arrival = measured.column("arrival_s")[theirs]
    ttft, tpot, e2e = (
        _mean(predicted, name, mine) - _mean(measured, name, theirs) for name in ("ttft_s", "tpot_s", "e2e_s")
    )
    return Part(
        begin=float(arrival[0]),
        end=float(arrival[-1]),
        num_requests=len(theirs),
        ttft=ttft,
        tpot=tpot,
        e2e=e2e,
        measured_e2e=_mean(measured, "e2e_s", theirs),
    )


def _mean(side: Side, name: str, rows: Numbers) -> float:
    values = side.column(name)[rows]
    return float(np.nanmean(values)) if not np.isnan(values).all() else nan


def drift(found: list[Part]) -> Interval:
    """Seconds by which the difference of E2E grows from the first part to the last, by a straight line."""
    y = np.array([part.e2e for part in found])
    x = np.array([(part.begin + part.end) / 2 for part in found])
    if len(x) < 3 or np.isnan(y).any() or not np.ptp(x) > 0:
        return around(nan, nan)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - slope * centred
    error = float(np.sqrt(rest @ rest / (len(x) - 2) / (centred @ centred)))
    span = float(np.ptp(x))
    return around(slope * span, student((1 + CONFIDENCE) / 2, len(x) - 2) * error * span)
