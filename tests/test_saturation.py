"""The verdict is quiet below saturation, raised above it, and says so where it cannot tell.

Load is the arrival rate over the rate at which the same requests are served when all come at once.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.run import Run
from batchwright.run.counts import Count
from batchwright.run.saturation import NO_VERDICT, SATURATED, STEADY, UNCLEAR, saturation
from batchwright.workload import Workload, closed
from test_run import case, every_policy

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

COST = bw.Constant(0.025)
SEATS = bw.Limits(max_num_seqs=16, num_kv_blocks=10_000)
BLOCKS = bw.Limits(max_num_seqs=256, num_kv_blocks=400, max_model_len=1000)  # enough for 19 requests
SERVERS: dict[str, tuple[Any, bw.Limits]] = {
    "slots": (bw.vllm(async_scheduling=False), SEATS),
    "blocks": (bw.vllm(), BLOCKS),
    "static": (bw.static(16), SEATS),
    "dynamic": (bw.dynamic(16), SEATS),
}
BURSTS = {"poisson": 1.0, "bursty": 2.0}  # coefficient of variation of the gaps
COUNT = 3000  # requests

every_server = pytest.mark.parametrize("server", SERVERS)
every_burst = pytest.mark.parametrize("burst", BURSTS)


def lengths(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed + 1000)
    return random.integers(10, 500, count), random.integers(16, 129, count)


def served(server: str, arrival: np.ndarray, seed: int) -> Run:
    policy, limits = SERVERS[server]
    load = Workload.from_columns(arrival, *lengths(seed, len(arrival)))
    simulator = bw.Simulator(policy, COST, limits)
    simulator.run(load.requests())
    return Run(server, load, simulator)


@cache
def capacity(server: str) -> float:
    """Requests/s that are served while there is a queue, without the start and the end."""
    ends = np.sort(served(server, np.zeros(COUNT), 1).requests()["finished_s"])
    first, last = COUNT // 5, COUNT - COUNT // 5
    return float((last - first) / (ends[last] - ends[first]))


def arrivals(rate: float, cv: float, seed: int, count: int = COUNT) -> np.ndarray:
    """Gamma gaps, scaled so that the rate of just these arrivals is `rate`."""
    gaps = np.random.default_rng(seed).gamma(1 / cv**2, cv**2, count)
    gaps[0] = 0.0
    return gaps.cumsum() * ((count - 1) / rate / gaps.sum())


def verdicts(server: str, burst: str, load: float, seeds: range) -> Counter[str]:
    rate = load * capacity(server)
    return Counter(
        served(server, arrivals(rate, BURSTS[burst], seed), seed).saturation().kind for seed in seeds
    )


@every_server
@every_burst
def test_the_verdict_is_quiet_at_load_0_9(server: str, burst: str) -> None:
    assert verdicts(server, burst, 0.9, range(2)) == {STEADY: 2}


@every_server
@every_burst
def test_the_verdict_is_raised_at_load_1_05(server: str, burst: str) -> None:
    assert verdicts(server, burst, 1.05, range(10, 12)) == {SATURATED: 2}


@every_server
def test_the_verdict_is_raised_far_above_saturation_and_quiet_far_below(server: str) -> None:
    assert verdicts(server, "bursty", 1.5, range(1)) == {SATURATED: 1}
    assert verdicts(server, "poisson", 0.3, range(1)) == {STEADY: 1}


@pytest.mark.long
@every_server
@every_burst
def test_false_alarms_and_misses_are_rare_over_60_seeds(server: str, burst: str) -> None:
    below, above = (verdicts(server, burst, load, range(100, 160)) for load in (0.9, 1.05))
    print(server, burst, "below:", dict(below), "above:", dict(above))
    assert below[SATURATED] <= 1 and below[STEADY] >= 58
    assert above[SATURATED] >= (57 if burst == "poisson" else 51)


# --- what grows --------------------------------------------------------------------------


def test_the_text_names_the_queue_and_its_numbers() -> None:
    run = served("slots", arrivals(1.5 * capacity("slots"), 1.0, 3), 3)
    found = run.saturation()
    first, last = found.waiting
    assert found.is_saturated and last > 2 * first > 0
    assert str(found).startswith("the queue grows with the trace: ") and f"{last:,.0f} in the last" in str(
        found
    )
    assert found.to_json()["waiting_requests"] == {"first_half": first, "last_quarter": last}
    assert found.last_empty < run.span / 10
    assert run.waiting.mean(0.0, run.span / 2) == first


def test_seats_that_fill_up_before_there_is_a_queue_are_growth_too() -> None:
    random = np.random.default_rng(5)
    load = Workload.from_columns(
        random.exponential(1 / 12, 2000).cumsum(), [1] * 2000, random.integers(60, 141, 2000)
    )  # 1200 tokens/s come; a step of n decodes takes n ms, so 1000 go
    simulator = bw.Simulator(bw.vllm(), bw.Linear(0.001, decode=0.001), bw.Limits(max_num_seqs=2048))
    simulator.run(load.requests())
    found = Run("vllm", load, simulator).saturation()
    assert found.is_saturated and "requests in flight grow" in found.text
    assert found.running[1] > 2 * found.running[0]


# --- no verdict --------------------------------------------------------------------------


@pytest.mark.parametrize("server", ["slots", "static"])
def test_a_load_that_comes_all_at_once_has_no_verdict(server: str) -> None:
    found = served(server, np.zeros(500), 1).saturation()
    assert found.kind == NO_VERDICT and not found.is_saturated and "at once" in found.text


@every_policy
def test_a_short_run_is_too_short_to_tell(name: str) -> None:
    found = case(3, name).run.saturation()
    assert found.kind in (UNCLEAR, NO_VERDICT) and "\n" not in found.text


@every_server
def test_a_closed_loop_is_never_saturated(server: str) -> None:
    policy, limits = SERVERS[server]
    load = closed(clients=64, think=0.5, n=1500, prompt=100, output=50)
    run = bw.compare(load, COST, limits, {"mine": policy})["mine"]
    assert run.saturation().kind == STEADY and run.waiting.mean(0.0, run.span) > 1


def test_a_queue_that_is_never_empty_and_does_not_grow_is_unclear() -> None:
    times = np.linspace(0.0, 1000.0, 1001)
    waiting = Count(times=times, values=np.full(1001, 7))
    found = saturation(waiting, waiting, 1000.0, 5000)
    assert found.kind == UNCLEAR and "does not clearly grow" in found.text
    assert saturation(waiting, waiting, 1000.0, 5000, batch=8).kind == STEADY


# --- counts ------------------------------------------------------------------------------


def test_counts_are_step_functions() -> None:
    count = Count(times=np.array([1.0, 2.0, 4.0]), values=np.array([3, 1, 0]))
    assert count.at(np.array([0.5, 1.0, 1.9, 2.0, 9.0])).tolist() == [0, 3, 3, 1, 0]
    assert count.area(3.0) == 4.0 and count.mean(1.0, 3.0) == 2.0 and count.mean(5.0, 6.0) == 0.0
    assert (count.least(0.0, 3.0), count.greatest(0.0, 3.0), count.least(1.0, 3.0)) == (0, 3, 1)
    assert count.last_below(2, 3.0) == 3.0 and count.last_below(1, 3.0) == 0.0
    assert count.last_below(1, 9.0) == 9.0


@pytest.mark.parametrize("name", ["synchronous", "padded", "dynamic", "orca"])
def test_who_waits_and_who_runs_are_those_of_the_steps(name: str) -> None:
    for seed in range(6):
        run = case(seed, name).run
        columns = run.steps()
        starts = np.unique(columns["start_s"], return_index=True)[1]
        ends = np.append(starts[1:], len(columns["step"])) - 1  # the last of steps that start together
        running = run.running.at(columns["start_s"][ends])
        expected = columns["running"][ends] + columns["finished"][ends]
        if run.summary.num_preemptions == 0:
            assert np.array_equal(running, expected)
            assert np.array_equal(run.waiting.at(columns["start_s"][ends]), columns["waiting"][ends])
