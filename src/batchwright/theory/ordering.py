"""One server, Poisson arrivals, and an order other than first come: mean waits, in seconds.

    R             work that an arrival finds in service   rate E[S^2] / 2
    priorities    W_k = R / ((1 - s_(k-1)) (1 - s_k))     s_k: load of classes 1 to k
    sjf           each length is a class of its own
    spjf          W = E[R / (1 - p(y))^2]                 p(y): load of those predicted to be <= y
    srpt          T = E[(rate E[min(S, x)^2]) / (2 (1 - p(x))^2) + sum over t <= x of 1 / (1 - p(t))]

`law` is a law of tokens (`lengths`), and a token takes `step` seconds.

Source: Cobham, Operations Research 2, 1954 (priorities); Schrage and Miller, Operations Research 14,
1966 (srpt); Mitzenmacher, ITCS 2020 (spjf).
"""

from __future__ import annotations

from math import erf, sqrt

import numpy as np

from batchwright.errors import InputError
from batchwright.theory.checks import positive
from batchwright.theory.lengths import Law, second_moment

GRID = 200  # predictions at which an integral is taken


def priority_waits(
    rates: list[float], services: list[float], second_moments: list[float]
) -> list[float]:
    """Mean wait of each class, the most urgent first, if nobody is interrupted.

    Raises InputError unless all classes together load the server less than fully.
    """
    loads = np.cumsum([rate * service for rate, service in zip(rates, services, strict=True)])
    _check_load(float(loads[-1]))
    found = sum(rate * square for rate, square in zip(rates, second_moments, strict=True)) / 2
    before = np.concatenate(([0.0], loads[:-1]))
    return [float(wait) for wait in found / ((1 - before) * (1 - loads))]


def shortest_first_wait(rate: float, law: Law, step: float) -> float:
    """Mean wait if the shortest is served first, first come among equals."""
    loads = _loads(rate, law, step)
    before = np.concatenate(([0.0], loads[:-1]))
    return _residual(rate, law, step) * float((law / ((1 - before) * (1 - loads))).sum())


def predicted_first_wait(rate: float, law: Law, step: float, sigma: float) -> float:
    """Mean wait if the one is first that is predicted to be shortest, with a lognormal error of `sigma`."""
    _loads(rate, law, step)
    positive("sigma", sigma)
    places = np.flatnonzero(law)
    tokens, chances = places.astype(float), law[places]
    edges = np.log(tokens[0]) - 6 * sigma, np.log(tokens[-1]) + 6 * sigma
    below = np.array([_below(y, tokens, sigma) for y in np.linspace(*edges, GRID)])
    share = below @ chances
    load = rate * step * (below @ (chances * tokens))
    middle = (load[1:] + load[:-1]) / 2
    return _residual(rate, law, step) * float((np.diff(share) / (1 - middle) ** 2).sum() + share[0])


def shortest_remaining_time(rate: float, law: Law, step: float) -> float:
    """Mean time from arrival to end if who has least left is served, and interrupts who has more."""
    loads = _loads(rate, law, step)
    before = np.concatenate(([0.0], loads[:-1]))
    tokens = np.arange(len(law), dtype=float)
    over = 1 - np.cumsum(law)
    squares = np.cumsum(tokens**2 * law) + tokens**2 * over
    wait = rate * step**2 * squares / (2 * (1 - before) * (1 - loads))
    own = np.concatenate(([0.0], np.cumsum(step / (1 - before[1:]))))
    return float(((wait + own) * law).sum())


def _below(log_y: float, tokens: Law, sigma: float) -> Law:
    """P(prediction <= y) by true length."""
    z = (log_y - np.log(tokens)) / (sigma * sqrt(2))
    return np.array([0.5 * (1 + erf(x)) for x in z.tolist()])


def _loads(rate: float, law: Law, step: float) -> Law:
    """Load of the requests of at most so many tokens.  Raises InputError if all are too many."""
    positive("rate", rate)
    positive("step", step)
    found: Law = rate * step * np.cumsum(np.arange(len(law)) * law)
    _check_load(float(found[-1]))
    return found


def _residual(rate: float, law: Law, step: float) -> float:
    return rate * step**2 * second_moment(law) / 2


def _check_load(load: float) -> None:
    if not load < 1:
        raise InputError(f"load is {load:.4g}, but must be under 1: the queue would grow for ever")
