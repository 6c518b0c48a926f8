"""Formulas against brute force: sums, integrals, and queues followed customer by customer."""

from __future__ import annotations

import heapq
from math import comb, inf, log
from typing import Any

import numpy as np
import pytest

from batchwright.cost import Constant
from batchwright.errors import InputError
from batchwright.policies import Orca
from batchwright.theory import continuous, dynamic, gain, lengths, overhead, queues, sharing, slo, static
from batchwright.theory.expected_max import (
    expected_max,
    geometric_max,
    lognormal_max,
    max_bound,
    uniform_max,
)
from batchwright.theory.numbers import arrivals, poisson
from batchwright.theory.roots import crommelin_roots
from queueing import assert_agrees, replicate, serve
from strategies import for_every_seed

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

UNIFORM = lengths.uniform(64, 512)


# --- laws of lengths ---------------------------------------------------------------------


@for_every_seed(50)
def test_a_sample_is_a_law_with_its_moments(seed: int) -> None:
    random = np.random.default_rng(seed)
    tokens = random.integers(1, 40, random.integers(2, 200))
    law = lengths.empirical(tokens)
    assert law.sum() == pytest.approx(1)
    assert lengths.mean(law) == pytest.approx(tokens.mean())
    assert lengths.second_moment(law) == pytest.approx((tokens**2).mean())
    assert lengths.cv2(law) == pytest.approx((tokens.std() / tokens.mean()) ** 2)
    pairs = np.minimum(tokens[:, None], tokens[None, :])
    assert lengths.mean_of_least(law) == pytest.approx(pairs.mean())
    left = np.concatenate([np.arange(1, o + 1) for o in tokens])  # at each of its steps
    assert lengths.residual(law) == pytest.approx(np.bincount(left, minlength=len(law)) / len(left))


@pytest.mark.parametrize(
    ("law", "mean", "cv2"),
    [
        (lengths.constant(7), 7.0, 0.0),
        (UNIFORM, 288.0, (449**2 - 1) / 12 / 288**2),
        (lengths.geometric(40.0), 40.0, 1 - 1 / 40),
        (lengths.geometric(1.0), 1.0, 0.0),
        (lengths.lognormal(288.0, 0.8), 288.0, np.exp(0.64) - 1),
    ],
)
def test_a_named_law_has_its_moments(law: Any, mean: float, cv2: float) -> None:
    assert law.sum() == pytest.approx(1) and law.min() >= -1e-16
    assert lengths.mean(law) == pytest.approx(mean)
    assert lengths.cv2(law) == pytest.approx(cv2, rel=1e-4, abs=1e-9)


def test_a_cut_law_puts_the_rest_on_its_end() -> None:
    for cut, whole in (
        (lengths.geometric(40.0, 50), lengths.geometric(40.0)),
        (lengths.lognormal(288.0, 1.0, 1024), lengths.lognormal(288.0, 1.0)),
    ):
        end = len(cut) - 1
        assert cut[:end] == pytest.approx(whole[:end], abs=1e-12)
        assert cut[end] == pytest.approx(whole[end:].sum())


# --- the longest of B --------------------------------------------------------------------


@for_every_seed(50)
def test_the_longest_of_b_is_what_all_choices_say(seed: int) -> None:
    random = np.random.default_rng(seed)
    tokens = np.sort(random.integers(1, 30, random.integers(1, 12)))
    count, size = len(tokens), int(random.integers(1, 6))
    # with replacement: the i-th smallest is the longest in i^B - (i-1)^B of n^B choices
    rank = np.arange(1, count + 1)
    brute = float(tokens @ (rank**size - (rank - 1) ** size)) / count**size
    assert expected_max(lengths.empirical(tokens), size) == pytest.approx(brute)
    bound = max_bound(tokens.mean(), tokens.std() / tokens.mean(), size)
    assert brute <= bound * (1 + 1e-12)


def test_the_longest_of_b_geometric_is_inclusion_and_exclusion() -> None:
    stay, size = 1 - 1 / 40, 8
    brute = sum((-1) ** (k + 1) * comb(size, k) / (1 - stay**k) for k in range(1, size + 1))
    assert expected_max(lengths.geometric(40.0), size) == pytest.approx(brute)
    assert geometric_max(40.0, size) == pytest.approx(brute, rel=1e-4)
    assert geometric_max(200.0, 32) == pytest.approx(810.168, abs=1e-3)


