"""More requests than seats: the queue by `max_num_seqs`, the wall of the KV cache, and more GPUs.

    seats   c / (E[o] t(c))                  requests/s of c seats; t: seconds of their step
    KV      c* = M / (E[g] / E[o])           the most that M tokens of KV hold, of E[g] / E[o] tokens each
    queue   0.99 n (1 / X - 1 / rate) - c (1 + cv^2) / (2 X)
                                             TTFT P99 of n requests that come faster than X

The last term is what the first c, who find free seats, spare the others: c seats that all begin at once have
ended X t - c (1 - cv^2) / 2 requests at t (renewal theory), cv that of the outputs.

From c* on memory bounds the batch, and a greater limit only preempts.
Source: Little's law for seats and for memory (`theory.continuous`); Cox 1962.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import nan
from typing import Final

import numpy as np

from batchwright.edge.seats import OUTPUT, PROMPT, capacity, load_of, resident_tokens
from batchwright.edge.serve import (
    Progress,
    Report,
    at_once,
    check,
    estimates,
    percentile,
    requests_per_second,
    serve,
)
from batchwright.edge.server import Server
from batchwright.errors import InputError, LimitError
from batchwright.interval import Interval
from batchwright.limits import Limits
from batchwright.run import Run
from batchwright.theory.lengths import cv2, uniform
from batchwright.workload import Workload

LOAD: Final = 0.8  # of what the server does at most, by formula, if no rate is given
FIRST: Final = 16  # seats
MANY: Final = (1, 2, 4, 8)  # times the GPUs,
MOST_GPUS: Final = 8  # up to so many
FIGURES: Final = ("capacity", "ttft_p50", "ttft_p99", "tpot_p50", "preemptions")
NONE: Final = Interval(value=nan, low=nan, high=nan)
STEADY: Final = (0.3, 0.8)  # shares of the ends between which seats are all taken
ROUNDS: Final = 6  # requests of a seat, where all are there at once
CALM: Final = 1.02  # times its ceiling: a rate that is less than so much over it need not make a queue
UNITS: Final = {
    "rate": "rate_per_s",
    "capacity": "capacity_requests_per_s",
    "capacity_form": "capacity_form_requests_per_s",
    "served": "served_requests_per_s",
    "ttft_p50": "ttft_p50_s",
    "ttft_p99": "ttft_p99_s",
    "ttft_p99_form": "ttft_p99_form_s",
    "tpot_p50": "tpot_p50_s",
    "wall": "wall_requests",
    "needed": "needed_seats",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One limit.  Seconds, requests and requests/s.

    capacity     what it does at most, all there at once; `batch`, `kv_peak`, `preempted_full` (preemptions
                 per request) are of that
    waiting      requests that wait when the last one comes; this and all else as they come at `rate`
    ttft_p99_form  by formula, if the rate is over the capacity; else nan
    """

    max_num_seqs: int
    capacity: Interval
    capacity_form: float
    batch: Interval
    kv_peak: Interval
    preempted_full: Interval
    preemptions: Interval
    waiting: Interval
    served: Interval
    ttft_p50: Interval
    ttft_p99: Interval
    ttft_p99_form: float
    tpot_p50: Interval

    @property
    def is_bound_by_memory(self) -> bool:
        """Does the KV cache keep the batch under the limit?"""
        return self.kv_peak.value > 0.95 and self.batch.value < 0.9 * self.max_num_seqs


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """So many GPUs, as one server with `tp` or as replicas; `error`: why it cannot be, else "".

    `rate`: requests/s, as many as GPUs; `capacity`: all there at once.
    """

    gpus: int
    way: str
    error: str
    kv_tokens: int
    rate: float
    capacity: Interval
    ttft_p50: Interval
    ttft_p99: Interval
    tpot_p50: Interval
    preemptions: Interval


@dataclass(frozen=True, kw_only=True)
class MaxNumSeqs:
    """The whole study.  `wall`: requests that the KV cache holds, c*.

    `needed`: seats whose ceiling is the rate, so that a greater limit changes nothing; None: none is enough.
    """

    server: str
    seed: int
    repeat: int
    requests: int
    rate: float
    kv_tokens: int
    wall: float
    needed: int | None
    rows: tuple[Row, ...]
    fleets: tuple[Fleet, ...]


def max_num_seqs(
    server: Server | None = None,
    *,
    requests: int = 1000,
    rate: float | None = None,
    seed: int = 0,
    repeat: int = 1,
    report: Report | None = None,
) -> MaxNumSeqs:
    """`rate`: Poisson arrivals per second; None: 0.8 of what the server can do, by formula.

    Raises InputError, and LimitError if the server cannot hold the model.
    """
    at = server or Server()
    check(requests, repeat, seed, least=100)
    if rate is not None and not 1e-6 <= rate <= 1e6:
        raise InputError(f"rate is {rate!r}; give 1e-06 to 1e+06 requests/s")
    limits = seats_of(at)
    seeds = range(seed, seed + repeat)
    wall = _kv_tokens(at, at.usual[0]) / resident_tokens()
    chosen = LOAD * capacity(at, min(at.usual[0], wall)) if rate is None else rate
    manys = [many for many in MANY if many == 1 or at.tp * many <= MOST_GPUS]
    progress = Progress(report, len(limits) + len(manys))
    rows = tuple(_row(at, each, requests, chosen, seeds, progress) for each in limits)
    return MaxNumSeqs(
        server=str(at),
        seed=seed,
        repeat=repeat,
        requests=requests,
        rate=chosen,
        kv_tokens=_kv_tokens(at, at.usual[0]),
        wall=wall,
        needed=seats_needed(at, chosen, wall),
        rows=rows,
        fleets=tuple(_fleets(at, manys, requests, chosen, seeds, progress)),
    )


