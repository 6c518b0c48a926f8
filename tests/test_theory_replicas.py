"""Replicas with one slot each are the servers of queueing theory, and their router is its discipline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from batchwright.cluster import Cluster
from batchwright.cluster.routers import Central, PowerOfTwo, Random, RoundRobin
from batchwright.cost import Constant, Linear
from batchwright.limits import Limits
from batchwright.policies import Vllm
from batchwright.request import Request
from batchwright.simulator import Simulator
from batchwright.theory import lengths, queues
from queueing import assert_agrees, poisson, replicate

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

ONE_SLOT = Limits(max_num_seqs=1, max_num_batched_tokens=64, enable_prefix_caching=False)
SYNC = Vllm(async_scheduling=False)
STEP, LAW = 0.002, lengths.geometric(500.0)  # services that are exponential, of mean 1


def precisely(number: int, within: float, longer: int, closer: float) -> Any:
    """So many requests in each replication notice an error of `within`; with -m long, more a smaller one."""
    slow = pytest.param(longer, closer, marks=pytest.mark.long)
    return pytest.mark.parametrize(("number", "within"), [(number, within), slow])


@dataclass(frozen=True)
class Served:
    """Waits from arrival to the start of service, in seconds, of the requests after the first `warm`."""

    wait: Any
    controls: list[float]  # of mean 0


def served(random: Any, router: Any, count: int, rate: float, number: int, is_constant: bool) -> Served:
    """`number` requests at `rate` on `count` replicas, whose services are 1 s, or exponential of mean 1 s."""
    arrival = poisson(random, rate, number)
    output = np.ones(number, int) if is_constant else lengths.draw(LAW, number, random)
    cost = Constant(1.0 if is_constant else STEP)
    finished = ends(router, count, cost, arrival, output)
    service = output * cost.each
    warm = number // 20
    controls = [np.diff(arrival).mean() * rate - 1]
    if not is_constant:
        controls += [service.mean() - 1, (service**2).mean() - 2]
    return Served((finished - arrival - service)[warm:], controls)


def ends(router: Any, count: int, cost: Any, arrival: Any, output: Any, limits: Limits = ONE_SLOT) -> Any:
    """When each request ends."""
    rows = zip(arrival.tolist(), output.tolist(), strict=True)
    requests = [Request(i, at, 1, tokens) for i, (at, tokens) in enumerate(rows)]
    Cluster([Simulator(SYNC, cost, limits) for _ in range(count)], router).run(requests)
    return np.array([r.finished for r in requests])


@precisely(2_000, within=0.2, longer=40_000, closer=0.05)
def test_the_central_queue_with_constant_services_is_mdc(number: int, within: float) -> None:
    """And the law of its waits is Franx's."""
    count, rate = 4, 2.8

    def run(random: Any) -> list[float]:
        found = served(random, Central(), count, rate, number, is_constant=True)
        late = [float((found.wait <= t + 1e-9).mean()) for t in (0.0, 0.5)]
        return [found.wait.mean(), *late, *found.controls]

    found = replicate(run)
    controls = [found[:, 3]]
    assert_agrees(queues.mdc_wait(rate, 1.0, count), found[:, 0], controls, within)
    assert_agrees(queues.mdc_wait_at_most(rate, 1.0, count, 0.0), found[:, 1], controls, within / 2)
    assert_agrees(queues.mdc_wait_at_most(rate, 1.0, count, 0.5), found[:, 2], controls, within / 2)


@precisely(2_000, within=0.3, longer=40_000, closer=0.06)
def test_the_central_queue_with_exponential_services_is_mmc(number: int, within: float) -> None:
    count, rate = 4, 2.6

    def run(random: Any) -> list[float]:
        found = served(random, Central(), count, rate, number, is_constant=False)
        return [found.wait.mean(), (found.wait > 1e-9).mean(), *found.controls]

    found = replicate(run)
    controls = list(found[:, 2:].T)
    assert_agrees(queues.mmc_wait(rate, 1.0, count), found[:, 0], controls, within)
    assert_agrees(queues.erlang_c(count, rate), found[:, 1], controls, within / 2)