def test_short_forms_of_the_longest_are_as_near_as_they_say() -> None:
    assert expected_max(UNIFORM, 32) == pytest.approx(498.888, abs=1e-3)
    for size in (2, 8, 32, 128):
        assert uniform_max(64, 512, size) == pytest.approx(expected_max(UNIFORM, size), rel=1e-4)
    for sigma, low in ((0.3, 0.01), (0.6, 0.05), (1.0, 0.13)):
        ratio = lognormal_max(288.0, sigma, 32) / expected_max(lengths.lognormal(288.0, sigma), 32)
        assert 1 - ratio == pytest.approx(low, abs=0.005)


def test_the_longest_of_b_lognormal_is_that_of_draws() -> None:
    law = lengths.lognormal(288.0, 0.8)

    def run(random: Any) -> float:
        drawn = np.rint(random.lognormal(log(288) - 0.32, 0.8, (4_000, 16)))
        return float(np.maximum(drawn, 1).max(axis=1).mean())

    assert_agrees(expected_max(law, 16), replicate(run))


# --- queues ------------------------------------------------------------------------------


def waits_of(servers: int, arrival: Any, service: Any) -> Any:
    """Waits of a first-come queue, customer by customer."""
    free, waits = [0.0] * servers, []
    for at, seconds in zip(arrival.tolist(), service.tolist(), strict=True):
        start = max(at, heapq.heappop(free))
        waits.append(start - at)
        heapq.heappush(free, start + seconds)
    return np.array(waits)


def test_many_exponential_servers_are_the_brute_chain() -> None:
    rate, servers, count = 5.6, 8, 400
    n = np.arange(count + 1)
    law = np.cumprod(np.concatenate(([1.0], rate / np.minimum(n[1:], servers))))
    law /= law.sum()
    assert queues.erlang_c(servers, rate) == pytest.approx(law[servers:].sum())
    assert queues.mmc_wait(rate, 1.0, servers) == pytest.approx(np.maximum(n - servers, 0) @ law / rate)


def test_many_constant_servers_are_crommelin_and_franx() -> None:
    rate, servers = 3.2, 4

    def run(random: Any) -> list[float]:
        arrival = np.cumsum(random.exponential(1 / rate, 60_000))
        waits = waits_of(servers, arrival, np.ones(60_000))[1000:]
        return [waits.mean(), *((waits <= t).mean() for t in (0.0, 0.3)), np.diff(arrival).mean() * rate - 1]

    found = replicate(run)
    assert_agrees(queues.mdc_wait(rate, 1.0, servers), found[:, 0], [found[:, 3]])
    assert_agrees(queues.mdc_wait_at_most(rate, 1.0, servers, 0.0), found[:, 1], [found[:, 3]])
    assert_agrees(queues.mdc_wait_at_most(rate, 1.0, servers, 0.3), found[:, 2], [found[:, 3]])


def test_slots_start_requests_as_servers_do_at_the_next_step() -> None:
    slots, output, step = 8, 200, 0.005
    random = np.random.default_rng(1)
    arrival = np.cumsum(random.exponential(1 / (0.8 * slots), 5_000))
    served = serve(Orca(slots), Constant(step), arrival, output, max_num_seqs=slots)
    wait = served.first_token - served.arrival - step
    late = wait - waits_of(slots, arrival, np.full(5_000, output * step))
    assert late.min() > -1e-6 and late.max() < 3 * step
    assert late.mean() == pytest.approx(continuous.alignment(step), rel=0.2)


def test_the_laws_of_many_servers_with_one_are_those_of_one() -> None:
    assert queues.mdc_wait(0.7, 1.0, 1) == pytest.approx(queues.md1_wait(0.7, 1.0))
    assert queues.mmc_wait(0.7, 1.0, 1) == pytest.approx(queues.mm1_wait(0.7, 1.0))
    for seconds in (0.0, 0.5, 2.2):
        one = queues.md1_wait_at_most(0.7, 1.0, seconds)
        assert queues.mdc_wait_at_most(0.7, 1.0, 1, seconds) == pytest.approx(one)
    assert static.greedy_wait(0.7, 1, 1.0) == pytest.approx(queues.md1_wait(0.7, 1.0))
    assert sharing.limited_sharing(0.7, 1.0, [1.0]).wait == pytest.approx(queues.mm1_wait(0.7, 1.0))


