"""The steps that are expanded from a log are those that ran: as priced, as counted, as freed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.batch import PAD
from batchwright.history import EngineStep, stays, steps
from batchwright.log import ABORTED, COMPLETE, DROPPED, PREEMPTED, Log
from batchwright.request import DECODING
from batchwright.workload import Workload
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_run import Case, Seen, case, every_policy


def expanded(found: Case) -> list[EngineStep]:
    return steps_of(found.simulator)


def steps_of(simulator: bw.Simulator) -> list[EngineStep]:
    limits = simulator.batch.limits
    return steps(simulator.log, limits.blocks, limits.block_size, simulator.batch.on_end == PAD)


def simulated(policy: Any, seed: int, skip: bool = True) -> tuple[bw.Simulator, Seen]:
    given = timed_workload(seed, headroom=True)
    seen = Seen([])
    limits = limits_of({**given["config"], "num_blocks": 5000})
    simulator = bw.Simulator(policy, seen, limits, skip=skip)
    simulator.run(requests_of(given))
    return simulator, seen


def holds(b: bw.Batch) -> None:
    """A prompt runs alone: all decodes miss its step."""
    if b.edits > 0 or b.num_waiting == 0 or b.num_running == b.limits.max_num_seqs:
        return
    for r in list(b.running):
        if r.state == DECODING:
            b.hold(r)
    b.admit(b.waiting.first(), b.waiting.first().prompt)


def pauses(b: bw.Batch) -> None:
    """The same, by stopping the decode clock for that step; prompts come in two chunks."""
    if b.edits == 0:
        for r in list(b.prefilling):
            b.chunk(r, r.unfilled)
        if b.num_waiting > 0 and b.num_running < b.limits.max_num_seqs:
            r = b.waiting.first()
            b.admit(r, -(-r.prompt // 2))
    b.decodes_run = not b.chunks


# --- one step ----------------------------------------------------------------------------


@every_policy
@for_every_seed(5)
def test_rows_and_context_of_every_step_are_those_that_were_priced(name: str, seed: int) -> None:
    found = case(seed, name, skip=False)
    priced = [s for s in expanded(found) if s.num_decodes or s.prefill_tokens]  # nobody prices nothing
    ours = [(s.num_decodes, s.padded_rows, s.context_tokens) for s in priced]
    assert ours == [row[1:] for row in found.seen.steps]


@pytest.mark.parametrize("policy", [holds, pauses])
@for_every_seed(20)
def test_steps_in_which_decodes_miss_are_those_that_were_priced(policy: Any, seed: int) -> None:
    simulator, seen = simulated(policy, seed, skip=False)
    found = steps_of(simulator)
    priced = [s for s in found if s.num_decodes or s.prefill_tokens]
    assert [(s.prefill_tokens, s.num_decodes, s.padded_rows, s.context_tokens) for s in priced] == seen.steps


@pytest.mark.parametrize("policy", [holds, pauses])
def test_decodes_do_miss_steps_under_the_policies_above(policy: Any) -> None:
    simulator, _ = simulated(policy, 5)
    assert len(simulator.log.column("held" if policy is holds else "paused")) > 0


@every_policy
@for_every_seed(5)
def test_skipped_and_walked_steps_are_equal_in_every_field(name: str, seed: int) -> None:
    assert expanded(case(seed, name)) == expanded(case(seed, name, skip=False))


@pytest.mark.parametrize("policy", [holds, pauses])
@for_every_seed(20)
def test_skipped_and_walked_steps_are_equal_when_decodes_miss_some(policy: Any, seed: int) -> None:
    skipped, walked = (steps_of(simulated(policy, seed, skip)[0]) for skip in (True, False))
    assert skipped == walked


@every_policy
@for_every_seed(5)
def test_a_step_schedules_each_request_once_and_its_counts_add_up(name: str, seed: int) -> None:
    for step in expanded(case(seed, name)):
        ids = [id for id, _ in step.scheduled]
        assert len(set(ids)) == len(ids) and all(tokens > 0 for _, tokens in step.scheduled)
        assert sum(tokens for _, tokens in step.scheduled) == step.prefill_tokens + step.num_decodes
        assert {id for id, _ in step.admitted} <= set(ids)
        assert not set(step.preempted) & set(ids)
        assert step.dropped <= len(step.finished)


# --- one request -------------------------------------------------------------------------


@every_policy
@for_every_seed(5)
def test_every_request_is_scheduled_for_all_its_tokens_but_the_last(name: str, seed: int) -> None:
    found = case(seed, name)
    scheduled: Counter[int] = Counter()
    for step in expanded(found):
        for id in step.preempted:
            scheduled[id] = 0
        for id, cached in step.admitted:
            assert scheduled[id] == 0
            scheduled[id] = cached
        for id, tokens in step.scheduled:
            scheduled[id] += tokens
    last = {stay.id: stay.how for stay in stays(found.run.log) if stay.how != PREEMPTED}
    for r in found.requests:
        if last[r.id] == COMPLETE:
            assert scheduled[r.id] == r.prompt + r.true_output - 1


@every_policy
@for_every_seed(5)
def test_every_request_has_one_stay_more_than_preemptions(name: str, seed: int) -> None:
    found = case(seed, name)
    all_stays = stays(found.run.log)
    count = Counter(stay.id for stay in all_stays)
    assert all(count[r.id] == r.preemptions + 1 for r in found.requests)
    ends = Counter(stay.id for stay in all_stays if stay.how in (COMPLETE, DROPPED))
    assert all(ends[r.id] == 1 for r in found.requests)
    seats = [stay.seat for stay in all_stays if stay.how != DROPPED]
    assert sorted(seats) == list(range(1, len(seats) + 1))
    for stay in all_stays:
        assert stay.queued <= stay.admitted <= stay.until
        assert stay.since < 0 or stay.admitted < stay.since <= stay.stopped <= stay.until


@every_policy
@for_every_seed(5)
def test_a_request_is_finished_once_and_admitted_once_more_than_preempted(name: str, seed: int) -> None:
    found = case(seed, name)
    finished, admitted, preempted = Counter[int](), Counter[int](), Counter[int]()
    for step in expanded(found):
        finished.update(step.finished)
        admitted.update(id for id, _ in step.admitted)
        preempted.update(step.preempted)
    dropped = Counter(stay.id for stay in stays(found.run.log) if stay.how == DROPPED)
    for r in found.requests:
        assert finished[r.id] == 1 and preempted[r.id] == r.preemptions
        assert admitted[r.id] == r.preemptions + 1 - dropped[r.id]


# --- blocks ------------------------------------------------------------------------------


@every_policy
@for_every_seed(5)
def test_blocks_are_freed_only_by_those_who_leave_and_in_the_end_all_are_free(name: str, seed: int) -> None:
    found = case(seed, name)
    all_steps, blocks = expanded(found), found.run.limits.blocks
    assert all_steps[-1].free_blocks == blocks
    for step in all_steps:
        assert 0 <= step.free_blocks_sched <= step.free_blocks <= blocks
        assert step.free_blocks == step.free_blocks_sched or step.finished


@for_every_seed(30)
def test_free_blocks_are_those_that_no_running_request_fills(seed: int) -> None:
    found = case(seed, "synchronous")
    if found.run.limits.enable_prefix_caching:  # blocks may be shared
        return
    size, blocks = found.run.limits.block_size, found.run.limits.blocks
    tokens: dict[int, int] = {}
    for step in expanded(found):
        for id in step.preempted:
            del tokens[id]
        for id, scheduled in step.scheduled:
            tokens[id] = tokens.get(id, 0) + scheduled
        used = sum(-(-count // size) for count in tokens.values())
        assert step.free_blocks_sched == blocks - used
        for id in step.finished:
            used -= -(-tokens.pop(id) // size)
        assert step.free_blocks == blocks - used


@pytest.mark.parametrize("name", ["padded", "unpadded", "dynamic"])
@for_every_seed(5)
def test_worst_case_policies_hold_the_same_blocks_from_admission_to_end(name: str, seed: int) -> None:
    found = case(seed, name)
    size, used = found.run.limits.block_size, 0
    worst = [-(-(r.prompt + r.max_tokens) // size) for r in found.requests]
    for step in expanded(found):
        used += sum(worst[id] for id, _ in step.admitted)
        assert step.free_blocks_sched == found.run.limits.blocks - used
        used -= sum(worst[id] for id in step.finished)


# --- who has gone ------------------------------------------------------------------------


@every_policy
@for_every_seed(5)
def test_with_cancels_all_who_have_come_wait_run_or_have_left(name: str, seed: int) -> None:
    random = Random(seed)
    until = case(seed, name).simulator.now
    count = len(timed_workload(seed)["requests"])
    chosen = random.sample(range(count), k=-(-count // 2))
    found = case(seed, name, cancels={id: random.uniform(0.0, until) for id in chosen})
    all_steps = expanded(found)
    start = found.run.steps()["start_s"]
    come = np.searchsorted(found.load.arrival, start, side="right").tolist()
    gone = 0
    for step, arrived in zip(all_steps, come, strict=True):
        gone += len(step.finished) + len(step.aborted)
        assert step.waiting + step.running + gone == arrived
    assert set().union(*(step.aborted for step in all_steps)) <= set(chosen)
    aborted = {stay.id for stay in stays(found.run.log) if stay.how == ABORTED}
    assert aborted == set(np.flatnonzero(np.isnan(found.run.requests()["finished_s"])).tolist())


def test_an_abort_stands_in_the_step_before_which_it_was_seen() -> None:
    simulator = bw.Simulator(bw.vllm(async_scheduling=False), bw.Constant(1.0), bw.Limits(num_kv_blocks=50))
    requests = [bw.Request(0, 0.0, 8, 6), bw.Request(1, 0.0, 8, 6)]
    simulator.cancel(requests[1], 2.5)
    simulator.run(requests)
    found = steps_of(simulator)
    assert [step.aborted for step in found] == [[], [], [], [1], [], []]
    assert [step.running for step in found] == [2, 2, 2, 1, 1, 0]
    assert [step.num_decodes for step in found] == [0, 2, 2, 1, 1, 1]


def test_ended_rows_are_computed_only_if_they_are_padded() -> None:
    load = Workload.from_columns([0.0, 0.0], [4, 4], [1, 3])
    for padded, expected in ((True, [0, 1, 1]), (False, [0, 0, 0])):
        simulator = bw.Simulator(bw.static(2, padded=padded), bw.Constant(1.0), bw.Limits(num_kv_blocks=9))
        simulator.run(load.requests())
        found = steps_of(simulator)
        assert [step.padded_rows for step in found] == expected
        assert [step.context_tokens for step in found] == ([0, 8, 10] if padded else [0, 4, 5])


def test_a_log_without_steps_has_no_history() -> None:
    assert steps(Log(), 100, 16) == [] and stays(Log()) == []