def test_the_formulas_are_those_of_four_replicas_at_a_load_of_85_per_cent() -> None:
    """Simulated elsewhere, event by event: 1.124, 0.691 and 0.578."""
    assert queues.mmc_wait(3.4, 1.0, 4) == pytest.approx(1.149, abs=0.001)
    assert queues.erlang_c(4, 3.4) == pytest.approx(0.689, abs=0.001)
    assert queues.mdc_wait(3.4, 1.0, 4) == pytest.approx(0.589, abs=0.001)


def test_round_robin_with_constant_services_is_the_central_queue_request_by_request() -> None:
    """The k-th request waits for the one c before it in both.  Source: E_c/D/1 is M/D/c; Crommelin 1932."""
    arrival = poisson(np.random.default_rng(3), 3.4, 3_000)
    output = np.ones(len(arrival), int)
    one, other = (ends(router, 4, Constant(1.0), arrival, output) for router in (RoundRobin(), Central()))
    assert one == pytest.approx(other, abs=1e-9)
    assert (one - arrival).max() > 2.0  # some wait


@pytest.mark.parametrize("is_constant", [True, False], ids=["constant", "exponential"])
@precisely(2_500, within=0.2, longer=40_000, closer=0.05)
def test_random_routing_is_a_queue_for_each_replica(is_constant: bool, number: int, within: float) -> None:
    count, load = 4, 0.6

    def run(random: Any) -> list[float]:
        router = Random(seed=int(random.integers(1 << 30)))
        found = served(random, router, count, count * load, number, is_constant)
        return [found.wait.mean(), *found.controls]

    found = replicate(run)
    expected = queues.md1_wait(load, 1.0) if is_constant else queues.mm1_wait(load, 1.0)
    assert_agrees(expected, found[:, 0], list(found[:, 1:].T), within)


@precisely(2_000, within=0.06, longer=20_000, closer=0.03)
def test_two_choices_among_many_replicas_are_mitzenmachers(number: int, within: float) -> None:
    count, load = 60, 0.7

    def run(random: Any) -> list[float]:
        router = PowerOfTwo(seed=int(random.integers(1 << 30)))
        found = served(random, router, count, count * load, number, is_constant=False)
        return [found.wait.mean() + 1, *found.controls]

    found = replicate(run)
    # 60 replicas are not infinitely many: by a term of order 1/n they take 1 to 2 % longer
    expected, controls = queues.power_of_choices(load, 2), list(found[:, 1:].T)
    assert_agrees(expected, found[:, 0], controls, within, error=0.02)


def test_the_better_the_router_knows_its_replicas_the_shorter_are_waits() -> None:
    def mean(router: Any) -> float:
        random = np.random.default_rng(11)
        return float(served(random, router, 4, 3.2, 2_000, is_constant=False).wait.mean())

    waits = [mean(router) for router in (Random(), RoundRobin(), PowerOfTwo(), Central())]
    assert waits == sorted(waits, reverse=True)


@pytest.mark.parametrize("router", [Random(), RoundRobin(), PowerOfTwo(), Central()], ids=repr)
def test_work_is_conserved(router: Any) -> None:
    """Under a cost that is all work, the replicas are busy for the same seconds, whoever serves what."""
    random = np.random.default_rng(5)
    arrival, output = poisson(random, 6.0, 400), random.integers(1, 40, 400)
    cost = Linear(2**-20, prefill=2**-6, decode=2**-6)
    requests = [
        Request(i, at, 1, n) for i, (at, n) in enumerate(zip(arrival.tolist(), output.tolist(), strict=True))
    ]
    cluster = Cluster([Simulator(SYNC, cost, Limits(max_num_seqs=8)) for _ in range(3)], router)
    cluster.run(requests)
    busy = steps = 0.0
    for one in cluster.replicas:
        log = one.simulator.log
        times = np.array(log.seconds("times"))
        begins = np.concatenate(([0.0], times))[:-1]
        first = np.cumsum(log.column("steps")) - np.array(log.column("steps"))
        jumps = dict(zip(log.jumps, log.jump_times, strict=True))
        begins = np.array([jumps.get(int(tick), begin) for tick, begin in zip(first, begins, strict=True)])
        busy += float((times - begins).sum())
        steps += sum(log.column("steps"))
    assert busy == pytest.approx(float(output.sum()) * 2**-6 + steps * 2**-20, rel=1e-9)
