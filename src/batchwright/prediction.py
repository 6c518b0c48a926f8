"""Output lengths as a predictor with a stated error gives them.

    predicted = output * exp(sigma * z)       z standard normal, drawn from the seed and the id

so half of the predictions are too short, and sigma 0 is an oracle.  A policy never sees the true
length: it names a predictor when it begins (`Batch.predictor`), and reads `Request.predicted`, which
the driver writes when a request comes.  A request has the same error under every policy.

Source: the error model of Mitzenmacher, "Scheduling with Predictions and the Price of
Misprediction", ITCS 2020; splitmix64 (Steele, Lea and Flood, OOPSLA 2014) for the draws.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, exp, inf, log, pi, sqrt
from typing import Final

from batchwright.errors import PolicyError
from batchwright.request import Request

Predictor = Callable[[Request], float]  # tokens of output

_BITS: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15  # the step of splitmix64


class Lengths:
    """The true lengths times a lognormal error.  For drivers that know the lengths."""

    def __init__(self, sigma: float, seed: int) -> None:
        self.sigma = sigma
        self.seed = seed

    def __call__(self, r: Request) -> float:
        assert r.true_output > 0, "a live driver refuses this predictor"
        if self.sigma == 0:
            return float(r.true_output)
        return r.true_output * exp(self.sigma * normal(self.seed, r.id))


def predicted(predictor: Predictor, r: Request) -> float:
    """What `predictor`, which may be a user's, says of `r`.  Raises PolicyError if that is no length."""
    ask: Callable[[Request], object] = predictor  # a user's may say anything
    found = ask(r)
    if not isinstance(found, (int, float)) or not 0 <= found < inf:
        raise PolicyError(f"the predictor says {found!r} of request {r.id}; let it say tokens, at least 0")
    return float(found)


def normal(seed: int, id: int) -> float:
    """A standard normal number that belongs to a seed and a request."""
    first = _mixed(_mixed(seed & _BITS) ^ id)
    second = _mixed(first)
    u = ((first >> 11) + 1) / (1 << 53)  # over 0, at most 1
    return sqrt(-2.0 * log(u)) * cos(2.0 * pi * (second >> 11) / (1 << 53))


def _mixed(x: int) -> int:
    """The step of splitmix64: 64 bits that look as if drawn."""
    x = (x + _GOLDEN) & _BITS
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _BITS
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _BITS
    return x ^ (x >> 31)
