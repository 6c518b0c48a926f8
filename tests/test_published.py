"""Published facts about batching, computed again."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from batchwright import published
from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.published.opt13b import KV_TOKENS, MANY_FROM, Opt13b, limits
from batchwright.published.reserve import Reserving, power_of_two
from batchwright.request import Request
from batchwright.simulator import Simulator
from batchwright.step import Step
from batchwright.theory.lengths import geometric, lognormal, uniform
from strategies import for_every_seed, requests_of, timed_workload

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

# --- spread and batch size ---------------------------------------------------------------


LAWS = {"uniform": uniform(64, 512), "geometric": geometric(288, 512), "lognormal": lognormal(288, 0.5)}


@pytest.mark.parametrize("name", LAWS)
def test_the_gain_by_spread_is_its_closed_form(name: str) -> None:
    for row in published.gain_by_spread({name: LAWS[name]}, (8, 32), seeds=16):
        half = row.simulated.half
        assert abs(row.simulated.value - row.closed_form) <= half + 0.01 * (1 + row.closed_form)
        assert half < 0.03 * (1 + row.closed_form)
        assert row.closed_form < row.many


# --- Anyscale ------------------------------------------------------------------------------


def test_the_gain_is_about_0_at_a_cap_of_32_and_grows_with_it() -> None:
    rows = published.gain_by_cap()
    assert [(row.cap, row.static_batch) for row in rows] == [(32, 16), (128, 12), (512, 8), (1536, 4)]
    assert abs(rows[0].same_seats) < 0.12 and abs(rows[0].paged) < 0.12
    assert all(less.paged < more.paged for less, more in pairwise(rows))
    assert all(row.same_seats < row.reserving <= row.paged + 0.01 for row in rows)
    assert rows[-1].paged > 4


# --- figure 13 -----------------------------------------------------------------------------


@pytest.mark.parametrize("dataset", [published.SHAREGPT, published.ALPACA], ids=lambda dataset: dataset.name)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_batches_of_figure_13_have_the_order_and_the_ratios(
    dataset: published.Dataset, seed: int
) -> None:
    rows = published.batched_requests(dataset, 600.0 if dataset.rate < 10 else 100.0, seed)
    assert [row.reserve for row in rows] == ["Orca (Max)", "Orca (Pow2)", "Orca (Oracle)", "vLLM"]
    assert all(less.simulated < more.simulated for less, more in pairwise(rows))
    for row in rows:
        assert row.simulated_step == pytest.approx(row.published_step, rel=0.3)
        assert row.simulated == pytest.approx(row.published, rel=0.3)


def test_figure_13_needs_the_buddy_allocator() -> None:
    rounded = published.batched_requests(published.ALPACA, 60.0)
    exact = published.batched_requests(published.ALPACA, 60.0, buddy=False)
    assert exact[1].simulated > 1.5 * rounded[1].simulated
    assert exact[1].simulated_step > 1.3 * exact[1].published_step


def test_the_kv_cache_is_12_gb_in_800_kb_a_token() -> None:
    layers, hidden, each = 40, 5120, 2
    assert (12 << 30) / (2 * layers * hidden * each) == pytest.approx(KV_TOKENS, rel=0.002)
    assert limits().blocks * limits().block_size <= KV_TOKENS


# --- equal lengths ---------------------------------------------------------------------------


def test_the_gain_vanishes_where_all_lengths_are_equal() -> None:
    rows = published.gain_by_width(128, (64, 16, 4, 0), 8)
    assert all(wide.simulated.value > narrow.simulated.value for wide, narrow in pairwise(rows))
    assert rows[-1].simulated.low == rows[-1].simulated.high == rows[-1].many == 0.0


def test_one_seat_gains_nothing_whatever_the_lengths() -> None:
    (row,) = published.gain_by_width(128, (127,), 1)
    assert row.simulated.low == row.simulated.high == 0.0


def test_a_width_of_the_mean_is_refused() -> None:
    with pytest.raises(InputError, match="width is 8, but must be 0 to 7 for outputs of 8 in the mean"):
        published.gain_by_width(8, (8,), 4)


# --- the pieces ------------------------------------------------------------------------------


@for_every_seed(50)
def test_a_stretch_of_opt_13b_is_the_sum_of_its_steps(seed: int) -> None:
    random = Random(seed)
    rows = random.randint(1, 2 * MANY_FROM)
    cost, context, steps = Opt13b(), random.randint(rows, 15_000), random.randint(1, 40)
    summed = 0.0
    step = Step()
    for i in range(steps):
        step.quiet(rows, 0, context + i * rows)
        summed += cost.seconds(step)
    step.quiet(rows, 0, context)
    assert cost.stretch(step, steps) == pytest.approx(summed, rel=1e-12)


def test_a_step_of_opt_13b_is_what_was_measured() -> None:
    step = Step()
    step.quiet(32, 0, 10_000)
    assert Opt13b(memory=1.0).seconds(step) == pytest.approx(31.35e-3, abs=0.01e-3)
    step = Step()
    step.prefill_tokens, step.num_chunks, step.prefill_attention = 512, 1, 512 * 256.0
    assert Opt13b(memory=1.0).seconds(step) == pytest.approx(96.11e-3, abs=0.01e-3)


@for_every_seed(100)
def test_the_buddy_allocator_gives_the_next_power_of_two(seed: int) -> None:
    tokens = 1 + Random(seed).randrange(1 << 20)
    given = power_of_two(tokens)
    assert given // 2 < tokens <= given and given & (given - 1) == 0


@for_every_seed(60)
def test_a_reserving_slot_keeps_the_contract_and_its_memory(seed: int) -> None:
    load = timed_workload(seed, headroom=True)
    requests = requests_of(load)
    longest = power_of_two(max(r.prompt + r.max_tokens for r in requests))
    policy = Reserving(whole=seed % 3 == 0, buddy=seed % 2 == 0)
    server = Limits(max_num_seqs=8, num_kv_blocks=2 * longest, block_size=1, max_model_len=longest)
    simulator = Simulator(policy, lambda step: 0.25, server, audit=True)
    simulator.run(requests)
    assert simulator.batch.num_running == 0 and simulator.batch.blocks.free == 2 * longest
    assert all(r.finished > 0 and r.preemptions == 0 for r in requests)


@pytest.mark.parametrize(("policy", "at_once"), [
    (Reserving(whole=True), 1), (Reserving(), 2), (Reserving(buddy=False), 3),
])  # fmt: skip
def test_a_slot_reserves_what_it_says(policy: Reserving, at_once: int) -> None:
    server = Limits(max_num_seqs=8, num_kv_blocks=16, block_size=1, max_model_len=16)
    simulator = Simulator(policy, lambda step: 1.0, server)
    simulator.run([Request(i, 0.0, 2, 3, max_tokens=3) for i in range(6)])
    assert simulator.now == 3.0 * -(-6 // at_once)


def test_rows_become_a_table() -> None:
    rows = published.gain_by_width(16, (0,), 4)
    lines = published.text(rows, ("many",)).splitlines()
    assert lines[0].split() == ["batch", "least", "most", "many", "simulated"]
    assert lines[2].split() == ["4", "16", "16", "+0%", "0", "±", "0"]
    with pytest.raises(InputError, match="a table of 0 rows"):
        published.text([])
    assert np.isfinite(rows[0].simulated.value)
