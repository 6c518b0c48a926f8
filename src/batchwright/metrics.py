"""Metrics, defined once.

    TTFT = first token - arrival          E2E  = end - arrival
    TPOT = (end - first token) / (output - 1), undefined for one token

Percentiles interpolate linearly between the two nearest order statistics (Hyndman and Fan
1996, definition 7).  An empty sample has no statistics: nan, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
PARTS: Final = 20  # consecutive parts of a run, for the interval of a difference
STUDENT: Final = 2.0930  # 97.5 % quantile of Student's t with PARTS - 1 degrees of freedom


@dataclass(frozen=True)
class Spread:
    """Mean, median and 99th percentile, in seconds; nan where there is no value."""

    mean: float
    p50: float
    p99: float

    @property
    def is_defined(self) -> bool:
        """Is there any value?"""
        return not np.isnan(self.mean)


@dataclass(frozen=True)
class Difference:
    """The mean of a paired difference, with its 95 % interval."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Does the interval exclude 0?"""
        return self.low > 0 or self.high < 0


def spread(seconds: Numbers) -> Spread:
    """The statistics of the values that are defined."""
    values = seconds[~np.isnan(seconds)]
    if len(values) == 0:
        return Spread(np.nan, np.nan, np.nan)
    p50, p99 = np.percentile(values, (50, 99))
    return Spread(float(values.mean()), float(p50), float(p99))


def tpot(first_token: Numbers, finished: Numbers, output: Numbers) -> Numbers:
    """Seconds per output token after the first; nan for one token."""
    gaps = np.where(output > 1, output - 1, 1)
    result: Numbers = np.where(output > 1, (finished - first_token) / gaps, np.nan)
    return result


def paired(a: Numbers, b: Numbers) -> Difference:
    """The mean of a - b over the requests that have both, in order of arrival.

    Requests that overlap in time are not independent, so the interval is that of the means of
    20 consecutive parts of the run (batch means; Law and Kelton, "Simulation Modeling and
    Analysis", section 9.5); nan with fewer than 20 requests.
    """
    both = a - b
    both = both[~np.isnan(both)]
    if len(both) < PARTS:
        return Difference(float(both.mean()) if len(both) else np.nan, np.nan, np.nan)
    means = np.array([part.mean() for part in np.array_split(both, PARTS)])
    half = STUDENT * float(means.std(ddof=1)) / PARTS**0.5
    mean = float(both.mean())
    return Difference(mean, mean - half, mean + half)