@pytest.mark.parametrize("load", [0.5, 0.6, 0.8, 0.9])
def test_the_tail_of_md1_is_that_of_its_distribution(load: float) -> None:
    for quantile in (0.9, 0.99):
        seconds = queues.md1_wait_quantile(load, 1.0, quantile)
        if seconds <= 15:
            assert 1 - queues.md1_wait_at_most(load, 1.0, seconds) == pytest.approx(1 - quantile, rel=0.02)


@for_every_seed(30)
def test_the_quantile_of_a_wait_is_that_of_mm1_where_the_server_is_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    service, load = random.uniform(0.01, 10), random.uniform(0.05, 0.97)
    rate, quantile = load / service, random.uniform(0.05, 0.999)
    found = sharing.wait_quantile(queues.mm1_wait(rate, service), load, quantile)
    if quantile <= 1 - load:
        assert found == 0
    else:
        assert queues.mm1_wait_over(rate, service, found) == pytest.approx(1 - quantile)


def test_known_values_of_the_queues() -> None:
    assert queues.erlang_c(110, 100) == pytest.approx(0.2370, abs=1e-4)
    assert queues.power_of_choices(0.9, 2) == pytest.approx(2.614, abs=1e-3)
    assert queues.md1_wait_quantile(0.8, 1.0, 0.99) == pytest.approx(10.356, abs=1e-3)
    assert queues.cosmetatos(0.9, 32) * queues.mmc_wait(0.9 * 32, 1.0, 32) == pytest.approx(
        queues.mdc_wait(0.9 * 32, 1.0, 32), rel=0.01
    )


def test_erlang_b_between_whole_servers_is_its_integral() -> None:
    for servers, offered in ((0.3, 0.05), (2.5, 4.0), (7.9, 5.0)):
        t = np.linspace(0, 60 / offered, 2_000_001)
        inverse = np.trapezoid(offered * np.exp(-offered * t) * (1 + t) ** servers, t)
        assert 1 / queues.erlang_b(servers, offered) == pytest.approx(inverse, rel=1e-6)
    whole = sum(3.0**k / np.prod(np.arange(1, k + 1)) for k in range(6))
    assert queues.erlang_b(5, 3.0) == pytest.approx(3.0**5 / 120 / whole)


def test_a_closed_loop_balances() -> None:
    found = queues.closed_loop(10, 8.0, 1.0)
    states = np.cumprod([1.0, *((10 - k) / 8.0 for k in range(10))])  # k at the server
    assert found.rate == pytest.approx(1 - states[0] / states.sum())
    assert continuous.closed_rate(10, 8.0, 1.0, 1.0) >= found.rate


# --- batches -----------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "load"), [(8, 0.75), (8, 0.9), (32, 0.9)])
def test_the_roots_solve_their_equation_and_give_the_chains_wait(size: int, load: float) -> None:
    z = crommelin_roots(load * size, size)
    assert z**size == pytest.approx(np.exp(load * size * (z - 1)))
    assert np.abs(z).max() < 1 and len(set(np.round(z, 9))) == size - 1
    full = dynamic.batches(load, np.full(size, float(size)), least=size).wait
    assert static.full_batch_wait(load, size, float(size)) == pytest.approx(full, rel=1e-6)


def test_known_waits_of_full_batches() -> None:
    assert static.full_batch_wait(0.75 * 8 / 12, 8, 12.0) == pytest.approx(8.1623, abs=1e-3)
    time = static.batch_time(UNIFORM, 32, 0.025)
    loads = static.waits_by_load(32, time, [0.3, 0.6, 0.9])
    assert [wait for _, wait in loads] == pytest.approx([20.14, 10.07, 7.68], abs=0.01)
    assert static.fill_wait_quantile(2.0, 32, 0.99) == pytest.approx(19.145, abs=1e-3)
    assert static.greedy_wait(0.2, 4, 12.0) == pytest.approx(6.953, abs=1e-3)
    assert static.periodic_wait(0.2, 4, 12.0) == pytest.approx(7.181, abs=1e-3)


def test_the_time_of_a_batch_is_that_of_its_steps() -> None:
    law = lengths.empirical([1, 3])
    # both 1: 1 step of 2 rows; one of each (1/2): 1 of 2 rows and 2 of 1; both 3: 3 of 2
    brute = 0.25 * (1.0 + 0.2) + 0.5 * (3.0 + 0.4) + 0.25 * (3.0 + 0.6)
    assert static.batch_seconds(law, 2, 1.0, 0.1) == pytest.approx(brute)
    assert static.batch_seconds(law, 2, 1.0, 0.1, padded=True) == pytest.approx(1.2 * 2.5)
    time = static.batch_time(law, 2, 1.0, 5.0)
    assert time.mean == pytest.approx(7.5) and time.cv2 == pytest.approx(0.75 / 7.5**2)
    assert static.waste(law, 2) == pytest.approx(0.2)


