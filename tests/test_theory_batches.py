"""Static and dynamic batches against the formulas of theory.static and theory.dynamic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchwright.cost import Constant, Linear
from batchwright.policies import Dynamic, Orca, Static
from batchwright.theory import dynamic, lengths, static
from queueing import assert_agrees, poisson, replicate, serve

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

WARM = 500


def mean_wait(served: Any, first_step: float) -> float:
    """From arrival to the start of the batch; the first token comes one step later."""
    after = served.after(WARM)
    return float((after.first_token - after.arrival).mean()) - first_step


@pytest.mark.parametrize(("load", "count"), [(0.5, 4_000), (0.8, 10_000)])
def test_slots_and_one_token_are_greedy_batches(load: float, count: int) -> None:
    rate = 4 * load

    def run(random: Any) -> list[float]:
        arrival = poisson(random, rate, count)
        served = serve(Orca(4), Constant(1.0), arrival, 1, max_num_seqs=4)
        return [mean_wait(served, 1.0), np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    assert_agrees(static.greedy_wait(rate, 4, 1.0), found[:, 0], [found[:, 1]])


@pytest.mark.parametrize(("load", "count"), [(0.75, 5_000), (0.85, 10_000)])
def test_static_waits_to_fill_and_for_the_batch_before(load: float, count: int) -> None:
    rate = 8 * load

    def run(random: Any) -> list[float]:
        arrival = poisson(random, rate, count)
        served = serve(Static(8, padded=False, streamed=True), Constant(1.0), arrival, 1, max_num_seqs=8)
        return [mean_wait(served, 1.0), np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    assert_agrees(static.full_batch_wait(rate, 8, 1.0), found[:, 0], [found[:, 1]])


def test_static_with_random_lengths_waits_as_its_spread_says() -> None:
    law, size, step = lengths.uniform(8, 64), 16, 0.01
    time = static.batch_time(law, size, step)
    rate = 0.9 * static.capacity(size, time.mean)

    def run(random: Any) -> list[float]:
        count = 16_000
        arrival, output = poisson(random, rate, count), lengths.draw(law, count, random)
        policy = Static(size, padded=False, streamed=True)
        served = serve(policy, Constant(step), arrival, output, max_num_seqs=size)
        return [mean_wait(served, step), np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    assert_agrees(static.full_batch_wait(rate, size, time.mean, time.cv2), found[:, 0], [found[:, 1]])


def test_even_arrivals_wait_half_of_the_filling() -> None:
    gap, size = 0.1, 8
    arrival = np.arange(1, 801) * gap
    policy = Static(size, padded=False, streamed=True)
    served = serve(policy, Constant(size * gap * 0.9), arrival, 1, max_num_seqs=size)
    wait = served.first_token - served.arrival - size * gap * 0.9
    assert wait.mean() == pytest.approx((size - 1) * gap / 2)
    assert wait.mean() == pytest.approx(static.fill_wait(1 / gap, size))
    assert wait.reshape(-1, size) == pytest.approx(np.tile(np.arange(size)[::-1] * gap, (100, 1)))


@pytest.mark.parametrize("load", [0.1, 0.5])
def test_batches_without_limit_are_inoues_chain(load: float) -> None:
    each, base = 0.1438, 1.8874
    rate = load / each
    exact = dynamic.greedy(rate, base, each)

    def run(random: Any) -> list[float]:
        arrival = poisson(random, rate, 4_000)
        served = serve(Orca(), Linear(base, prefill=each), arrival, 1, max_num_seqs=4000)
        after = served.after(WARM)
        mean = (after.finished - after.arrival).mean()
        _, sizes = np.unique(after.first_token, return_counts=True)
        return [mean, sizes[1:-1].mean(), np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    assert_agrees(exact.latency, found[:, 0], [found[:, 2]])
    assert_agrees(exact.batch, found[:, 1], [found[:, 2]])
    bound = dynamic.greedy_latency_bound(rate, base, each)
    assert exact.latency <= bound < 1.05 * exact.latency


@pytest.mark.parametrize(("least", "load"), [(1, 0.7), (8, 0.7)])
def test_batches_whose_time_grows_are_the_chain(least: int, load: float) -> None:
    each, base, most = 0.1438, 1.8874, 8
    service = base + each * np.arange(1, most + 1)
    rate = load * most / service[-1]
    policy = Orca(most) if least == 1 else Static(most, padded=False, streamed=True)

    def run(random: Any) -> list[float]:
        arrival = poisson(random, rate, 5_000)
        served = serve(policy, Linear(base, prefill=each), arrival, 1, max_num_seqs=most)
        after = served.after(WARM)
        _, of, sizes = np.unique(after.first_token, return_inverse=True, return_counts=True)
        size = sizes[of]
        wait = after.first_token - after.arrival - service[size - 1]
        return [wait.mean(), np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    assert_agrees(dynamic.batches(rate, service, least).wait, found[:, 0], [found[:, 1]])


@pytest.mark.parametrize(("rate", "window"), [(0.6, 1.0), (0.6, 2.0), (1.2, 2.0)])
def test_a_window_on_the_oldest_is_the_chain_with_ages(rate: float, window: float) -> None:
    most, service = 8, 2.0

    def run(random: Any) -> list[float]:
        arrival = poisson(random, rate, 2_500)
        served = serve(Dynamic(most, window), Constant(service), arrival, 1, max_num_seqs=most)
        size = 2_500 / served.simulator.batch.tick_count
        return [mean_wait(served, service), size, np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    expected = dynamic.batches(rate, np.full(most, service), window=window)
    assert_agrees(expected.wait, found[:, 0], [found[:, 2]])
    assert_agrees(expected.size, found[:, 1], [found[:, 2]])


def test_a_window_alone_forms_batches_as_its_formula_says() -> None:
    rate, most, window = 2.0, 8, 1.0

    def run(random: Any) -> list[float]:
        arrival = poisson(random, rate, 2_000)
        served = serve(Dynamic(most, window), Constant(1e-6), arrival, 1, max_num_seqs=most)
        size = 2_000 / served.simulator.batch.tick_count
        return [mean_wait(served, 1e-6), size, np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    size, wait = dynamic.formation(rate, most, window)
    assert_agrees(wait, found[:, 0], [found[:, 2]])
    assert_agrees(size, found[:, 1], [found[:, 2]])