def seats_of(server: Server) -> list[int]:
    """16, 32 ... up to vLLM's own limit on the server."""
    most = server.usual[0]
    return [FIRST << i for i in range(most.bit_length()) if FIRST << i <= most]


# --- formulas ---------------------------------------------------------------------------


def seats_needed(server: Server, rate: float, wall: float) -> int | None:
    """The fewest seats whose ceiling is at least `rate`; None if as many as there may be are too few."""
    most = int(min(server.usual[0], wall))
    if capacity(server, most) < rate:
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if capacity(server, middle) >= rate else (middle, high)
    return high


def queue_p99(requests: int, rate: float, capacity: float, seats: float, cv2: float) -> float:
    """TTFT P99 where requests come faster than they are served; nan where they do not."""
    if rate <= CALM * capacity:
        return nan
    return max(0.99 * requests * (1 / capacity - 1 / rate) - seats * (1 + cv2) / (2 * capacity), 0.0)


# --- the simulator ----------------------------------------------------------------------


def _row(server: Server, seats: int, requests: int, rate: float, seeds: range, progress: Progress) -> Row:
    running = min(seats, _kv_tokens(server, seats) / resident_tokens())
    found = []
    for seed in seeds:
        load = load_of(requests, rate, seed)
        many = load_of(max(requests, round(ROUNDS * running)), rate, seed)
        found.append(full(server, many, seats) | _at_rate(server, "vllm", load, seats))
    progress.step()
    form = capacity(server, running)
    return Row(
        max_num_seqs=seats,
        capacity_form=form,
        ttft_p99_form=queue_p99(requests, rate, form, running, cv2(uniform(*OUTPUT))),
        **estimates(found),
    )


def full(server: Server, load: Workload, seats: int) -> dict[str, float]:
    """What it does at most, while seats are full."""
    run = serve("vllm", at_once(load), server.cost, _limits(server, seats))
    state = run.state()
    return {
        "capacity": requests_per_second(run, *STEADY),
        "batch": state.peak_batch,
        "kv_peak": state.kv_peak,
        "preempted_full": _preemptions_per_request(run),
    }


def _at_rate(server: Server, policy: str, load: Workload, seats: int) -> dict[str, float]:
    run = serve(policy, load, server.cost, _limits(server, seats))
    columns = run.requests()
    last = np.array([run.span])
    return {
        "waiting": float(run.waiting.at(last)[0]),
        "served": requests_per_second(run),
        "preemptions": _preemptions_per_request(run),
        "ttft_p50": percentile(columns["ttft_s"], 0.5),
        "ttft_p99": percentile(columns["ttft_s"], 0.99),
        "tpot_p50": percentile(columns["tpot_s"], 0.5),
    }


def _preemptions_per_request(run: Run) -> float:
    return float(run.requests()["preemptions"].mean())


def _limits(server: Server, seats: int) -> Limits:
    return server.limits(PROMPT[1] + OUTPUT[1], seats=seats)


def _kv_tokens(server: Server, seats: int) -> int:
    limits = _limits(server, seats)
    return limits.blocks * limits.block_size


# --- more GPUs --------------------------------------------------------------------------


def _fleets(
    server: Server, manys: list[int], requests: int, rate: float, seeds: range, progress: Progress
) -> Iterator[Fleet]:
    """So many times the GPUs at as many times the rate: one server, and replicas."""
    for many in manys:
        loads = [load_of(requests * many, rate * many, seed) for seed in seeds]
        yield fleet(Server(server.gpu, server.model, server.tp * many), 1, loads, rate * many)
        if many > 1:
            yield fleet(server, many, loads, rate * many)
        progress.step()


def fleet(server: Server, servers: int, loads: list[Workload], rate: float) -> Fleet:
    try:
        kv_tokens, figures = _together(server, servers, loads)
    except LimitError as error:
        kv_tokens, figures = 0, dict.fromkeys(FIGURES, NONE)
        said = str(error)
    else:
        said = ""
    return Fleet(
        gpus=server.tp * servers,
        way=f"tp {server.tp}" if servers == 1 else f"{servers} x tp {server.tp}",
        error=said,
        kv_tokens=kv_tokens,
        rate=rate,
        **figures,
    )


def _together(server: Server, servers: int, loads: list[Workload]) -> tuple[int, dict[str, Interval]]:
    """KV tokens and figures of so many servers; what they do at most is as many times what one does."""
    seats = server.usual[0]
    kv_tokens = _kv_tokens(server, seats)
    policy = "vllm" if servers == 1 else f"replicas(n={servers}, policy=vllm, router=least_loaded)"
    many = load_of(round(ROUNDS * min(seats, kv_tokens / resident_tokens())), 1.0, loads[0].seed)
    most = servers * full(server, many, seats)["capacity"]
    found = estimates([_at_rate(server, policy, load, seats) | {"capacity": most} for load in loads])
    return servers * kv_tokens, {name: found[name] for name in FIGURES}