@pytest.mark.parametrize("r", [0.02, 0.05, 0.1, 0.3, 0.5, 0.9])
def test_inoues_bound_is_over_the_chain_and_near_it(r: float) -> None:
    each, base = 0.1438, 1.8874
    exact = dynamic.greedy(r / each, base, each)
    bound = dynamic.greedy_latency_bound(r / each, base, each)
    assert exact.latency <= bound * (1 + 1e-9) and bound < 1.06 * exact.latency
    known = {0.05: 2.706, 0.1: 3.146, 0.3: 4.225, 0.5: 5.902, 0.9: 29.408}
    assert exact.latency == pytest.approx(known.get(r, exact.latency), abs=1e-3)
    assert exact.batch == pytest.approx((r / each * base + exact.idle) / (1 - r))


def test_greedy_batches_of_a_chain_are_baileys() -> None:
    for load in (0.3, 0.6, 0.9):
        chain = dynamic.batches(4 * load, np.ones(4))
        assert chain.wait == pytest.approx(static.greedy_wait(4 * load, 4, 1.0), rel=1e-6)
        assert chain.sizes.sum() == pytest.approx(1)


def test_a_chain_without_limit_is_inoues() -> None:
    each, base, rate = 0.1, 1.0, 3.0
    chain = dynamic.batches(rate, base + each * np.arange(1, 41))
    greedy = dynamic.greedy(rate, base, each)
    assert chain.size == pytest.approx(greedy.batch, rel=1e-4)
    service = float(chain.sizes[1:] * np.arange(1, 41) @ (base + each * np.arange(1, 41))) / chain.size
    assert chain.wait + service == pytest.approx(greedy.latency, rel=1e-4)


def test_random_services_bring_their_spread_of_arrivals() -> None:
    law = arrivals(5.0, 2.0, 200)
    k = np.arange(201)
    assert law.sum() == pytest.approx(1) and law @ k == pytest.approx(5)
    assert law @ k**2 - 25 == pytest.approx(5 + 2)
    assert arrivals(5.0, 0.0, 50) == pytest.approx(poisson(5.0, 50))
    # a batch of one is M/G/1
    found = dynamic.batches(0.6, [1.0], variance=[0.4]).wait
    assert found == pytest.approx(queues.pollaczek_khinchine(0.6, 1.0, 1.4), rel=1e-6)


# --- continuous --------------------------------------------------------------------------


def test_bursts_wait_as_hayward_says() -> None:
    slots, step, law = 16, 0.1, lengths.uniform(5, 35)
    rate = 0.8 * slots / (20 * step)

    def run(random: Any) -> list[float]:
        gaps = random.gamma(0.25, 4 / rate, 100_000)
        service = step * lengths.draw(law, 100_000, random)
        waits = waits_of(slots, np.cumsum(gaps), service)[2000:]
        return [waits.mean(), gaps.mean() * rate - 1, service.mean() - 2]

    found = replicate(run)
    expected = sharing.bursty_wait(rate, slots, law, step, 4.0, lengths.cv2(law))
    assert_agrees(expected.wait, found[:, 0], found[:, 1:].T, within=0.2, error=0.09)
    plain = sharing.bursty_wait(rate, slots, law, step, 1.0, lengths.cv2(law))
    assert plain.peakedness == 1 and plain.must_wait == pytest.approx(queues.erlang_c(slots, rate * 2))


def test_limited_sharing_is_the_brute_chain() -> None:
    rate, output, step = 0.8, 10.0, 0.3 + 0.05 * np.arange(1, 6)
    count = 400
    speed = np.array([min(n, 5) / (output * step[min(n, 5) - 1]) for n in range(1, count + 1)])
    law = np.cumprod(np.concatenate(([1.0], rate / speed)))
    law /= law.sum()
    n = np.arange(count + 1)
    found = sharing.limited_sharing(rate, output, step)
    assert found.residents == pytest.approx(np.minimum(n, 5) @ law)
    assert found.waiting == pytest.approx(np.maximum(n - 5, 0) @ law)
    assert found.must_wait == pytest.approx(law[5:].sum())
    steps = law[1:] / step[np.minimum(n[1:], 5) - 1]
    assert found.mean_step == pytest.approx(law[1:].sum() / steps.sum())


