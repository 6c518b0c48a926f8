"""The columns of the steps, which are made in arrays, are the steps that are expanded one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.errors import InputError
from batchwright.history import EngineStep
from batchwright.log import COMPLETE, DROPPED, PREEMPTED
from batchwright.metrics import Numbers
from batchwright.run import Run
from expansion import engine_steps
from strategies import for_every_seed, requests_of, timed_workload
from test_history import holds, pauses, simulated
from test_run import Case, case, every_policy, load_of

WORK = {"num_chunks", "past_tokens", "prefill_attention", "padded_rows", "context_tokens"}


def counted(steps: list[EngineStep]) -> dict[str, list[int]]:
    return {
        "step": list(range(len(steps))),
        "prefill_tokens": [step.prefill_tokens for step in steps],
        "num_decodes": [step.num_decodes for step in steps],
        "running": [step.running for step in steps],
        "waiting": [step.waiting for step in steps],
        "preempted": [len(step.preempted) for step in steps],
        "finished": [len(step.finished) for step in steps],
        "free_blocks": [step.free_blocks_sched for step in steps],
    }


def check(run: Run) -> None:
    columns: dict[str, Numbers] = run.steps()
    expected = counted(engine_steps(run))
    assert {name: columns[name].tolist() for name in expected} == expected
    assert all(columns[name].dtype == np.int64 for name in expected)
    assert set(columns) == {*expected, *WORK, "start_s", "end_s"}


@every_policy
@for_every_seed(30)
def test_the_columns_are_the_expanded_steps(name: str, seed: int) -> None:
    check(case(seed, name).run)


@every_policy
@for_every_seed(10)
def test_the_columns_are_the_expanded_steps_with_cancels(name: str, seed: int) -> None:
    random = Random(seed)
    until, count = case(seed, name).simulator.now, len(timed_workload(seed)["requests"])
    chosen = random.sample(range(count), k=-(-count // 2))
    check(case(seed, name, cancels={id: random.uniform(0.0, until) for id in chosen}).run)


@pytest.mark.parametrize("policy", [holds, pauses])
@for_every_seed(40)
def test_the_columns_are_the_expanded_steps_when_decodes_miss_some(policy: Any, seed: int) -> None:
    simulator, _ = simulated(policy, seed)
    load = load_of(requests_of(timed_workload(seed, headroom=True)))
    check(Run("misses", load, simulator))


def test_every_kind_of_way_out_is_among_the_cases() -> None:
    found: list[Case] = [case(seed, "vllm") for seed in range(40)]
    hows = set().union(*(one.run.log.column("how").tolist() for one in found))
    assert hows == {PREEMPTED, COMPLETE, DROPPED}


def test_a_run_that_is_not_over_has_no_columns() -> None:
    simulator = bw.Simulator(bw.vllm(async_scheduling=False), bw.Constant(1.0), bw.Limits(num_kv_blocks=50))
    request = bw.Request(0, 0.0, 8, 6)
    simulator.submit(request)
    simulator.advance(2.5)
    with pytest.raises(InputError, match="is not over"):
        Run("open", load_of([request]), simulator).steps()
