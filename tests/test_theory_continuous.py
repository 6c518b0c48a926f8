"""Continuous batching and its gain against theory.continuous, sharing and gain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchwright.cost import Constant, Linear
from batchwright.policies import Orca, Static, Vllm
from batchwright.theory import continuous, gain, lengths, sharing
from queueing import Served, assert_agrees, poisson, replicate, serve

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

SYNCHRONOUS = Vllm(async_scheduling=False)


def finished_rate(served: Served, start: float, end: float) -> float:
    """Requests/s that ended between two instants."""
    inside = (served.finished > start) & (served.finished <= end)
    return float(inside.sum()) / (end - start)


LAWS = {"uniform": lengths.uniform(1, 99), "geometric": lengths.geometric(50.0)}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_residents_at_constant_steps_are_littles_law(law: Any) -> None:
    rate, step = 7.5, 0.02
    expected = continuous.mean_residents(rate, 50.0, step)
    assert expected == pytest.approx(7.5)
    late = continuous.alignment(step, busy=1 - continuous.constant_step_idle(expected))

    def run(random: Any) -> list[float]:
        arrival, output = poisson(random, rate, 1_200), lengths.draw(law, 1_200, random)
        served = serve(Orca(), Constant(step), arrival, output, max_num_seqs=1000)
        present = (served.finished - served.arrival).sum() / arrival[-1]
        return [present, np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    assert_agrees(expected + rate * late, found[:, 0], [found[:, 1]])


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_growing_steps_have_the_product_form(law: Any) -> None:
    base, each, output = 0.01, 0.001, 50.0
    rate = 0.5 / (output * each)
    found_form = continuous.residents(rate, output, base, output * each)
    step = continuous.mean_step(rate, base, output * each)
    in_steps = rate * output * step / (1 - 0.5)  # variance of the residents, over steps
    late = continuous.alignment(step, each * each * in_steps)
    assert found_form.residence == pytest.approx(output * (base + each) / 0.5)
    assert found_form.law.sum() == pytest.approx(1)

    def run(random: Any) -> list[float]:
        arrival, drawn = poisson(random, rate, 2_500), lengths.draw(law, 2_500, random)
        served = serve(Orca(), Linear(base, prefill=each, decode=each), arrival, drawn, max_num_seqs=1000)
        after = served.after(500)
        tpot = (after.finished - after.first_token).sum() / (after.output - 1).sum()
        return [(after.finished - after.arrival).mean(), tpot, np.diff(arrival).mean() * rate - 1,
                drawn.mean() - output]  # fmt: skip

    found = replicate(run)
    assert_agrees(found_form.residence + late, found[:, 0], found[:, 2:].T)
    assert_agrees(found_form.tpot, found[:, 1], found[:, 2:].T)


@pytest.mark.parametrize("cost", [Constant(0.025), Linear(0.006, 2e-5, 1e-4, 5e-8)])
def test_saturated_slots_serve_their_ceiling(cost: Any) -> None:
    law, slots, prompt, count = lengths.uniform(1, 63), 32, 500, 3_000
    output = lengths.mean(law)
    k = np.arange(1, len(law))
    read = float(law[1:] @ ((k - 1) * prompt + (k - 1) * (k - 2) / 2))
    if isinstance(cost, Linear):
        each = continuous.work(prompt, output - 1, read, cost.prefill, cost.decode, cost.context)
        ceiling = continuous.slots_ceiling(slots, output, cost.base, each)
    else:
        ceiling = continuous.slots_ceiling(slots, output, cost.each)

    def run(random: Any) -> list[float]:
        drawn = lengths.draw(law, count, random)
        served = serve(SYNCHRONOUS, cost, np.zeros(count), drawn, prompt, max_num_seqs=slots)
        return [finished_rate(served, 0.1 * count / ceiling, 0.9 * count / ceiling)]

    assert_agrees(ceiling, replicate(run)[:, 0])


def test_equal_requests_that_reserve_their_peak_fill_the_cache_exactly() -> None:
    prompt, output, step, kv = 100, 25, 0.02, 4200
    fits = kv // (prompt + output)
    served = serve(Orca(), Constant(step), np.zeros(20 * fits), output, prompt, max_num_seqs=1000,
                   block_size=1, num_kv_blocks=kv, max_model_len=prompt + output)  # fmt: skip
    assert 20 * fits / served.finished.max() == pytest.approx(fits / (output * step))
    area = continuous.reserved_area([prompt], [output], [output])
    ceiling = continuous.kv_ceiling(fits * (prompt + output), step, area)
    assert 20 * fits / served.finished.max() == pytest.approx(ceiling)


def test_a_large_cache_serves_the_ceiling_of_its_tokens() -> None:
    law, prompt, step, kv, count = lengths.uniform(10, 90), 100, 0.02, 20_000, 6_000

    def run(random: Any) -> list[float]:
        output = lengths.draw(law, count, random)
        served = serve(SYNCHRONOUS, Constant(step), np.zeros(count), output, prompt, max_num_seqs=2000,
                       block_size=1, num_kv_blocks=kv)  # fmt: skip
        end = served.finished.max()
        area = continuous.kv_area(np.full(count, prompt), output)
        return [finished_rate(served, 0.1 * end, 0.8 * end) / continuous.kv_ceiling(kv, step, area)]

    share = replicate(run, 3)[:, 0]
    assert np.all((share > 0.97) & (share < 1.01)), share


def test_the_articles_workload_takes_the_times_of_the_formulas() -> None:
    law, count, slots, step = lengths.uniform(64, 512), 100, 32, 0.025
    static, served = gain.static_time(law, count, slots, step), gain.continuous_time(law, count, slots, step)
    assert static == pytest.approx(47.98, abs=0.01) and served == pytest.approx(29.01, abs=0.01)

    def run(random: Any) -> list[float]:
        output = lengths.draw(law, count, random)
        policies = (Static(slots, padded=False), SYNCHRONOUS)
        return [serve(policy, Constant(step), np.zeros(count), output, max_num_seqs=slots).finished.max()
                for policy in policies] + [output.mean() - 288]  # fmt: skip

    found = replicate(run, 200)
    assert_agrees(static, found[:, 0], [found[:, 2]])
    assert_agrees(served, found[:, 1], [found[:, 2]], error=0.01)


@pytest.mark.parametrize("law", [lengths.uniform(64, 512), lengths.geometric(288.0, 512)])
def test_the_gain_is_the_formulas(law: Any) -> None:
    count, slots = 1_600, 32

    def run(random: Any) -> list[float]:
        output = lengths.draw(law, count, random)
        policies = (Static(slots, padded=False), SYNCHRONOUS)
        static, served = (
            serve(policy, Constant(0.025), np.zeros(count), output, max_num_seqs=slots).finished.max()
            for policy in policies
        )
        return [static / served]

    found = replicate(run)[:, 0]
    assert_agrees(1 + gain.gain_at_once(law, count, slots), found)
    assert gain.saturated_gain(law, slots) == pytest.approx(gain.gain_at_once(law, 10**7, slots), abs=1e-3)


def test_the_gain_with_prompts_and_growing_steps_is_the_formulas() -> None:
    law, count, slots, prompt = lengths.uniform(64, 512), 2_400, 32, 1000
    cost = Linear(0.0125, prefill=1e-4, decode=0.0125 / slots)

    def run(random: Any) -> list[float]:
        output = lengths.draw(law, count, random)
        static, served = (
            serve(policy, cost, np.zeros(count), output, prompt, max_num_seqs=slots).finished.max()
            for policy in (Static(slots, padded=False), SYNCHRONOUS)
        )
        return [static / served]

    each = cost.prefill * prompt - cost.decode  # its first token is no decode
    expected = 1 + gain.saturated_gain(law, slots, cost.base, cost.decode, each)
    assert_agrees(expected, replicate(run)[:, 0], error=0.01)  # the last drain


def test_growing_steps_in_slots_are_limited_sharing() -> None:
    base, each, output, slots = 0.01, 0.0003, 100.0, 16
    step = base + each * np.arange(1, slots + 1)
    rate = 0.75 * slots / (output * step[-1])
    law = lengths.geometric(output)
    expected = sharing.limited_sharing(rate, output, step, lengths.cv2(law))

    def run(random: Any) -> list[float]:
        arrival, drawn = poisson(random, rate, 4_000), lengths.draw(law, 4_000, random)
        cost = Linear(base, prefill=each, decode=each)
        served = serve(Orca(slots), cost, arrival, drawn, max_num_seqs=slots).after(500)
        tpot = (served.finished - served.first_token).sum() / (served.output - 1).sum()
        return [(served.finished - served.arrival).mean(), tpot, np.diff(arrival).mean() * rate - 1,
                drawn.mean() - output]  # fmt: skip

    found = replicate(run)
    late = continuous.alignment(expected.mean_step)
    assert_agrees(expected.residence + expected.wait + late, found[:, 0], found[:, 2:].T)
    assert_agrees(expected.tpot, found[:, 1], found[:, 2:].T)
