"""Static batching: fill a batch of B, run it until its longest output ends.

    wait = (B - 1) / (2 rate)          until the batch is full
         + E[Y] / rate                 until the batch before it has ended (see `roots`)

Below capacity the wait falls as the rate rises: the fill time rules.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from batchwright.theory.checks import count, not_negative, positive, share, steady
from batchwright.theory.expected_max import expected_max, law_of_max
from batchwright.theory.lengths import Law, mean, second_moment
from batchwright.theory.numbers import erlang_by
from batchwright.theory.roots import empty_share, left_waiting


@dataclass(frozen=True)
class BatchTime:
    """Seconds of one batch: mean, and squared coefficient of variation."""

    mean: float
    cv2: float


def batch_seconds(
    law: Law, size: int, base: float, decode: float = 0.0, prefill: float = 0.0, padded: bool = False
) -> float:
    """E[S_B], the mean seconds of a batch of `size` with outputs of `law`.

        prefill + (base + decode B) E[max of B]      padded rows are computed to the end
        prefill + base E[max of B] + decode B E[o]   else

    `base`: of every step, `decode`: per row of a step, `prefill`: of all prompts of the batch.
    Source: the sum of its steps; Yang et al. 2024 (arXiv 2407.05347) for constant steps.
    """
    positive("base", base)
    not_negative("decode", decode)
    not_negative("prefill", prefill)
    longest = expected_max(law, size)
    return prefill + base * longest + decode * size * (longest if padded else mean(law))


def batch_time(law: Law, size: int, step: float, prefill: float = 0.0) -> BatchTime:
    """Mean and CV^2 of a batch whose steps all take `step` seconds: prefill + step * max of `size`."""
    positive("step", step)
    count("size", size)
    top = law_of_max(law, size)
    average = prefill + step * mean(top)
    spread = step * step * (second_moment(top) - mean(top) ** 2)
    return BatchTime(average, spread / average**2)


def capacity(size: int, seconds: float) -> float:
    """Requests/s that batches of `size` can serve: B / E[S_B], the limit of stability."""
    count("size", size)
    positive("seconds", seconds)
    return size / seconds


def waste(law: Law, size: int) -> float:
    """Share of a batch's rows times steps that yields no token: 1 - E[o] / E[max of B]."""
    return 1 - mean(law) / expected_max(law, size)


def fill_wait(rate: float, size: int) -> float:
    """Mean seconds until the batch of a request is full: (B - 1) / (2 rate); P99 is `fill_wait_quantile`.

    Any arrivals with stationary gaps.  Source: the request at place i waits for B - i gaps.
    """
    positive("rate", rate)
    count("size", size)
    return (size - 1) / (2 * rate)


def fill_wait_quantile(rate: float, size: int, quantile: float) -> float:
    """Seconds until full for a share `quantile` of requests: the mixture of Erlang(0..B-1, rate).

    Found by bisection to nine digits.
    """
    positive("rate", rate)
    count("size", size)
    share("quantile", quantile)
    low, high = 0.0, (size + 40 * sqrt(size) + 40) / rate
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        late = float(erlang_by(size, rate, np.array([middle]))[: size - 1].sum())
        low, high = (middle, high) if 1 + late < quantile * size else (low, middle)
    return high


def full_batch_wait(rate: float, size: int, service: float, service_cv2: float = 0.0) -> float:
    """Mean wait of static batching, which starts only full batches.

    Exact for a constant `service` (seconds of a batch).  Else the queueing part is multiplied by
    (1/B + cv2) / (1/B): within 2 % of the total at B = 32 and lengths uniform in 64..512.
    Kingman's bound is no estimate here: it is up to 4 times too high in the queueing part.
    Source: Bailey 1954; the factor is that of E_B/G/1 in heavy traffic.  Raises InputError at load >= 1.
    """
    not_negative("service_cv2", service_cv2)
    behind = left_waiting(rate, service, size) / rate
    return fill_wait(rate, size) + behind * (1 + size * service_cv2)


def greedy_wait(rate: float, size: int, service: float) -> float:
    """Mean wait if a batch of 1..`size` starts whenever the server is free and anybody waits.

    (E[Y] S + rate S^2 / 2) / (rate (S + p0 / rate)), p0 = P(nobody waits when a batch ends); exact for a
    constant `service` whatever the batch.  Source: Bailey 1954; Downton 1955.
    Raises InputError at load >= 1.
    """
    behind = left_waiting(rate, service, size)
    idle = empty_share(rate, service, size) / rate
    return (behind * service + rate * service * service / 2) / (rate * (service + idle))


def periodic_wait(rate: float, size: int, service: float) -> float:
    """Mean wait if a batch leaves every `service` seconds, empty or not: E[Y] / rate + S / 2.

    Source: Bailey 1954.  Raises InputError at load >= 1.
    """
    return left_waiting(rate, service, size) / rate + service / 2


def waits_by_load(size: int, time: BatchTime, loads: list[float]) -> list[tuple[float, float]]:
    """(load, mean wait) of full batches at shares of their capacity: falling, then rising."""
    most = capacity(size, time.mean)
    for load in loads:
        steady(load)
    return [(load, full_batch_wait(load * most, size, time.mean, time.cv2)) for load in loads]
