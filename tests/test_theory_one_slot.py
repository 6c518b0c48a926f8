"""One slot is M/G/1, a closed loop is M/M/1//N, and steps that are all work are processor sharing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchwright.cost import Constant, Linear
from batchwright.limits import Limits
from batchwright.policies import Orca, Vllm
from batchwright.request import Request
from batchwright.simulator import Simulator
from batchwright.theory import continuous, lengths, queues
from queueing import assert_agrees, poisson, replicate, serve

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

WARM = 500


def waits(random: Any, rate: float, count: int, output: Any, cost: Any, prompt: Any = 1) -> Any:
    """Waits from arrival to the start of service in one slot; gaps and services as columns beside them."""
    arrival = poisson(random, rate, count)
    served = serve(Vllm(async_scheduling=False), cost, arrival, output, prompt, max_num_seqs=1)
    step = cost.each if isinstance(cost, Constant) else cost.base
    service = served.output * step + (cost.prefill * prompt if isinstance(cost, Linear) else 0.0)
    wait = served.finished - arrival - service
    return wait[WARM:], np.diff(arrival), service


@pytest.mark.parametrize(("rate", "count"), [(0.5, 6_000), (0.7, 15_000)])
def test_one_slot_and_one_token_is_md1(rate: float, count: int) -> None:
    def run(random: Any) -> list[float]:
        wait, gaps, service = waits(random, rate, count, 1, Constant(1.0))
        late = [float((wait <= t).mean()) for t in (0.0, 1.5)]
        return [wait.mean(), gaps.mean() - 1 / rate, *late, service.sum() / gaps.sum()]

    found = replicate(run)
    gaps = [found[:, 1]]
    assert_agrees(queues.md1_wait(rate, 1.0), found[:, 0], gaps)
    assert_agrees(queues.md1_wait_at_most(rate, 1.0, 0.0), found[:, 2], gaps)
    assert_agrees(queues.md1_wait_at_most(rate, 1.0, 1.5), found[:, 3], gaps)
    assert_agrees(rate, found[:, 4])  # utilisation


def test_one_slot_and_geometric_lengths_are_pollaczek_khinchine() -> None:
    law, step, rate = lengths.geometric(5.0), 0.2, 0.5
    mean, square = step * lengths.mean(law), step**2 * lengths.second_moment(law)
    assert square == pytest.approx(step**2 * (2 - 0.2) / 0.2**2)

    def run(random: Any) -> list[float]:
        output = lengths.draw(law, 14_000, random)
        wait, gaps, service = waits(random, rate, 14_000, output, Constant(step))
        return [wait.mean(), gaps.mean() - 1 / rate, service.mean() - mean, (service**2).mean() - square]

    found = replicate(run)
    assert_agrees(queues.pollaczek_khinchine(rate, mean, square), found[:, 0], found[:, 1:].T)


def test_one_slot_with_prompts_is_pollaczek_khinchine() -> None:
    outputs, prompts, step, per_token, rate = lengths.uniform(1, 9), (100, 1900), 0.1, 0.0005, 0.5
    mean = step * lengths.mean(outputs) + per_token * 1000
    variance = step**2 * (81 - 1) / 12 + per_token**2 * (1801**2 - 1) / 12
    square = variance + mean**2

    def run(random: Any) -> list[float]:
        output = lengths.draw(outputs, 10_000, random)
        prompt = random.integers(prompts[0], prompts[1] + 1, 10_000)
        wait, gaps, service = waits(random, rate, 10_000, output, Linear(step, per_token), prompt)
        return [wait.mean(), gaps.mean() - 1 / rate, service.mean() - mean, (service**2).mean() - square]

    found = replicate(run)
    assert_agrees(queues.pollaczek_khinchine(rate, mean, square), found[:, 0], found[:, 1:].T)


def test_one_slot_and_exponential_lengths_are_mm1() -> None:
    law, step, rate = lengths.geometric(500.0), 0.002, 0.5

    def run(random: Any) -> list[float]:
        output = lengths.draw(law, 13_000, random)
        wait, gaps, service = waits(random, rate, 13_000, output, Constant(step))
        return [wait.mean(), (wait > 1.5).mean(), gaps.mean() - 1 / rate, service.mean() - 1,
                (service**2).mean() - 2]  # fmt: skip

    found = replicate(run)
    assert_agrees(queues.mm1_wait(rate, 1.0), found[:, 0], found[:, 2:].T)
    assert_agrees(queues.mm1_wait_over(rate, 1.0, 1.5), found[:, 1], found[:, 2:].T)


class ClosedLoop:
    """One slot whose clients think, then come back: the next request is submitted as one starts."""

    def __init__(self, random: Any, clients: int, think: float, step: float, mean: float) -> None:
        self.random, self.think, self.step, self.mean = random, think, step, mean
        self.simulator = Simulator(self, Constant(step), Limits(max_num_seqs=1))
        self.policy = Orca(1).begin(self.simulator.batch)
        self.count = self.ended = 0
        self.residence = 0.0
        for at in random.exponential(think, clients).tolist():
            self.submit(at)

    def submit(self, at: float) -> None:
        output = int(self.random.geometric(1 / self.mean))
        self.simulator.submit(Request(self.count, at, 1, output))
        self.count += 1

    def __call__(self, b: Any) -> None:
        admitted = b.edits
        self.policy(b)
        if b.edits > admitted:
            r = b.newest()
            end = b.now + r.true_output * self.step
            self.residence += end - r.arrival
            self.ended += 1
            self.submit(end + float(self.random.exponential(self.think)))


def test_a_closed_loop_is_mean_value_analysis() -> None:
    clients, think, step, mean, until = 6, 4.0, 0.002, 500.0, 3500.0

    def run(random: Any) -> list[float]:
        loop = ClosedLoop(random, clients, think, step, mean)
        loop.simulator.advance(until)
        return [loop.ended / until, loop.residence / loop.ended]

    found = replicate(run)
    expected = queues.closed_loop(clients, think, step * mean)
    assert_agrees(expected.rate, found[:, 0])
    assert_agrees(expected.residence, found[:, 1])
    assert expected.rate * (expected.residence + think) == pytest.approx(clients)


LAWS = {
    "constant": lengths.constant(100),
    "uniform": lengths.uniform(1, 199),
    "geometric": lengths.geometric(100.0),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_steps_that_are_all_work_are_processor_sharing(law: Any) -> None:
    rate, each = 0.5, 0.01
    cost = Linear(1e-9, prefill=each, decode=each)

    def run(random: Any) -> list[float]:
        count = 5_500
        arrival, output = poisson(random, rate, count), lengths.draw(law, count, random)
        served = serve(Orca(), cost, arrival, output, max_num_seqs=4096)
        after = served.after(WARM)
        square = (output.astype(float) ** 2).mean() / lengths.second_moment(law) - 1
        return [(after.finished - after.arrival).mean(), np.diff(arrival).mean() - 1 / rate,
                output.mean() - 100, square]  # fmt: skip

    found = replicate(run)
    controls = found[:, 1:].T if law[-1] < 0.9 else found[:, 1:2].T
    load = rate * 100 * each
    late = continuous.alignment(each * load / (1 - load))  # steps in flight, over time: each E[n]
    assert_agrees(queues.processor_sharing(rate, 100 * each) + late, found[:, 0], controls)
