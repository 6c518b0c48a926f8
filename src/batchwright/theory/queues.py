"""Queues with one or more servers: what one-slot, constant-step and replicated engines reduce to.

    a = rate * E[S]      offered load        load = a / servers, under 1

All waits are from arrival to the start of service.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, factorial, log, sqrt

import numpy as np

from batchwright.errors import InputError
from batchwright.theory.checks import count, not_negative, positive, share, steady
from batchwright.theory.numbers import Floats, poisson, stationary
from batchwright.theory.roots import left_waiting

STATES = 4000  # of a chain that is solved outright
SETTLED = 1e-9  # probability that a cut chain may lose


# --- one server ------------------------------------------------------------------------


def pollaczek_khinchine(rate: float, service: float, second_moment: float) -> float:
    """Mean wait of M/G/1 in seconds: rate E[S^2] / (2 (1 - rate E[S])).

    `service`: E[S], `second_moment`: E[S^2].  A one-slot engine is this queue exactly, with
    S = prefill + output * step.  Source: Pollaczek 1930, Khinchine 1932.  Raises InputError at load >= 1.
    """
    _check(rate, service)
    positive("second_moment", second_moment)
    return rate * second_moment / (2 * (1 - rate * service))


def md1_wait(rate: float, service: float) -> float:
    """Mean wait of M/D/1: load S / (2 (1 - load)).  Source: Erlang 1909.  Raises InputError at load >= 1."""
    return pollaczek_khinchine(rate, service, service * service)


def md1_wait_at_most(rate: float, service: float, seconds: float) -> float:
    """P(wait <= seconds) of M/D/1, exact.

    (1 - load) sum over k <= t/S of (-rate (t - kS))^k / k! e^(rate (t - kS)); the terms alternate, so
    beyond 15 services it is refused: use `md1_wait_quantile` there.  Source: Erlang 1909.
    Raises InputError at load >= 1, or beyond 15 services.
    """
    _check(rate, service)
    not_negative("seconds", seconds)
    if seconds > 15 * service:
        raise InputError(
            f"seconds is {seconds}, over 15 services of {service}; use md1_wait_quantile, which holds there"
        )
    late = [rate * (seconds - k * service) for k in range(int(seconds / service) + 1)]
    return (1 - rate * service) * sum((-x) ** k / factorial(k) * exp(x) for k, x in enumerate(late))


def md1_wait_quantile(rate: float, service: float, quantile: float) -> float:
    """Seconds that a share `quantile` of M/D/1 waits at most, by its exponential tail.

    P(W > t) ~ (1 - load) / (rate M'(theta) - 1) e^(-theta t) with rate (M(theta) - 1) = theta, M the
    moment generating function of S.  To 2 % of 1 - quantile, for quantiles from 0.9 on and loads from 0.5
    on; 0 if fewer have to wait.  Source: Cramer-Lundberg; Asmussen 2003.  Raises InputError at load >= 1.
    """
    _check(rate, service)
    share("quantile", quantile)
    load = rate * service
    x = _adjustment(load)  # theta S
    factor = (1 - load) / (load * exp(x) - 1)
    return max(log(factor / (1 - quantile)) / x * service, 0.0)


def _adjustment(load: float) -> float:
    """x > 0 with load (e^x - 1) = x, by Newton's method from beyond it."""
    x = 2 * log(1 / load) + 2 * (1 - load) + 1e-3
    for _ in range(100):
        x -= (load * (exp(x) - 1) - x) / (load * exp(x) - 1)
    return x


def mm1_wait(rate: float, service: float) -> float:
    """Mean wait of M/M/1: load / (mu - rate), mu = 1 / service.  Raises InputError at load >= 1."""
    _check(rate, service)
    return rate * service / (1 / service - rate)


def mm1_wait_over(rate: float, service: float, seconds: float) -> float:
    """P(wait > seconds) of M/M/1: load e^(-(mu - rate) seconds).  Raises InputError at load >= 1."""
    _check(rate, service)
    return rate * service * exp(-(1 / service - rate) * seconds)


def processor_sharing(rate: float, service: float) -> float:
    """Mean time in a server that all share alike: E[S] / (1 - load), whatever the law of S.

    What continuous batching tends to where a step's time is all per-request work.
    Source: Sakata, Noguchi and Oizumi 1971; Kleinrock 1976.  Raises InputError at load >= 1.
    """
    _check(rate, service)
    return service / (1 - rate * service)


# --- several servers -------------------------------------------------------------------


def erlang_b(servers: float, offered: float) -> float:
    """P(all servers busy) if nobody waits; `servers` need not be whole.

    1/B(c) = 1 + c/a / B(c - 1), from the fraction of c on; that of the fraction f is the integral
    a int e^(-at) (1 + t)^f dt.  Source: Erlang 1917; Jagerman 1974 for the continuation.
    """
    not_negative("servers", servers)
    positive("offered", offered)
    whole = int(servers)
    inverse = _inverse_blocking(servers - whole, offered)
    for k in range(1, whole + 1):
        inverse = 1 + (servers - whole + k) / offered * inverse
    return 1 / inverse


def _inverse_blocking(servers: float, offered: float) -> float:
    """int e^-u (1 + u/a)^f du over u > 0, f < 1, by the trapezoid rule in ln u."""
    if servers == 0:
        return 1.0
    y = np.linspace(-40.0, 6.0, 4001)
    u = np.exp(y)
    return float((np.exp(-u + y) * (1 + u / offered) ** servers).sum() * (y[1] - y[0]))


def erlang_c(servers: float, offered: float) -> float:
    """P(a request must wait) in M/M/c.  Source: Erlang 1917.  Raises InputError if offered >= servers."""
    positive("servers", servers)
    positive("offered", offered)
    steady(offered / servers)
    blocked = erlang_b(servers, offered)
    return blocked / (1 - offered / servers * (1 - blocked))


def mmc_wait(rate: float, service: float, servers: float) -> float:
    """Mean wait of M/M/c: C(c, a) E[S] / (c - a).  Raises InputError at load >= 1."""
    _check(rate, service, servers)
    return erlang_c(servers, rate * service) * service / (servers - rate * service)


def mdc_wait(rate: float, service: float, servers: int) -> float:
    """Mean wait of M/D/c, exact, by Crommelin's roots (see `roots`).

    Source: Crommelin 1932.  Raises InputError at load >= 1.
    """
    return left_waiting(rate, service, servers) / rate


def cosmetatos(load: float, servers: int) -> float:
    """Wait of M/D/c over that of M/M/c: 1/2 (1 + (1 - load)(c - 1)(sqrt(4 + 5c) - 2) / (16 load c)).

    Within 1.2 % of the exact value at loads from 0.9 on, and from 0.5 on with up to 8 servers; up to 6 %
    too low at 64 to 128 servers between.  At low loads it passes 1 and is cut there.
    Source: Cosmetatos 1975.
    """
    share("load", load)
    count("servers", servers)
    bend = (1 - load) * (servers - 1) * (sqrt(4 + 5 * servers) - 2) / (16 * load * servers)
    return min(0.5 * (1 + bend), 1.0)


def mdc_wait_at_most(rate: float, service: float, servers: int, seconds: float) -> float:
    """P(wait <= seconds) of M/D/c, exact.

    Sum over j < kc of Q(kc - 1 - j) Pois(j; rate (kS - t)) for (k-1) S <= t < k S, Q(j) = P(at most j
    wait).  Source: Franx 2001, Operations Research Letters 29.  Raises InputError at load >= 1.
    """
    _check(rate, service, servers)
    count("servers", servers)
    not_negative("seconds", seconds)
    k = int(seconds / service) + 1
    waiting = np.cumsum(_mdc_waiting(rate * service, servers))
    most = k * servers - 1
    at_most = waiting[np.minimum(np.arange(most, -1, -1), len(waiting) - 1)]
    return float(at_most @ poisson(rate * (k * service - seconds), most))


def _mdc_waiting(offered: float, servers: int) -> Floats:
    """P(j wait) in M/D/c: the number present after S is what was not in service, and Poisson(a) more."""
    size = min(STATES, int(servers + offered + 40 * (1 + sqrt(offered)) / (1 - offered / servers)))
    fresh = poisson(offered, size)
    moves = np.zeros((size + 1, size + 1))
    for present in range(size + 1):
        stay = max(present - servers, 0)
        moves[present, stay:] = fresh[: size + 1 - stay]
    moves[:, -1] += 1 - moves.sum(axis=1)
    law = stationary(moves)
    return np.concatenate(([law[: servers + 1].sum()], law[servers + 1 :]))


# --- a closed loop ---------------------------------------------------------------------


@dataclass(frozen=True)
class ClosedLoop:
    """`rate`: requests/s; `residence`: seconds at the server; `present`: mean requests there."""

    rate: float
    residence: float
    present: float


def closed_loop(clients: int, think: float, service: float) -> ClosedLoop:
    """`clients` that think `think` seconds between requests to one exponential server (M/M/1//N).

    Mean value analysis: R = S (1 + Q), X = n / (Z + R), Q = X R for n = 1..clients.
    Source: Reiser and Lavenberg 1980.
    """
    count("clients", clients)
    not_negative("think", think)
    positive("service", service)
    present = residence = rate = 0.0
    for n in range(1, clients + 1):
        residence = service * (1 + present)
        rate = n / (think + residence)
        present = rate * residence
    return ClosedLoop(rate, residence, present)


def power_of_choices(load: float, choices: int) -> float:
    """Mean time over E[S] when each request joins the shorter of `choices` of many M/M/1 replicas.

    sum over i of load^((d^i - d) / (d - 1)).  Source: Mitzenmacher 2001; Vvedenskaya et al. 1996.
    Raises InputError at load >= 1, or with fewer than 2 choices.
    """
    share("load", load)
    count("choices", choices, 2)
    total, i = 0.0, 1
    while (term := load ** ((choices**i - choices) / (choices - 1))) > 1e-15:
        total += term
        i += 1
    return total


def _check(rate: float, service: float, servers: float = 1) -> None:
    positive("rate", rate)
    positive("service", service)
    positive("servers", servers)
    steady(rate * service / servers, servers / service)
