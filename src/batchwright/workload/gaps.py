"""Arrival processes: `count` arrivals in seconds, the first at 0, with these gaps or this rate.

    Poisson        exponential gaps, CV 1
    Gamma          shape 1/cv^2, scale cv^2/rate: any CV
    Weibull        shape k, scale 1/(rate G(1 + 1/k)), G the gamma function;
                   CV^2 = G(1 + 2/k) / G(1 + 1/k)^2 - 1
    constant       gaps of 1/rate
    on-off         Poisson at rate_on for `on` seconds, at rate_off for `off` seconds, and so on
    diurnal        Poisson at rate (1 - (peak - 1) cos(2 pi t / period)): a day that starts at its lowest

The last two are Poisson processes of rate 1 in operational time, S(i), brought back through the
integral of the rate, L(t(i)) = S(i).  Source: Cinlar 1975, chapter 4.
"""

from __future__ import annotations

from math import exp, lgamma, log, pi
from typing import Final

import numpy as np

from batchwright.errors import InputError
from batchwright.workload.columns import Floats
from batchwright.workload.laws import Random, Seconds, seconds_of
from batchwright.workload.streams import rounded, sum_gaps

_HALVINGS: Final = 100
_SHAPES: Final = (0.02, 200.0)  # of a Weibull law: CV from 1e12 to 0.006
_MOST_PHASES: Final = 10_000_000
_ENOUGH_PHASES: Final = 10_000  # to tell how many more it takes, within a factor of 2


def poisson_arrivals(random: Random, count: int, rate: float) -> Floats:
    """Exponential gaps.  Raises InputError, as all here, on a load of over ten years."""
    return sum_gaps(random.exponential(1 / rate, count - 1))


def gamma_arrivals(random: Random, count: int, rate: float, cv: float) -> Floats:
    """Gamma gaps with the coefficient of variation `cv`."""
    shape = 1 / cv**2
    return sum_gaps(random.gamma(shape, 1 / (shape * rate), count - 1))


def weibull_arrivals(random: Random, count: int, rate: float, shape: float) -> Floats:
    """Weibull gaps with `shape`."""
    scale = exp(-lgamma(1 + 1 / shape)) / rate
    return sum_gaps(scale * random.weibull(shape, count - 1))


def constant_arrivals(count: int, rate: float) -> Floats:
    """Equal gaps; each arrival is rounded by itself, so that no error of the gaps adds up."""
    sum_gaps(np.full(count - 1, 1 / rate))  # refuses a load that is too long
    return rounded(np.arange(count) / rate)


def onoff_arrivals(
    random: Random, phases: Random, count: int, rate_on: float, rate_off: float, on: Seconds, off: Seconds
) -> Floats:
    """Two rates in turn.  `phases`: the stream that the lengths of the phases are drawn from.

    Raises InputError on too many phases.
    """
    work = np.concatenate((np.zeros(1), np.cumsum(random.exponential(1.0, count - 1))))
    starts, done, rates = np.zeros(1), np.zeros(1), np.zeros(0)
    while done[-1] <= work[-1]:
        known = len(rates)
        will_be_many = known > _ENOUGH_PHASES and known * work[-1] > 2 * _MOST_PHASES * done[-1]
        if known > _MOST_PHASES or will_be_many:
            raise InputError(f"{count} requests take over {_MOST_PHASES} phases; raise rate_on, or on")
        pieces = 64 + len(rates) // 2  # of both kinds, half as many again every time
        lengths = np.empty(2 * pieces)
        lengths[0::2] = seconds_of("on", on, phases, pieces)
        lengths[1::2] = seconds_of("off", off, phases, pieces)
        more = np.tile((rate_on, rate_off), pieces)
        rates = np.concatenate((rates, more))
        starts = np.concatenate((starts, starts[-1] + np.cumsum(lengths)))
        done = np.concatenate((done, done[-1] + np.cumsum(lengths * more)))
    phase = np.searchsorted(done, work, side="right") - 1
    times = starts[phase] + (work - done[phase]) / rates[phase]
    return sum_gaps(np.diff(times))


def diurnal_arrivals(random: Random, count: int, rate: float, peak: float, period: float) -> Floats:
    """A rate that swings like a cosine, found by bisection of its integral."""
    work = np.concatenate((np.zeros(1), np.cumsum(random.exponential(1.0, count - 1))))
    swing = (peak - 1) * period / (2 * pi)
    low, high = np.maximum(work / rate - swing, 0.0), work / rate + swing
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_early = rate * (middle - swing * np.sin(middle * (2 * pi / period))) < work
        low, high = np.where(is_early, middle, low), np.where(is_early, high, middle)
    return sum_gaps(np.maximum(np.diff(high, prepend=0.0)[1:], 0.0))


def weibull_shape(squared_cv: float) -> float:
    """The shape of the Weibull law with this squared CV, which falls as the shape grows, to 15 digits."""
    low, high = map(log, _SHAPES)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        k = exp(middle)
        is_wider = lgamma(1 + 2 / k) - 2 * lgamma(1 + 1 / k) > log(1 + squared_cv)
        low, high = (middle, high) if is_wider else (low, middle)
    return exp(low)
