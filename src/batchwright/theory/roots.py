"""The roots behind full batches: what is left waiting after a batch of B has been picked up.

Every `service` seconds the batch takes up to B of those who wait, and Poisson(m) more come, m =
rate * service < B.  The number Y left after a pick-up has the generating function with the roots

    z_k = w_k exp(m (z_k - 1) / B),   w_k = e^(2 pi i k / B),   k = 1..B-1
    E[Y] = sum of 1 / (1 - z_k)  -  (B (B - 1) - m^2) / (2 (B - m))

It is also the mean queue of M/D/B.  Source: Crommelin 1932; Bailey 1954, JRSS B 16.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from batchwright.theory.checks import count, positive, steady

ROUNDS = 200  # of the fixed point, which contracts by load |z|; Newton's method then finishes


def crommelin_roots(arrivals: float, size: int) -> Any:
    """The roots z_1..z_(B-1) inside the unit circle, complex; `arrivals`: m, those of one service."""
    count("size", size)
    positive("arrivals", arrivals)
    steady(arrivals / size)
    load = arrivals / size
    unit = np.exp(2j * np.pi * np.arange(1, size) / size)
    z = np.zeros(size - 1, complex)
    for _ in range(ROUNDS):
        z = unit * np.exp(load * (z - 1))
    for _ in range(20):
        image = unit * np.exp(load * (z - 1))
        z = z - (z - image) / (1 - load * image)
    return z


def left_waiting(rate: float, service: float, size: int) -> float:
    """E[Y]: requests that still wait just after a pick-up of `size`.  Raises InputError at load >= 1."""
    positive("rate", rate)
    positive("service", service)
    m = rate * service
    steady(m / size, size / service)
    z = crommelin_roots(m, size)
    found = float((1 / (1 - z)).sum().real) - (size * (size - 1) - m * m) / (2 * (size - m))
    return max(found, 0.0)


def empty_share(rate: float, service: float, size: int) -> float:
    """P(nobody waits when a batch ends) for greedy batches of 1..`size`: (B - m) prod z_k / (z_k - 1).

    Source: Bailey 1954.  Raises InputError at load >= 1.
    """
    m = rate * service
    z = crommelin_roots(m, size)
    return float((size - m) * np.prod(z / (z - 1)).real)
