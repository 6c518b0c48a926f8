"""Every slot-second of a run is counted once, and under the name of what the slot did."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.log import PREEMPTED, SWAPPED
from batchwright.run import Run
from batchwright.run.slots import PARTS
from batchwright.workload import Workload
from expansion import decode_ticks, seated_stays, step_spans
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_gaps import COSTS, restless_run
from test_history import holds, pauses
from test_run import Seen, case, every_policy, load_of


def by_steps(run: Run, stretch: Any) -> dict[str, float]:
    """The same shares, from every slot in every step, and every moment between."""
    end = float(np.nanmax(run.requests()["finished_s"]))
    spans = [(min(begin, end), min(last, end)) for begin, last in step_spans(run, stretch)]
    flat = run.log.column("chunks")
    chunks = {(flat[i], flat[i + 1]) for i in range(0, len(flat), 3)}
    seconds: Counter[str] = Counter(dict.fromkeys(PARTS, 0.0))
    seats, waits = [], []
    stays = seated_stays(run)
    for stay in stays:
        batch = max(run.load.prompt[other.id] for other in stays if other.admitted == stay.admitted)
        decodes = set(decode_ticks(run, stay))
        for tick in range(stay.admitted, stay.until):
            each = spans[tick][1] - spans[tick][0]
            if tick in decodes:
                seconds["decode"] += each
            elif tick == stay.since - 1 >= stay.admitted or (tick, stay.seat) in chunks:
                useful = run.load.prompt[stay.id] / batch if run.pads else 1.0
                seconds["prefill"] += each * useful
                seconds["padding"] += each * (1 - useful)
            else:
                is_padded = run.pads and stay.since >= 0 and tick >= stay.stopped
                seconds["padding" if is_padded else "held"] += each
        is_cut = stay.how in (PREEMPTED, SWAPPED)
        last = spans[stay.until][0] if is_cut else spans[stay.until - 1][1]
        seats.append((spans[stay.admitted][0], last))
        seconds["held"] += sum(
            spans[tick][0] - spans[tick - 1][1]
            for tick in range(stay.admitted + 1, stay.until + is_cut)
        )
    came = dict(enumerate(run.arrival.tolist()))
    for stay in stays:
        waits.append((came[stay.id], spans[stay.admitted][0]))
        came[stay.id] = spans[stay.until][0] if stay.how in (PREEMPTED, SWAPPED) else np.inf
    dropped = run.timeline.stays["how"] == 2
    for id, until in zip(
        run.timeline.stays["id"][dropped], run.timeline.stays["until"][dropped], strict=True
    ):
        waits.append((came[int(id)], spans[until - 1][1]))
    add_idle(run.seats, seconds, seats, waits, end)
    return {name: seconds[name] / (run.seats * end) for name in PARTS}


def add_idle(slots: int, seconds: Counter[str], seats: list[Any], waits: list[Any], end: float) -> None:
    edges = sorted({0.0, end, *(min(t, end) for span in (*seats, *waits) for t in span if t < np.inf)})
    for begin, until in pairwise(edges):
        middle = (begin + until) / 2
        free = slots - sum(first <= middle < last for first, last in seats)
        is_queued = any(first <= middle < last for first, last in waits)
        seconds["idle_with_queue" if is_queued else "idle_without_queue"] += free * (until - begin)


def check(run: Run, stretch: Any) -> None:
    found = run.slots.shares
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-9)
    assert all(share >= 0 for share in found.values())
    assert found == pytest.approx(by_steps(run, stretch), abs=1e-9)


@every_policy
@for_every_seed(15)
def test_the_shares_are_those_of_every_slot_in_every_step(name: str, seed: int) -> None:
    found = case(seed, name)
    check(found.run, found.simulator.stretch)


@pytest.mark.parametrize("policy", [holds, pauses])
@for_every_seed(10)
def test_slots_whose_decodes_miss_steps_are_held(policy: Any, seed: int) -> None:
    given = timed_workload(seed)
    load = load_of(requests_of(given))
    simulator = bw.Simulator(policy, Seen([]), limits_of({**given["config"], "num_blocks": 5000}))
    simulator.run(load.requests())
    check(Run("mine", load, simulator), simulator.stretch)


@for_every_seed(30)
def test_the_shares_are_right_where_holds_pauses_and_preemptions_meet(seed: int) -> None:
    check(*restless_run(seed, COSTS["linear"]))


@every_policy
@for_every_seed(10)
def test_shares_sum_to_one_and_none_is_negative_with_cancels(name: str, seed: int) -> None:
    whole = case(seed, name)
    cancels = {r.id: r.arrival + 0.2 for r in whole.requests[1::3]}
    shares = case(seed, name, cancels=cancels).run.slots.shares
    if not np.isnan(list(shares.values())).any():
        assert sum(shares.values()) == pytest.approx(1.0, abs=1e-9)
        assert min(shares.values()) >= 0


def static_run(**flags: Any) -> Run:
    """Prompts of 4 and 8 tokens, outputs of 1 and 3: one step of prefill, two of decode."""
    load = Workload.from_columns([0.0, 0.0], [4, 8], [1, 3])
    simulator = bw.Simulator(bw.static(2, **flags), bw.Constant(1.0), bw.Limits(num_kv_blocks=9))
    simulator.run(load.requests())
    return Run("static", load, simulator)


def test_padded_rows_and_padded_prompts_are_padding() -> None:
    shares = static_run(padded=True).slots.shares
    assert shares == pytest.approx(
        {"prefill": 1.5 / 6, "decode": 2 / 6, "padding": 2.5 / 6, "held": 0.0}
        | {"idle_with_queue": 0.0, "idle_without_queue": 0.0}
    )


def test_rows_that_wait_for_the_batch_to_end_are_held() -> None:
    shares = static_run(padded=False).slots.shares
    assert (shares["prefill"], shares["held"], shares["padding"]) == pytest.approx((2 / 6, 2 / 6, 0.0))


def test_a_slot_is_idle_with_a_queue_where_nobody_may_join() -> None:
    load = Workload.from_columns([0.0, 1.0, 2.0], [4, 4, 4], [4, 1, 1])
    simulator = bw.Simulator(bw.dynamic(2, window=0.0), bw.Constant(1.0), bw.Limits(num_kv_blocks=9))
    simulator.run(load.requests())
    found = Run("dynamic", load, simulator).slots
    assert (found.num_slots, found.seconds) == (2, 5.0)
    assert found.shares == pytest.approx(
        {"prefill": 3 / 10, "decode": 3 / 10, "padding": 0.0, "held": 0.0}
        | {"idle_with_queue": 3 / 10, "idle_without_queue": 1 / 10}
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [(bw.static(3), 3), (bw.dynamic(5), 5), (bw.orca(7), 7), (bw.vllm(max_num_seqs=9), 9), (bw.vllm(), 20)],
)
def test_slots_are_the_seats_that_the_policy_uses(policy: Any, expected: int) -> None:
    load = Workload.from_columns([0.0] * 8, [4] * 8, [4] * 8)
    simulator = bw.Simulator(policy, bw.Constant(1.0), bw.Limits(max_num_seqs=20))
    simulator.run(load.requests())
    assert Run("mine", load, simulator).slots.num_slots == expected


def test_a_run_in_which_nobody_finishes_has_no_shares() -> None:
    load = Workload.from_columns([0.0], [40], [3])
    simulator = bw.Simulator(bw.vllm(), bw.Constant(1.0), bw.Limits(num_kv_blocks=8, max_model_len=20))
    simulator.run(load.requests())
    found = Run("vllm", load, simulator).slots
    assert np.isnan(list(found.shares.values())).all()
    assert set(found.to_json()["shares"].values()) == {None}
