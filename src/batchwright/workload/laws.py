"""Laws of lengths (whole tokens of at least 1) and of times (seconds).

    uniform(a, b)                      tokens: a, a + 1, ... b alike; seconds: anything between
    lognormal(mean=m, sigma=s)         exp(N(mu, s)), mu = ln m - s^2 / 2; median=e sets mu = ln e
    geometric(m)                       tokens only: P(k) = (1 - 1/m)^(k-1) / m, k = 1, 2...; mean m
    exponential(m)                     seconds only: P(> t) = exp(-t / m); mean m
    empirical                          tokens only: one of the given lengths, all alike

A number stands for itself.  `most` cuts what is longer to it, as a client's limit would, so the
mean of what is drawn is then below the one that was asked for.  Tokens are rounded, and a draw
under half a token is 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload.checks import check_number, check_whole, is_finite
from batchwright.workload.columns import LONGEST_SPAN, Floats, Ints, lengths
from batchwright.workload.streams import rounded

Random = np.random.Generator
GREATEST_SIGMA: Final = 10.0


@runtime_checkable
class TokenLaw(Protocol):
    """Draws lengths."""

    def tokens(self, random: Random, count: int) -> Ints: ...


@runtime_checkable
class SecondsLaw(Protocol):
    """Draws times."""

    def seconds(self, random: Random, count: int) -> Floats: ...


Tokens = int | TokenLaw
Seconds = float | SecondsLaw


@dataclass(frozen=True)
class Uniform:
    """From `low` to `high`, both included.  Raises InputError."""

    low: float
    high: float

    def __post_init__(self) -> None:
        check_number("low of uniform", self.low, 0.0, LONGEST_SPAN)
        check_number("high of uniform", self.high, self.low, LONGEST_SPAN)

    def tokens(self, random: Random, count: int) -> Ints:
        low = _whole("low of uniform", self.low)
        return random.integers(low, _whole("high of uniform", self.high), count, endpoint=True)

    def seconds(self, random: Random, count: int) -> Floats:
        return random.uniform(self.low, self.high, count)


@dataclass(frozen=True, kw_only=True)
class Lognormal:
    """`sigma`: standard deviation of the logarithm.  One of `mean` and `median`.  Raises InputError."""

    mean: float | None = None
    median: float | None = None
    sigma: float
    most: float | None = None

    def __post_init__(self) -> None:
        check_number("sigma of lognormal", self.sigma, 0.0, GREATEST_SIGMA)
        if (self.mean is None) == (self.median is None):
            raise InputError("lognormal takes either mean or median, and sigma; give one of the two")
        _check_positive("mean of lognormal", self.mean)
        _check_positive("median of lognormal", self.median)
        _check_positive("most of lognormal", self.most)

    def tokens(self, random: Random, count: int) -> Ints:
        return _to_tokens(self._draw(random, count), self.most)

    def seconds(self, random: Random, count: int) -> Floats:
        return _cut(self._draw(random, count), self.most)

    def _draw(self, random: Random, count: int) -> Floats:
        center = log(self.median) if self.median is not None else log(self.mean or 1.0) - self.sigma**2 / 2
        return random.lognormal(center, self.sigma, count)


@dataclass(frozen=True)
class Geometric:
    """Whole numbers from 1, with the mean `mean`.  Raises InputError."""

    mean: float
    most: int | None = None

    def __post_init__(self) -> None:
        check_number("mean of geometric", self.mean, 1.0, LONGEST)
        if self.most is not None:
            check_whole("most of geometric", self.most, 1, LONGEST)

    def tokens(self, random: Random, count: int) -> Ints:
        return np.minimum(random.geometric(1 / self.mean, count), self.most or LONGEST)


@dataclass(frozen=True)
class Exponential:
    """Seconds with the mean `mean`.  Raises InputError."""

    mean: float
    most: float | None = None

    def __post_init__(self) -> None:
        _check_positive("mean of exponential", self.mean)
        _check_positive("most of exponential", self.most)

    def seconds(self, random: Random, count: int) -> Floats:
        return _cut(random.exponential(self.mean, count), self.most)


class Empirical:
    """One of `values`, in tokens, all alike.  Raises InputError."""

    def __init__(self, values: Sequence[int] | Ints) -> None:
        count = len(values)
        if count == 0:
            raise InputError("empirical lengths of no values; give at least 1")
        self.values = lengths("length", np.asarray(values), count)

    def tokens(self, random: Random, count: int) -> Ints:
        drawn: Ints = self.values[random.integers(0, len(self.values), count)]
        return drawn

    def __repr__(self) -> str:
        return f"Empirical({len(self.values)} lengths, mean {self.values.mean():.4g})"


def tokens_of(name: str, law: object, random: Random, count: int) -> Ints:
    """`count` lengths of `law`, or the number that it is.  Raises InputError if it is neither."""
    if isinstance(law, TokenLaw):
        return law.tokens(random, count)
    if isinstance(law, SecondsLaw):
        raise InputError(f"{name} is {law!r}, a law of seconds; give a law of tokens, such as geometric")
    return np.full(count, _whole(name, law), np.int64)


def seconds_of(name: str, law: object, random: Random, count: int) -> Floats:
    """`count` times of `law`, or the number that it is, to the nanosecond.  Raises InputError."""
    if isinstance(law, SecondsLaw):
        return rounded(np.minimum(law.seconds(random, count), LONGEST_SPAN))
    if isinstance(law, TokenLaw):
        raise InputError(f"{name} is {law!r}, a law of tokens; give a law of seconds, such as exponential")
    if not isinstance(law, int | float):
        raise InputError(f"{name} is {law!r}; give seconds, or a law of them")
    check_number(name, law, 0.0, LONGEST_SPAN)
    return rounded(np.full(count, float(law)))


def _whole(name: str, value: Any) -> int:
    if not is_finite(value) or value != int(value) or not 1 <= value <= LONGEST:
        raise InputError(f"{name} is {value!r}; give a whole number of 1 to {LONGEST}, or a law of lengths")
    return int(value)


def _check_positive(name: str, value: float | None) -> None:
    if value is not None and (not is_finite(value) or not 0 < value <= LONGEST_SPAN):
        raise InputError(f"{name} is {value!r}; give a number over 0, up to {LONGEST_SPAN:g}")


def _to_tokens(values: Floats, most: float | None) -> Ints:
    return np.clip(np.rint(values), 1, most or LONGEST).astype(np.int64)


def _cut(values: Floats, most: float | None) -> Floats:
    return values if most is None else np.minimum(values, most)
