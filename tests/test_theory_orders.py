"""One slot under an order other than first come is the M/G/1 queue under that discipline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchwright.cost import Constant
from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.policies import Ordered, Priority, Sjf, Srpt, Vllm
from batchwright.request import Request
from batchwright.simulator import Simulator
from batchwright.theory import lengths, ordering, queues
from queueing import assert_agrees, poisson, replicate

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

WARM, COUNT = 200, 2_500
STEP = 0.02
LAW = lengths.uniform(1, 99)
MEAN = STEP * lengths.mean(LAW)
SQUARE = STEP**2 * lengths.second_moment(LAW)
ONE_SLOT = Limits(max_num_seqs=1, max_num_batched_tokens=1 << 20, enable_prefix_caching=False)


def waits(order: Any, arrival: Any, output: Any, priority: Any = None) -> Any:
    """Seconds of each request that it is not served, in one slot whose steps take STEP."""
    classes = np.zeros(len(arrival), int) if priority is None else priority
    rows = zip(arrival.tolist(), output.tolist(), classes.tolist(), strict=True)
    requests = [Request(i, at, 1, o, priority=p) for i, (at, o, p) in enumerate(rows)]
    policy = Ordered(order, Vllm(async_scheduling=False))
    Simulator(policy, Constant(STEP), ONE_SLOT).run(requests)
    return np.array([r.finished - r.arrival for r in requests]) - output * STEP


def first_come_waits(arrival: Any, service: Any) -> Any:
    """Waits if the first to come is served first.  Source: Lindley 1952."""
    found, wait = [0.0], 0.0
    for gap, work in zip(np.diff(arrival).tolist(), service[:-1].tolist(), strict=True):
        wait = max(wait + work - gap, 0.0)
        found.append(wait)
    return np.array(found)


def replications(order: Any, load: float, seed: int = 0) -> tuple[Any, Any]:
    """Mean waits, and controls whose true mean is 0, in rows of replications."""
    rate = load / MEAN
    first_come = queues.pollaczek_khinchine(rate, MEAN, SQUARE)

    def run(random: Any) -> list[float]:
        arrival, output = poisson(random, rate, COUNT), lengths.draw(LAW, COUNT, random)
        wait = waits(order, arrival, output)[WARM:]
        longer = first_come_waits(arrival, output * STEP)[WARM:]
        return [wait.mean(), longer.mean() - first_come, np.diff(arrival).mean() - 1 / rate]

    found = replicate(run, seed=seed)
    return found[:, 0], found[:, 1:].T


def test_shortest_first_by_an_oracle_is_sjf() -> None:
    found, controls = replications(Sjf("exact"), 0.6)
    assert_agrees(ordering.shortest_first_wait(0.6 / MEAN, LAW, STEP), found, controls)


@pytest.mark.parametrize("sigma", [0.5, 1.0])
def test_shortest_first_by_a_predictor_is_spjf(sigma: float) -> None:
    found, controls = replications(Sjf(sigma, seed=7), 0.6)
    assert_agrees(ordering.predicted_first_wait(0.6 / MEAN, LAW, STEP, sigma), found, controls)


def test_who_has_least_left_first_is_srpt() -> None:
    # A prompt is one step, which yields a token, so recomputing is free, and a step is short.
    found, controls = replications(Srpt("exact"), 0.6)
    expected = ordering.shortest_remaining_time(0.6 / MEAN, LAW, STEP) - MEAN
    assert_agrees(expected, found, controls)


def test_priorities_are_cobhams_and_conserve_the_work() -> None:
    # Two classes of 30 and 130 tokens, the longer one more urgent; the sum of load x wait is that of
    # first come, first served.
    rates, tokens = np.array([0.15, 0.5]), np.array([130, 30])
    services = tokens * STEP
    loads, total = rates * services, float(rates.sum())
    expected = ordering.priority_waits(rates.tolist(), services.tolist(), (services**2).tolist())
    first_come = queues.pollaczek_khinchine(total, loads.sum() / total, (rates * services**2).sum() / total)

    def run(random: Any) -> list[float]:
        arrival = poisson(random, total, COUNT)
        priority = (random.random(COUNT) < rates[1] / total).astype(int)
        wait = waits(Priority(), arrival, tokens[priority], priority)[WARM:]
        longer = first_come_waits(arrival, services[priority])[WARM:]
        mean = [wait[priority[WARM:] == k].mean() for k in (0, 1)]
        return [*mean, longer.mean() - first_come, np.diff(arrival).mean() - 1 / total,
                priority.mean() - rates[1] / total]  # fmt: skip

    found = replicate(run)
    for k in (0, 1):
        assert_agrees(expected[k], found[:, k], found[:, 2:].T, within=0.06)
    assert float(loads @ expected) == pytest.approx(loads.sum() * first_come)
    assert_agrees(loads.sum() * first_come, found[:, :2] @ loads, found[:, 2:].T)


def test_the_formulas_are_those_of_the_sources() -> None:
    # Exponential lengths at load 0.8, in units of the mean: times in the system, simulated to 1 % elsewhere.
    law, step = lengths.geometric(500.0), 0.002
    assert 1 + ordering.shortest_first_wait(0.8, law, step) == pytest.approx(2.882, abs=0.002)
    assert ordering.shortest_remaining_time(0.8, law, step) == pytest.approx(2.353, abs=0.002)
    law, step = lengths.geometric(100.0), 0.01
    times = [1 + ordering.predicted_first_wait(0.8, law, step, sigma) for sigma in (0.25, 0.5, 1.0, 2.0)]
    assert times == pytest.approx([2.94, 3.08, 3.37, 3.82], rel=0.01)
    assert ordering.priority_waits([0.5], [1.0], [2.0]) == pytest.approx([queues.mm1_wait(0.5, 1.0)])


def test_a_predictor_is_between_an_oracle_and_first_come() -> None:
    rate = 0.7 / MEAN
    oracle = ordering.shortest_first_wait(rate, LAW, STEP)
    sigmas = (0.01, 0.25, 0.5, 1.0, 2.0, 4.0)
    found = [ordering.predicted_first_wait(rate, LAW, STEP, sigma) for sigma in sigmas]
    first_come = queues.pollaczek_khinchine(rate, MEAN, SQUARE)
    assert oracle == pytest.approx(found[0], rel=0.01)
    assert sorted(found) == found and found[-1] < first_come


def test_a_full_server_has_no_mean_wait() -> None:
    with pytest.raises(InputError, match="load is 1, but must be under 1"):
        ordering.shortest_first_wait(1 / MEAN, LAW, STEP)
    with pytest.raises(InputError, match="must be under 1"):
        ordering.priority_waits([0.5, 0.6], [1.0, 1.0], [1.0, 1.0])
