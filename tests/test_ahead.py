"""Asynchronous scheduling that plans a step when the one before it begins: who comes is seen a step later."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import reference
from batchwright import Constant, Limits, Linear, Request, Simulator
from batchwright.layer_profile import layers
from batchwright.policies import Vllm
from layer_folders import FOLDER
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_properties import LINEAR, assert_over, assert_same, instants, real_valued, vllm_of

COSTS = (Linear(0.0043, 3.1e-5, 1.7e-4, 1.3e-6, 1.1e-8), layers(FOLDER, layers=2))


def simulator_of(load: dict[str, Any], cost: Any, **options: Any) -> Simulator:
    config = load["config"] | {"async_scheduling": True}
    return Simulator(vllm_of(config), cost, limits_of(load["config"]), ahead=True, **options)


def run(load: dict[str, Any], cost: Any, **options: Any) -> tuple[Simulator, list[Request]]:
    simulator, requests = simulator_of(load, cost, **options), requests_of(load)
    simulator.run(requests)
    return simulator, requests


@for_every_seed(60)
def test_it_takes_the_time_that_the_reference_takes(seed: int) -> None:
    load = timed_workload(seed, asynchronous=True)
    expected = reference.timed(load, reference.linear(), ahead=True)
    simulator, requests = run(load, LINEAR)
    assert_over(simulator, requests)
    for r, row in zip(requests, expected.values(), strict=True):
        assert (r.first_token, r.finished) == (row["first_token"], row["finished"])


@for_every_seed(60)
def test_skipped_steps_give_the_bits_of_walked_ones(seed: int) -> None:
    load, cost = real_valued(seed), Random(seed).choice(COSTS)
    assert_same(run(load, cost), run(load, cost, skip=False))


@for_every_seed(25)
def test_a_run_in_pieces_is_the_same_run(seed: int) -> None:
    load, random = real_valued(seed), Random(seed)
    cost = random.choice(COSTS)
    whole = run(load, cost)
    simulator, requests = simulator_of(load, cost, skip=random.random() < 0.8), requests_of(load)
    simulator.feed(requests)
    for until in instants(random, load, whole[0].now):
        simulator.advance(until)
    simulator.advance()
    assert_same(whole, (simulator, requests))


@pytest.mark.parametrize(("ahead", "first"), [(False, 4.0), (True, 5.0)])
def test_who_comes_during_a_step_waits_for_the_one_that_is_planned(ahead: bool, first: float) -> None:
    simulator = Simulator(Vllm(), Constant(1.0), Limits(), ahead=ahead)
    requests = [Request(0, 0.0, 10, 9), Request(1, 2.5, 10, 2)]  # steps end at 1, 2, 3...
    simulator.run(requests)
    assert requests[1].first_token == first and requests[0].first_token == 1.0


def test_who_comes_when_nothing_runs_is_seen_at_once() -> None:
    simulator = Simulator(Vllm(), Constant(1.0), Limits(), ahead=True)
    requests = [Request(0, 0.0, 10, 1), Request(1, 7.5, 10, 1)]
    simulator.run(requests)
    assert requests[1].first_token == 8.5


def test_who_comes_while_the_last_end_is_not_seen_yet_waits_for_nobody() -> None:
    simulator = Simulator(Vllm(), Constant(1.0), Limits(), ahead=True)
    requests = [Request(0, 0.0, 10, 1), Request(1, 0.5, 10, 1)]  # nothing was left to plan ahead
    simulator.run(requests)
    assert requests[1].first_token == 2.0


def test_synchronous_scheduling_plans_nothing_ahead() -> None:
    times = []
    for ahead in (False, True):
        simulator = Simulator(Vllm(async_scheduling=False), Constant(1.0), Limits(), ahead=ahead)
        requests = [Request(0, 0.0, 10, 9), Request(1, 2.5, 10, 2)]
        simulator.run(requests)
        times.append([r.first_token for r in requests])
    assert times[0] == times[1] == [1.0, 4.0]
