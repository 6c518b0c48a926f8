"""What holds for every run with swaps: times, bits, blocks, and all that a run says of itself."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import reference
import test_gaps
import test_phases
import test_slots
import test_step_columns
import test_ticks
from batchwright.cost import Constant
from batchwright.history import stays
from batchwright.host_memory import HostMemory
from batchwright.log import IN, OUT, SWAPPED
from batchwright.policies.vllm_v0 import VllmV0
from batchwright.request import CANCELLED, FINISHED
from batchwright.run import Run
from batchwright.run.ticks import token_times
from batchwright.simulator import Simulator
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from swaps import Replay, RestlessSwap, Swapper
from test_properties import H100, LINEAR, assert_over, assert_same, outcome, real_valued
from test_run import Seen, load_of

ROOM = 5000  # blocks


def drawn(seed: int) -> Swapper:
    random = Random(seed)
    return Swapper(
        swap_bandwidth=2.0 ** random.choice([2, 6, 10, 40]),
        swap_space=2.0 ** random.choice([-26, -24, 0]),
        watermark=random.choice([0, 0, 1, 3]),
    )


def tight(seed: int, load: dict[str, Any]) -> dict[str, Any]:
    """The load with few enough blocks that somebody is often short of them, and no prefix cache."""
    config = load["config"]
    longest = -(-config["max_model_len"] // config["block_size"])
    blocks = longest + Random(seed).choice([1, 2, 5, 20])
    few = min(config["num_blocks"], blocks)
    load["config"] = config | {"num_blocks": few, "enable_prefix_caching": False}
    return load


def run(policy: Any, load: dict[str, Any], cost: Any = LINEAR, **options: Any) -> Any:
    simulator = Simulator(policy, cost, limits_of(load["config"]), **options)
    requests = requests_of(load)
    simulator.run(requests)
    return simulator, requests


# --- the reference loop -------------------------------------------------------------


@for_every_seed(100)
def test_a_policy_that_swaps_takes_the_time_that_the_slow_loop_takes(seed: int) -> None:
    load = tight(seed, timed_workload(seed))
    rows = Replay(load, reference.linear(), drawn(seed)).run()
    simulator, requests = run(drawn(seed), load)
    assert_over(simulator, requests)
    swaps = np.bincount([s.id for s in stays(simulator.log) if s.how == SWAPPED], minlength=len(rows))
    for r, row in zip(requests, rows, strict=True):
        assert (r.first_token, r.finished, r.preemptions) == (row.first_token, row.finished, row.preemptions)
        assert swaps[r.id] == row.swaps


def test_the_loads_above_swap_and_recompute() -> None:
    rows = [
        row
        for seed in range(60)
        for row in Replay(tight(seed, timed_workload(seed)), reference.linear(), drawn(seed)).run()
    ]
    assert sum(row.swaps for row in rows) > 60
    assert sum(row.preemptions - row.swaps for row in rows) > 25
    assert max(row.swaps for row in rows) > 2


@for_every_seed(60)
def test_a_swap_recomputes_nothing(seed: int) -> None:
    load = tight(seed, timed_workload(seed))
    simulator, requests = run(Swapper(), load)
    columns = Run("swapper", load_of(requests), simulator).steps()
    assert columns["prefill_tokens"].sum() == sum(r.prompt for r in requests)
    assert columns["num_decodes"].sum() == sum(r.true_output - 1 for r in requests)


@for_every_seed(60)
def test_vllm_v0_swaps_as_the_slow_loop_does(seed: int) -> None:
    load = tight(seed, timed_workload(seed))
    random = Random(seed)
    swap = {"swap_bandwidth": 2.0 ** random.choice([2, 10]), "swap_space": 2.0 ** random.choice([-26, 0])}
    limits = limits_of(load["config"])
    flags = Swapper(**swap, watermark=int(0.01 * limits.blocks))
    rows = Replay(load, reference.linear(), flags).run()
    policy = VllmV0(
        preemption_mode="swap", kv_bytes_per_token=1.0, max_num_batched_tokens=1 << 20, **swap
    )
    for options in ({}, {"skip": False}, {"audit": True}):
        simulator, requests = run(policy, load, **options)
        assert_over(simulator, requests)
        assert_host_is_empty(simulator)
        for r, row in zip(requests, rows, strict=True):
            assert (r.first_token, r.finished) == (row.first_token, row.finished)
            assert r.preemptions == row.preemptions


# --- skipped = walked = in pieces = audited -------------------------------------------


@for_every_seed(60)
def test_skipped_steps_give_the_bits_of_walked_ones(seed: int) -> None:
    load = tight(seed, real_valued(seed))
    for policy in (drawn(seed), Swapper(preemption_mode="recompute")):
        quick = run(policy, load, H100)
        assert_over(*quick)
        assert_same(quick, run(policy, load, H100, skip=False))
        assert outcome(run(policy, load, H100, audit=True)[1]) == outcome(quick[1])


@for_every_seed(40)
def test_a_run_in_pieces_is_the_same_run(seed: int) -> None:
    load, random = tight(seed, real_valued(seed)), Random(seed)
    whole = run(drawn(seed), load, H100)
    simulator, requests = Simulator(drawn(seed), H100, limits_of(load["config"])), requests_of(load)
    simulator.feed(requests)
    now = 0.0
    while now < whole[0].now:
        simulator.advance(now)
        now += random.random() * whole[0].now / 30
    simulator.advance()
    assert_same(whole, (simulator, requests))


@for_every_seed(60)
def test_clients_that_go_leave_no_blocks_behind_on_either_side(seed: int) -> None:
    load, random = tight(seed, real_valued(seed)), Random(seed)
    policy = Swapper(swap_bandwidth=random.choice([50.0, 1e4]))  # slow: many go while they move
    end = run(policy, load, H100)[0].now
    cancels = [(random.uniform(0, end), random.randrange(len(load["requests"]))) for _ in range(9)]
    found = []
    for options in ({}, {"skip": False}, {"audit": True}):
        simulator, requests = Simulator(policy, H100, limits_of(load["config"]), **options), requests_of(load)
        for at, i in cancels:
            simulator.cancel(requests[i], at)
        simulator.run(requests)
        assert_over(simulator, requests)
        assert_host_is_empty(simulator)
        found.append(outcome(requests))
    assert found[0] == found[1] == found[2]


def assert_host_is_empty(simulator: Simulator) -> None:
    b = simulator.batch
    assert isinstance(b.host, HostMemory)
    b.host.check()
    assert (b.host.free, b.num_swapped, b.num_coming) == (b.host.size, 0, 0)


# --- transfers beside steps -----------------------------------------------------------


def restless(seed: int, cost: Any = None, cancels: int = 0, **options: Any) -> tuple[Run, Simulator]:
    """Swaps, holds, pauses and preemptions in one run."""
    given = timed_workload(seed)
    first = given["requests"][0]["arrival"]
    for row in given["requests"]:
        row["arrival"] -= first
    requests = requests_of(given)
    limits = limits_of({**given["config"], "num_blocks": ROOM})
    bandwidth = Random(seed).choice([200.0, 3000.0, 1e9])
    simulator = Simulator(RestlessSwap(seed, bandwidth), cost or Seen([]), limits, **options)
    for r in requests[:cancels]:
        simulator.cancel(r, r.arrival + 0.3 + 0.1 * (r.id % 7))
    simulator.run(requests)
    assert all(r.state in (FINISHED, CANCELLED) for r in requests)
    assert_host_is_empty(simulator)
    simulator.batch.check()
    return Run("restless", load_of(requests), simulator), simulator


def test_the_restless_policy_swaps_often_and_while_others_run() -> None:
    found = [restless(seed)[0] for seed in range(8)]
    transfers = [f.transfers() for f in found]
    assert sum((t["way"] == OUT).sum() for t in transfers) > 50
    assert sum((t["way"] == IN).sum() for t in transfers) > 40
    inside = 0
    for each, t in zip(found, transfers, strict=True):
        steps = each.steps()
        at = np.searchsorted(steps["start_s"], t["end_s"], side="right") - 1
        inside += (steps["end_s"][at] > t["end_s"]).sum()
    assert inside > 50
    assert "s" in test_phases.check(found[0])


@for_every_seed(25)
def test_the_steps_are_those_that_were_priced(seed: int) -> None:
    found, simulator = restless(seed, skip=False)
    priced = [s for s in test_phases.steps_of(found) if s.num_decodes or s.prefill_tokens]
    ours = [(s.prefill_tokens, s.num_decodes, s.padded_rows, s.context_tokens) for s in priced]
    seen = simulator.cost
    assert isinstance(seen, Seen)
    assert ours == seen.steps[: len(ours)]


@pytest.mark.parametrize("cancels", [0, 6])
@for_every_seed(30)
def test_all_that_a_run_says_agrees_with_its_steps_one_by_one(seed: int, cancels: int) -> None:
    found, simulator = restless(seed, Constant(0.01), cancels)
    test_step_columns.check(found)
    test_ticks.check(found)
    test_gaps.check(found, simulator.stretch)
    test_phases.check(found)
    if cancels == 0:
        test_slots.check(found, simulator.stretch)


@for_every_seed(30)
def test_every_request_has_all_its_tokens_once(seed: int) -> None:
    found, _ = restless(seed)
    columns = found.requests()
    for id, times in enumerate(token_times(found)):
        assert len(times) == columns["output_tokens"][id] and (np.diff(times) > 0).all()
        assert times[0] == columns["first_token_s"][id] and times[-1] == columns["finished_s"][id]


@for_every_seed(20)
def test_preemptions_and_swaps_are_counted_by_request(seed: int) -> None:
    found, _ = restless(seed)
    columns, out = found.requests(), found.transfers()
    times_out = np.bincount(out["id"][out["way"] == OUT], minlength=len(found.load))
    assert np.array_equal(columns["swaps"], times_out)
    assert (columns["preemptions"] >= columns["swaps"]).all()
    assert columns["preemptions"].sum() == found.steps()["preempted"].sum()


@for_every_seed(30)
def test_on_each_way_transfers_come_one_after_the_other(seed: int) -> None:
    found, _ = restless(seed)
    transfers = found.transfers()
    for way in (OUT, IN):
        begin, end = (transfers[name][transfers["way"] == way] for name in ("begin_s", "end_s"))
        assert (begin[1:] >= end[:-1]).all() and (end > begin).all()
