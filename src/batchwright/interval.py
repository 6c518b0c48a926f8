"""Confidence intervals: how far an estimate may be from the truth, at 95 %.

    one run          sections: k consecutive parts of the requests, each with its own estimate q_i;
                     half = t sqrt(sum (q_i - q)^2 / (k (k - 1))), with q the estimate of all;
                     k is 20 for a mean, and 10 for a percentile, which needs longer sections
    replications     mean of R independent runs; half = t s / sqrt(R)
    bootstrap        the run of a trace itself, and R runs of resampled ones; half = t s

t is Student's quantile with one degree of freedom fewer than there are parts or runs, s the
standard deviation.  Requests that overlap in time are not independent, but long sections nearly
are.  Where sections in a row are still alike (lag-1 correlation r over 0.2), the variance is
widened by (1 + r) / (1 - r), that of a first-order autoregression, with r at most 0.5: more is a
trend, as of a run past saturation.

Sources: batch means, Law and Kelton, "Simulation Modeling and Analysis", section 9.5; sectioning,
Asmussen and Glynn, "Stochastic Simulation", section III.5; the widening, Tafazzoli et al., "Skart",
2011; MSER-5, White 1997.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import cos, isnan, nan, pi, sin, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from batchwright.errors import InputError
from batchwright.metrics import STATISTICS, Numbers, statistic

CONFIDENCE: Final = 0.95
PARTS: Final = 20  # consecutive parts of a run, for a mean,
LONG_PARTS: Final = 10  # and for a percentile
ALIKE: Final = 0.2  # lag-1 correlation of the parts from which an interval is widened
MOST_ALIKE: Final = 0.5  # more is a trend, which no autoregression describes
EXACT: Final = 100  # degrees of freedom from which an expansion is as good as the sum
ROUNDING: Final = 1e-9  # of a value; less is no difference
GROUP: Final = 5  # observations that MSER-5 averages first
LEAST: Final = 5  # groups that MSER-5 keeps at least


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate and its 95 % interval.  low, high: nan if there is too little to tell."""

    value: float
    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """Is there an interval?"""
        return not isnan(self.low)

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2

    @property
    def is_clear(self) -> bool:
        """Does the interval exclude 0?"""
        return self.low > 0 or self.high < 0


def around(value: float, half: float) -> Interval:
    """The interval from value - half to value + half."""
    return Interval(value=value, low=value - half, high=value + half)


# --- Student -----------------------------------------------------------------------------


@lru_cache(maxsize=256)
def student(share: float, freedom: int) -> float:
    """The quantile of Student's t with `freedom` degrees of freedom, to 1e-6.

    Raises InputError unless 0 < share < 1 and freedom is at least 1.
    Source: Abramowitz and Stegun, 26.7.3 to 26.7.5.
    """
    if not 0 < share < 1 or freedom < 1:
        raise InputError(
            f"no quantile at {share} with {freedom} degrees of freedom; give 0 to 1, and at least 1"
        )
    if share < 0.5:
        return -student(1 - share, freedom)
    return _expanded(share, freedom) if freedom >= EXACT else _bisected(share, freedom)


def _bisected(share: float, freedom: int) -> float:
    """By bisection of the angle atan(t / sqrt(freedom))."""
    low, high = 0.0, pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        if (1 + _within(middle, freedom)) / 2 < share:
            low = middle
        else:
            high = middle
    return sqrt(freedom) * sin(low) / cos(low)


def _within(angle: float, freedom: int) -> float:
    """Probability that |t| is below sqrt(freedom) tan(angle)."""
    is_odd = freedom % 2
    term = cos(angle) if is_odd else 1.0
    total = 0.0
    for k in range(2 + is_odd, freedom + 1, 2):  # the terms are products of (k - 1) / k
        total += term
        term *= cos(angle) ** 2 * (k - 1) / k
    if is_odd:
        return 2 / pi * (angle + sin(angle) * total)
    return sin(angle) * total


