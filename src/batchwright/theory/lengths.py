"""Laws of token counts: an array `law` with `law[k]` = P(k tokens), k = 0, 1, 2...

A sample of a trace is a law too (`empirical`), so that every formula works on both.
"""

from __future__ import annotations

from math import erf, log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.theory.checks import count, positive

Law = npt.NDArray[np.float64]
TINY = 1e-13  # probability that a law without end leaves out


def empirical(tokens: npt.ArrayLike) -> Law:
    """The law of a sample: each value with its share.  Raises InputError on an empty or negative one."""
    values = np.asarray(tokens)
    if values.ndim != 1 or len(values) == 0 or values.min() < 0 or np.any(values != np.rint(values)):
        raise InputError("a law needs a sample of whole token counts of at least 0; give one or more")
    return np.bincount(values.astype(np.int64)) / len(values)


def constant(tokens: int) -> Law:
    """Always `tokens`."""
    count("tokens", tokens, 0)
    return uniform(tokens, tokens)


def uniform(low: int, high: int) -> Law:
    """Each of `low`..`high` alike.  Raises InputError if `high` is under `low`."""
    count("low", low, 0)
    count("high", high, int(low))
    law = np.zeros(high + 1)
    law[low:] = 1 / (high + 1 - low)
    return law


def geometric(mean: float, most: int | None = None) -> Law:
    """Memoryless, from 1 token on: P(k) = p (1 - p)^(k - 1), p = 1 / mean; over `most` is `most`.

    Raises InputError if `mean` is under 1.
    """
    positive("mean", mean)
    if mean < 1:
        raise InputError(f"mean is {mean}, but a geometric length is at least 1")
    if mean == 1:
        return constant(1)
    stay = 1 - 1 / mean
    end = int(log(TINY) / log(stay)) + 1 if most is None else most
    above = stay ** np.arange(1, end)  # P(more than k), k = 1...
    return -np.diff(np.concatenate(([1.0, 1.0], above, [0.0])))


def lognormal(mean: float, sigma: float, most: int | None = None) -> Law:
    """Rounded to whole tokens, at least 1; `mean` before rounding, over `most` is `most`."""
    positive("mean", mean)
    positive("sigma", sigma)
    middle = log(mean) - sigma * sigma / 2
    end = int(np.exp(middle + 7.4 * sigma)) + 1 if most is None else most
    edges = (np.log(np.arange(1, end) + 0.5) - middle) / (sigma * sqrt(2))
    below = [0.0, *(0.5 * (1 + erf(edge)) for edge in edges.tolist()), 1.0]
    return np.concatenate(([0.0], np.diff(below)))


def mean(law: Law) -> float:
    """E[k]."""
    return float(np.arange(len(law)) @ law)


def second_moment(law: Law) -> float:
    """E[k^2]."""
    return float(np.arange(len(law), dtype=float) ** 2 @ law)


def cv2(law: Law) -> float:
    """Squared coefficient of variation, Var / mean^2."""
    return second_moment(law) / mean(law) ** 2 - 1


def at_most(law: Law) -> Law:
    """F(k) = P(at most k tokens)."""
    below = np.minimum(np.cumsum(law), 1.0)
    below[-1] = 1.0
    return below


def residual(law: Law) -> Law:
    """Tokens that a request seen at a random step has still to get, that step's included.

    P(R = r) = P(k >= r) / E[k], r = 1, 2...  Source: equilibrium residual life, Cox 1962.
    """
    above = 1 - at_most(law)  # P(k > r) at r
    return np.concatenate(([0.0], above[:-1] / mean(law)))


def mean_of_least(law: Law) -> float:
    """E[min of two].  Sum over k of P(k > x)^2."""
    return float(((1 - at_most(law)) ** 2).sum())


def draw(law: Law, size: int, random: Any) -> npt.NDArray[np.int64]:
    """A sample of `size`, drawn with NumPy's generator `random`."""
    drawn: npt.NDArray[np.int64] = np.searchsorted(at_most(law), random.random(size), side="right")
    return drawn