def test_constant_steps_without_limit_are_poisson_residents() -> None:
    found = continuous.residents(2.0, 50.0, 0.02, 0.0)
    assert found.residents == found.variance == pytest.approx(2.0)
    assert found.law == pytest.approx(poisson(2.0, len(found.law) - 1))
    assert found.tpot == pytest.approx(0.02)
    near = continuous.residents(2.0, 50.0, 0.02, 1e-7)
    assert near.residents == pytest.approx(2.0, rel=1e-4)


def test_the_gap_between_tokens_is_weighted_by_tokens() -> None:
    base, each, rate, output = 0.01, 0.001, 10.0, 50.0
    found = continuous.residents(rate, output, base, each * output)
    n = np.arange(len(found.law))
    tokens = n * found.law / (base + each * n)
    for quantile in (0.5, 0.99):
        gap = continuous.itl_quantile(found, base, each, quantile)
        below = tokens[base + each * n <= gap * (1 + 1e-12)].sum() / tokens.sum()
        assert below + 1e-9 >= quantile > below - tokens.max() / tokens.sum()
    mean = float(tokens @ (base + each * n)) / tokens.sum()
    assert mean == pytest.approx(found.tpot)


def test_kv_tokens_are_counted_step_by_step() -> None:
    held = sum(sum(s + j for j in range(o)) for s, o in ((3, 4), (10, 1))) / 2
    read = sum(sum(s + j for j in range(o - 1)) for s, o in ((3, 4), (10, 1))) / 2
    assert continuous.kv_area([3, 10], [4, 1]) == held
    assert continuous.kv_read([3, 10], [4, 1]) == read
    residents = 1000 * 2.5 / held
    linear = continuous.kv_ceiling_linear(1000, held, 2.5, 0.02, 0.0)
    assert linear == pytest.approx(continuous.kv_ceiling(1000, 0.02, held))
    assert linear == pytest.approx(residents / (2.5 * 0.02))
    assert continuous.token_ceiling(2048, 0.1, 1000, 24) == pytest.approx(20)


# --- gain, overhead, objectives ----------------------------------------------------------


def test_the_gains_of_the_table() -> None:
    table = {
        (64, 512): (47, 61, 69, 73, 76),
        (1, 512): (60, 78, 88, 94, 97),
    }
    for bounds, shares in table.items():
        found = [100 * gain.saturated_gain(lengths.uniform(*bounds), size) for size in (4, 8, 16, 32, 64)]
        assert found == pytest.approx(shares, abs=0.6)
    geometric = [100 * gain.saturated_gain(lengths.geometric(288.0), size) for size in (4, 8, 16, 32, 64)]
    assert geometric == pytest.approx((108, 172, 238, 305, 374), abs=0.6)
    assert gain.saturated_gain(lengths.constant(100), 32) == 0
    assert gain.uniform_limit(64, 512) == pytest.approx(448 / 576)
    assert gain.saturated_gain(UNIFORM, 4096) == pytest.approx(gain.uniform_limit(64, 512), abs=0.002)


def test_what_a_prompt_and_a_growing_step_take_from_the_gain() -> None:
    assert gain.saturated_gain(UNIFORM, 32, 0.025) == pytest.approx(0.732, abs=1e-3)
    assert gain.saturated_gain(UNIFORM, 32, 0.025, prompt=0.2304) == pytest.approx(0.362, abs=1e-3)
    assert gain.saturated_gain(UNIFORM, 32, 0.0125, 0.0125 / 32) == pytest.approx(0.366, abs=1e-3)
    assert gain.saturated_gain(UNIFORM, 32, 0.0125, 0.0125 / 32, 0.2304) == pytest.approx(0.181, abs=1e-3)
    padded = gain.saturated_gain(UNIFORM, 32, 0.0125, 0.0125 / 32, padded=True)
    assert padded == pytest.approx(gain.saturated_gain(UNIFORM, 32))
    assert gain.slots_gain(32, 64, 0.025) == pytest.approx(2)
    assert gain.slots_gain(32, 64, 1e-12, 0.025) == pytest.approx(1)


