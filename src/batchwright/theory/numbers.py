"""Poisson and Erlang probabilities, and stationary laws of chains, on NumPy alone."""

from __future__ import annotations

from math import log, log1p

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def log_factorials(most: int) -> Floats:
    """ln k! for k = 0..most."""
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, most + 1)))))


def poisson(mean: float, most: int) -> Floats:
    """P(k) for k = 0..most."""
    if mean == 0:
        return _certain(0, most)
    k = np.arange(most + 1)
    found: Floats = np.exp(k * log(mean) - mean - log_factorials(most))
    return found


def _certain(value: int, most: int) -> Floats:
    law = np.zeros(most + 1)
    law[value] = 1.0
    return law


def arrivals(mean: float, excess: float, most: int) -> Floats:
    """P(k arrivals), k = 0..most, of a Poisson number whose mean is itself random.

    `excess`: the variance of that mean (0: Poisson).  Its law is taken as Gamma, which makes the
    number negative binomial with the right mean and variance.
    """
    if excess <= 1e-12 * mean * mean:
        return poisson(mean, most)
    shape = mean * mean / excess
    return negative_binomial(shape, mean / (mean + shape), most)


def negative_binomial(shape: float, share: float, most: int) -> Floats:
    """P(k) ~ Gamma(k + shape) / k! share^k (1 - share)^shape, for k = 0..most."""
    k = np.arange(1, most + 1)
    steps = np.log((k - 1 + shape) / k) + log(share)
    found: Floats = np.exp(shape * log1p(-share) + np.concatenate(([0.0], np.cumsum(steps))))
    return found


def erlang_by(stages: int, rate: float, seconds: Floats) -> Floats:
    """P(Erlang(k, rate) <= seconds) for k = 1..stages: one row each."""
    mean = rate * np.asarray(seconds, float)
    k = np.arange(stages)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.exp(k * np.log(mean) - mean - log_factorials(max(stages - 1, 0))[:, None])
    terms = np.where(mean == 0, (k == 0) * 1.0, terms)
    found: Floats = np.clip(1 - np.cumsum(terms, axis=0), 0.0, 1.0)
    return found


def stationary(moves: Floats) -> Floats:
    """The stationary law of the chain whose transition probabilities are `moves`."""
    count = len(moves)
    system = np.eye(count) - moves.T
    system[-1] = 1.0
    law = np.linalg.solve(system, _certain(count - 1, count - 1))
    law = np.maximum(law, 0.0)
    return np.asarray(law / law.sum(), np.float64)
