"""The times of steps and tokens, as arrays, are those of the steps expanded one by one."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.run import Run
from batchwright.run.ticks import token_times
from batchwright.workload import chat
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_history import holds, pauses
from test_run import Seen, case, every_policy, load_of, steps_of


def run_of(policy: Any, seed: int, skip: bool = True) -> Run:
    """A run in which decodes miss steps."""
    given = timed_workload(seed)
    first = given["requests"][0]["arrival"]
    for row in given["requests"]:
        row["arrival"] -= first
    requests = requests_of(given)
    simulator = bw.Simulator(policy, Seen([]), limits_of({**given["config"], "num_blocks": 5000}), skip=skip)
    simulator.run(requests)
    return Run("misses", load_of(requests), simulator)


def tokens_one_by_one(run: Run) -> dict[int, list[float]]:
    """The end of each step that completes a prompt, or decodes, by id."""
    ends = run.steps()["end_s"].tolist()
    left: dict[int, int] = {}
    had: dict[int, int] = defaultdict(int)
    found: dict[int, list[float]] = defaultdict(list)
    for step, end in zip(steps_of(run), ends, strict=True):
        for id, cached in step.admitted:
            left[id] = int(run.load.prompt[id]) + had[id] - cached
        for id, brought in step.brought:
            left[id] -= brought
        for id, tokens in step.scheduled:
            left[id] -= tokens
            if left[id] <= 0:
                found[id].append(end)
                had[id] += 1
    return found


def check(run: Run) -> None:
    starts, ends = run.timeline.starts, run.timeline.ends
    steps = run.steps()
    assert np.array_equal(starts, steps["start_s"]) and np.array_equal(ends, steps["end_s"])
    expected = tokens_one_by_one(run)
    for id, times in enumerate(token_times(run)):
        assert times.tolist() == expected.get(id, [])


@every_policy
@for_every_seed(6)
def test_steps_and_tokens_have_the_times_of_the_expanded_steps(name: str, seed: int) -> None:
    check(case(seed, name).run)


@pytest.mark.parametrize("policy", [holds, pauses])
@for_every_seed(10)
def test_so_they_have_where_decodes_miss_steps(policy: Any, seed: int) -> None:
    check(run_of(policy, seed))


@every_policy
@for_every_seed(6)
def test_every_request_has_all_its_tokens_from_first_to_last(name: str, seed: int) -> None:
    run = case(seed, name).run
    columns = run.requests()
    for id, times in enumerate(token_times(run)):
        assert len(times) == columns["output_tokens"][id] and (np.diff(times) > 0).all()
        if run.is_streamed:
            assert times[0] == columns["first_token_s"][id] and times[-1] == columns["finished_s"][id]
        else:
            assert times[-1] <= columns["finished_s"][id]


@every_policy
@for_every_seed(5)
def test_a_client_who_has_gone_has_the_tokens_until_then(name: str, seed: int) -> None:
    whole = case(seed, name)
    run = case(seed, name, cancels={0: whole.simulator.now / 2}).run
    check(run)


def test_an_undisturbed_request_costs_no_copy() -> None:
    run = bw.compare(chat(20), bw.Constant(0.02), policies={"vllm": "vllm"})["vllm"]
    times = token_times(run)
    assert all(len(found) == n for found, n in zip(times, run.load.output.tolist(), strict=True))
    assert len({id(found.base) for found in times}) == 1  # all are slices of the ends of the steps