def test_waves_show_only_what_rounding_gives() -> None:
    assert gain.wave_bound(100, 32) == pytest.approx(0.28)
    assert gain.wave_bound(96, 32) == 0
    assert gain.gain_at_once(UNIFORM, 32, 32) == 0
    assert gain.gain_at_once(UNIFORM, 100, 32) == pytest.approx(0.654, abs=1e-3)


def test_a_host_costs_what_it_does_not_hide() -> None:
    assert overhead.synchronous_loss(0.025, 0.002) == pytest.approx(0.074, abs=1e-3)
    assert overhead.overlap_speedup(0.008, 0.004) == pytest.approx(1.5)
    assert overhead.overlap_speedup(0.005, 0.010) == pytest.approx(1.5)
    assert overhead.step_seconds(0.005, 0.010, True, 0.001) == pytest.approx(0.011)
    assert overhead.step_for_loss(1.0, 0.1) == pytest.approx(9)
    assert overhead.late_end_factor(20) == pytest.approx(1.05)
    assert overhead.host_seconds(32, 20e-6, 7.5e-6) == pytest.approx(260e-6)
    assert overhead.host_seconds(32, 0.0, 0.0, 16, 1e-3) == pytest.approx(2e-3)
    assert overhead.flood_ceiling(8, 1, 0.008, 0.001, 0.008, 1e-3) == pytest.approx(1 / 0.004)
    assert overhead.flood_ceiling(8, 1, 0.008, 0.001, 0.008, 1e-3, front_end=0.01) == 100


def test_the_batch_of_an_objective() -> None:
    assert slo.residents_for_tpot(0.05, 0.01, 0.001) == 40
    assert slo.rate_for_tpot(40, 100, 0.05) == 8
    n = np.arange(1, 400)
    assert n[np.argmax(n / (10 + n + 0.001 * n * n))] == round(slo.best_batch(10, 0.001))
    scaled = n / (1 + 0.1 * (n - 1) + 1e-4 * n * (n - 1))
    assert n[np.argmax(scaled)] == round(slo.best_scale(0.1, 1e-4))
    assert slo.prefill_ttft(0.7, 1.0) == pytest.approx(2.1667, abs=1e-4)
    assert slo.pipelined_ttft(0.7, 1.0) == pytest.approx(1.1346, abs=1e-4)
    assert slo.parallel_ttft(0.7, 1.0, 1.6) == pytest.approx(0.8681, abs=1e-4)


# --- refusals ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda: queues.md1_wait(1.4, 1.0),
        lambda: queues.mmc_wait(8.0, 1.0, 8),
        lambda: queues.processor_sharing(1.0, 1.0),
        lambda: static.full_batch_wait(8.0, 8, 1.0),
        lambda: dynamic.batches(8.0, np.ones(8)),
        lambda: dynamic.greedy(10.0, 1.0, 0.1),
        lambda: continuous.residents(10.0, 100.0, 0.01, 0.1),
        lambda: sharing.limited_sharing(10.0, 1.0, [1.0, 1.0]),
        lambda: sharing.bursty_wait(10.0, 2, UNIFORM, 0.1, 4.0, 0.3),
    ],
)
def test_a_load_of_one_has_no_steady_state(ask: Any) -> None:
    with pytest.raises(InputError, match=r"^load is .* but must be under 1 for a steady state.*lower"):
        ask()


@pytest.mark.parametrize(
    ("ask", "text"),
    [
        (lambda: expected_max(UNIFORM, 0), "size is 0, but must be a whole number of at least 1"),
        (lambda: lengths.empirical([]), "a law needs a sample"),
        (lambda: lengths.empirical([1.5]), "whole token counts"),
        (lambda: lengths.geometric(0.5), "at least 1"),
        (lambda: queues.md1_wait(inf, 1.0), "rate is inf"),
        (lambda: queues.md1_wait_at_most(0.5, 1.0, 16.0), "use md1_wait_quantile"),
        (lambda: dynamic.batches(0.1, np.ones(8), window=2.0), "use formation"),
        (lambda: dynamic.batches(0.1, np.ones(8), least=2, window=0.5), "leave one out"),
        (lambda: sharing.bursty_wait(1.0, 8, UNIFORM, 0.01, 0.5, 0.3), "use constant_step_wait"),
        (lambda: slo.residents_for_tpot(0.01, 0.02, 0.001), "raise it"),
        (lambda: slo.residents_for_tpot(0.05, 0.02, 0.0), "does not grow"),
    ],
)
def test_what_a_formula_does_not_cover_is_refused(ask: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        ask()
