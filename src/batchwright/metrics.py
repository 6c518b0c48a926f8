"""Metrics, defined once.

    TTFT = first token - arrival          E2E  = end - arrival
    TPOT = (end - first token) / (output - 1), undefined for one token
    ITL  = gap between two successive tokens of a request, whatever happened in between
    normalised latency = E2E / output, seconds per token

Percentiles interpolate linearly between the two nearest order statistics (Hyndman and Fan
1996, definition 7).  An empty sample has no statistics: nan, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isnan
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
STATISTICS: Final = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}  # shares
SHARES: Final = tuple(share for share in STATISTICS.values() if share is not None)


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles, in the unit of the values; nan where there is no value."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @property
    def is_defined(self) -> bool:
        """Is there any value?"""
        return not isnan(self.mean)

    def to_json(self) -> dict[str, float | None]:
        """By name; None is not applicable."""
        return {name: number(getattr(self, name)) for name in STATISTICS}


NOTHING: Final = Spread(*[float("nan")] * 5)


def number(value: float) -> float | None:
    """`value` for JSON, where nan is null."""
    return None if isnan(value) else float(value)


def spread(values: Numbers, counts: Numbers | None = None) -> Spread:
    """The statistics of the values that are defined; `counts`: how many there are of each."""
    if counts is not None:
        return _counted(values, counts)
    defined = values[~np.isnan(values)]
    if len(defined) == 0:
        return NOTHING
    return Spread(float(defined.mean()), *map(float, np.percentile(defined, np.multiply(SHARES, 100))))


def _counted(values: Numbers, counts: Numbers) -> Spread:
    """The same as for every value repeated as often as it counts, without repeating it."""
    total = int(counts.sum())
    if total == 0:
        return NOTHING
    order = np.argsort(values)
    ordered, until = values[order], np.cumsum(counts[order])
    places = np.multiply(SHARES, total - 1)
    low = places.astype(np.int64)
    below = ordered[np.searchsorted(until, low, side="right")]
    above = ordered[np.searchsorted(until, np.minimum(low + 1, total - 1), side="right")]
    mean = float((values * counts).sum() / total)
    return Spread(mean, *map(float, below + (places - low) * (above - below)))


def statistic(values: Numbers, name: str) -> float:
    """`name` of `STATISTICS` of the values that are defined; nan if there is none."""
    defined = values[~np.isnan(values)]
    share = STATISTICS[name]
    if len(defined) == 0:
        return float("nan")
    return float(defined.mean() if share is None else np.percentile(defined, 100 * share))


def tpot(first_token: Numbers, finished: Numbers, output: Numbers) -> Numbers:
    """Seconds per output token after the first; nan for one token."""
    gaps = np.where(output > 1, output - 1, 1)
    result: Numbers = np.where(output > 1, (finished - first_token) / gaps, np.nan)
    return result
