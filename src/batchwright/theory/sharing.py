"""Continuous batching with c slots: who waits, and how long.

    constant step      M/G/c with S = o * step
    growing step       a birth-death chain of requests present: mu(k) = min(k, c) / (E[o] step(min(k, c)))
    bursts             Hayward: so many servers and so much load less as arrivals are peaked

Add `continuous.alignment` (half a step) where admission waits for the end of a step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.theory.checks import count, not_negative, positive, share, steady
from batchwright.theory.lengths import Law, mean, mean_of_least
from batchwright.theory.numbers import Floats
from batchwright.theory.queues import cosmetatos, erlang_c, mmc_wait


@dataclass(frozen=True)
class Sharing:
    """Seconds, and mean requests.  `must_wait`: P(all slots taken); `tpot`: residence per token."""

    wait: float
    residence: float
    tpot: float
    residents: float
    waiting: float
    must_wait: float
    mean_step: float


def spread_factor(load: float, slots: int, cv2: float) -> float:
    """Wait of M/G/c over that of M/M/c for service of squared CV `cv2`.

        cv2 + (1 - cv2) Cosmetatos     cv2 <= 1        (1 + cv2) / 2     beyond

    Within 5 % at load 0.9 and 32 slots.  Source: Cosmetatos 1975; Lee and Longton 1959.
    """
    not_negative("cv2", cv2)
    if cv2 > 1:
        return (1 + cv2) / 2
    return cv2 + (1 - cv2) * cosmetatos(load, slots)


def constant_step_wait(rate: float, slots: int, service: float, cv2: float) -> float:
    """Mean wait for a slot of `slots`, alignment apart; `service`: E[o] * step, `cv2`: of the outputs.

    Source: M/G/c by `spread_factor`.  Raises InputError at load >= 1.
    """
    count("slots", slots)
    load = rate * service / slots
    return mmc_wait(rate, service, slots) * spread_factor(load, slots, cv2)


def wait_quantile(wait: float, must_wait: float, quantile: float) -> float:
    """Seconds that a share `quantile` of requests waits at most: (W / P) ln(P / (1 - quantile)).

    `wait`: mean wait of all, `must_wait`: P(wait > 0).  0 if fewer have to wait.  Exact for M/M/c; to
    10 % otherwise.  Source: exponential tail of M/G/c, Tijms 2003.
    """
    not_negative("wait", wait)
    share("quantile", quantile)
    if must_wait <= 1 - quantile or wait == 0:
        return 0.0
    return wait / must_wait * log(must_wait / (1 - quantile))


def limited_sharing(rate: float, output: float, step: npt.ArrayLike, cv2: float = 1.0) -> Sharing:
    """`step[k-1]`: mean seconds of a step with k = 1..c residents, prompts' share included.

    Exact for exponential outputs and steps that are short against them; else the wait is multiplied by
    `spread_factor` of `cv2`.  Residence = E[min(n, c)] / rate.  Source: birth-death chain of limited
    processor sharing, Avi-Itzhak and Halfin 1988.  Raises InputError at load >= 1.
    """
    steps = np.asarray(step, float)
    positive("rate", rate)
    positive("output", output)
    if steps.ndim != 1 or len(steps) == 0 or not np.all(steps > 0):
        raise InputError("step needs a time greater than 0 for each number of residents 1..c")
    slots = len(steps)
    speeds = np.arange(1, slots + 1) / (output * steps)
    load = rate / float(speeds[-1])
    steady(load, float(speeds[-1]))
    law = _below_full(rate, speeds)
    full = float(law[-1]) / (1 - load)  # P(c or more present)
    law = law / (law[:-1].sum() + full)
    full = float(law[-1]) / (1 - load)
    running = np.arange(slots + 1)
    inside = float(running[:-1] @ law[:-1]) + slots * full
    queue = full * load / (1 - load) * spread_factor(load, slots, cv2)
    busy_steps = law[1:].copy()
    busy_steps[-1] = full
    per_second = busy_steps / steps  # steps of k residents per second
    return Sharing(
        wait=queue / rate,
        residence=inside / rate,
        tpot=inside / rate / output,
        residents=inside,
        waiting=queue,
        must_wait=full,
        mean_step=float(busy_steps.sum() / per_second.sum()),
    )


def _below_full(rate: float, speeds: Floats) -> Floats:
    """P(n present) for n = 0..c, up to a factor."""
    logs = np.concatenate(([0.0], np.cumsum(np.log(rate / speeds))))
    return np.asarray(np.exp(logs - logs.max()), np.float64)


@dataclass(frozen=True)
class Bursty:
    """`wait`: mean seconds, `must_wait`: P(wait > 0), `peakedness`: z, 1 for Poisson."""

    wait: float
    must_wait: float
    peakedness: float


def bursty_wait(rate: float, slots: int, law: Law, step: float, gap_cv2: float, cv2: float) -> Bursty:
    """Mean wait for a slot where gaps have the squared CV `gap_cv2`; constant `step`, alignment apart.

        z = 1 + (gap_cv2 - 1) E[min(S1, S2)] / E[S],   P = C(c / z, a / z)  (Erlang C)
        wait = P (gap_cv2 + cv2) / 2 E[S] / (c - a)

    For independent gaps with gap_cv2 >= 1: -8..+9 % at loads 0.8 and 0.95, gap_cv2 up to 9.  The plain
    factor (gap_cv2 + cv2) / 2 on Poisson's wait is up to 3 times too low.
    Source: Hayward, in Fredericks 1980; Whitt 1993.  Raises InputError at load >= 1 or if gap_cv2 < 1.
    """
    positive("step", step)
    count("slots", slots)
    not_negative("cv2", cv2)
    if not gap_cv2 >= 1:
        raise InputError(f"gap_cv2 is {gap_cv2}, but must be at least 1; use constant_step_wait below")
    service = mean(law) * step
    offered = rate * service
    steady(offered / slots, slots / service)
    peakedness = 1 + (gap_cv2 - 1) * mean_of_least(law) / mean(law)
    must = erlang_c(slots / peakedness, offered / peakedness)
    return Bursty(must * (gap_cv2 + cv2) / 2 * service / (slots - offered), must, peakedness)