def _expanded(share: float, freedom: int) -> float:
    x = NormalDist().inv_cdf(share)
    n = freedom
    first = (x**3 + x) / 4
    second = (5 * x**5 + 16 * x**3 + 3 * x) / 96
    third = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
    fourth = (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160
    return x + first / n + second / n**2 + third / n**3 + fourth / n**4


def _quantile(count: int) -> float:
    return student((1 + CONFIDENCE) / 2, count - 1)


# --- several runs ------------------------------------------------------------------------


def t_interval(values: Sequence[float]) -> Interval:
    """The mean of independent values, as of replications; nan where one of them is."""
    count = len(values)
    mean = float(np.mean(values)) if count else nan
    half = _quantile(count) * float(np.std(values, ddof=1)) / sqrt(count) if count > 1 else nan
    return around(mean, half)


def bootstrap_interval(original: float, replicates: Sequence[float]) -> Interval:
    """`original`, the estimate of the trace itself, and its spread over resampled traces.

    The replicates vary about as much as the estimate does, so their standard deviation is not
    divided by the root of their number.
    """
    count = len(replicates)
    half = _quantile(count) * float(np.std(replicates, ddof=1)) if count > 1 else nan
    return around(original, half)


# --- one run -----------------------------------------------------------------------------


def section_interval(value: float, parts: Sequence[float]) -> Interval:
    """The estimate `value` of a whole, from the same estimate of its consecutive parts."""
    count = len(parts)
    if count < 2:
        return around(value, nan)
    differences = np.subtract(parts, value)
    variance = float((differences**2).sum()) / (count * (count - 1))
    r = min(lag_one(parts), MOST_ALIKE)
    widening = (1 + r) / (1 - r) if r > ALIKE else 1.0
    return around(value, _quantile(count) * sqrt(variance * widening))


def lag_one(values: Sequence[float]) -> float:
    """The correlation of each value with the next one; 0 if they do not vary."""
    centred = np.subtract(values, np.mean(values))
    total = float((centred**2).sum())
    return float((centred[1:] * centred[:-1]).sum()) / total if total > 0 else 0.0


def series_interval(values: Numbers, name: str = "mean") -> Interval:
    """A statistic of one run's values, in order; nan values do not count.

    nan if there are fewer values than sections, or a section is too short for the percentile: one
    of its values at least must lie beyond it.
    """
    return sectioned(name, lambda part: statistic(part, name), values[~np.isnan(values)])


def paired_interval(a: Numbers, b: Numbers, name: str = "mean") -> Interval:
    """The difference of a statistic between two runs, over the requests that have both, in order.

    A mean is compared request by request.  A percentile is compared section by section: both
    have the same requests in each, so what they share cancels.
    """
    has_both = ~np.isnan(a - b)
    if name == "mean":
        return series_interval(difference(a[has_both], b[has_both]))
    pairs = np.stack((a[has_both], b[has_both]), axis=1)
    return sectioned(name, lambda part: _apart(part, name), pairs)


def _apart(pairs: Numbers, name: str) -> float:
    return float(difference(statistic(pairs[:, 0], name), statistic(pairs[:, 1], name)))


def difference(a: Numbers | float, b: Numbers | float) -> Numbers:
    """a - b, but 0 where that is rounding (below 1e-9 of the greater): equal runs do not differ clearly."""
    apart = np.subtract(a, b)
    is_rounding = np.abs(apart) <= ROUNDING * np.maximum(np.abs(a), np.abs(b))
    return np.where(is_rounding, 0.0, apart)


def sectioned(name: str, estimate: Callable[[Numbers], float], values: Numbers) -> Interval:
    """The interval of `estimate`, which takes a statistic `name` of `values` or of some in a row."""
    value = estimate(values)
    share = STATISTICS[name]
    least, count = (1.0, PARTS) if share is None else (1 / min(share, 1 - share), LONG_PARTS)
    if len(values) // count < least * (1 - 1e-9):
        return around(value, nan)
    return section_interval(value, [estimate(part) for part in np.array_split(values, count)])


def warm_up(values: Numbers) -> int | None:
    """How many of the first values to leave out, so that the rest looks steady: MSER-5.

    Of the means y of five values each, d are left out so that sum (y - mean)^2 / (m - d)^2 over
    the other m - d is least.  None if that is more than half of them: the run is too short to
    have a steady part, or has none.
    """
    count = len(values) // GROUP
    if count <= LEAST:
        return None
    means = values[: count * GROUP].reshape(count, GROUP).mean(axis=1)
    rest = count - np.arange(count)
    centred = means - means.mean()
    sums = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum((centred**2)[::-1])[::-1]
    errors = (squares - sums**2 / rest) / rest**2
    least = int(np.argmin(errors[: count - LEAST]))
    return GROUP * least if 2 * least <= count else None
