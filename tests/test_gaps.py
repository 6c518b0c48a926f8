"""The gaps between tokens are those of the tokens written out one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.metrics import spread
from batchwright.request import DECODING
from batchwright.run import Run
from batchwright.run.gaps import range_maxima
from batchwright.workload import Workload
from expansion import token_times
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_history import holds, pauses
from test_run import POLICIES, Seen, case, every_policy, load_of

COSTS = {
    "constant": bw.Constant(0.01),
    "linear": bw.Linear(0.01, 1e-5, 1e-4, 1e-7, 1e-9),
    "hosted": bw.Hosted(bw.Linear(0.01, 1e-5, 1e-4, 1e-5), base=0.02, per_running=1e-3),
}


class Restless:
    """Holds decodes, pauses all of them and preempts, at random but the same every time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.asked = (-1, -1)

    def __call__(self, b: bw.Batch) -> None:
        if b.edits > 0:
            return
        b.decodes_run = True
        if (b.tick_count, b.num_waiting) == self.asked:
            return
        self.asked = (b.tick_count, b.num_waiting)
        b.wake_after(self.random.choice([1, 1, 2, 5]))
        decodes = [r for r in b.running if r.state == DECODING]
        if decodes and self.random.random() < 0.1:
            b.preempt(decodes.pop())
        if self.random.random() < 0.4:
            for r in decodes:
                if self.random.random() < 0.5:
                    b.hold(r)
        for r in list(b.prefilling):
            if not decodes or self.random.random() < 0.8:
                b.chunk(r, self.random.randint(1, r.unfilled))
        while b.num_waiting > 0 and b.num_running < b.limits.max_num_seqs:
            r = b.waiting.first()
            b.admit(r, self.random.randint(1, r.prompt + r.generated))
        b.decodes_run = not b.chunks or self.random.random() < 0.6


def restless_run(seed: int, cost: Any, cancels: int = 0) -> tuple[Run, Any]:
    given = timed_workload(seed)
    first = given["requests"][0]["arrival"]
    for row in given["requests"]:
        row["arrival"] -= first
    requests = requests_of(given)
    limits = limits_of({**given["config"], "num_blocks": 5000})
    simulator = bw.Simulator(Restless(seed), cost, limits)
    for r in requests[:cancels]:
        simulator.cancel(r, r.arrival + 0.3)
    simulator.run(requests)
    return Run("restless", load_of(requests), simulator), simulator.stretch


def written_out(run: Run, stretch: Any) -> tuple[np.ndarray, np.ndarray]:
    """All gaps of the finished requests, sorted, and the greatest of each request."""
    is_done = ~np.isnan(run.requests()["finished_s"])
    greatest = np.full(len(is_done), np.nan)
    found: list[float] = []
    for id, times in token_times(run, stretch).items():
        if is_done[id] and len(times) > 1:
            assert len(times) >= run.load.output[id]
            found += np.diff(times).tolist()
            greatest[id] = np.diff(times).max()
    return np.sort(found), greatest


def check(run: Run, stretch: Any) -> None:
    expected, greatest = written_out(run, stretch)
    found = run.gaps()
    seconds = np.sort(np.repeat(found.seconds, found.counts))
    assert len(seconds) == len(expected)
    np.testing.assert_allclose(seconds, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.greatest, greatest, rtol=1e-9, atol=1e-12)


@every_policy
@for_every_seed(25)
def test_gaps_are_those_of_the_tokens_one_by_one(name: str, seed: int) -> None:
    found = case(seed, name)
    check(found.run, found.simulator.stretch)


@pytest.mark.parametrize("policy", [holds, pauses])
@for_every_seed(25)
def test_gaps_over_steps_that_decodes_miss_are_whole(policy: Any, seed: int) -> None:
    given = timed_workload(seed)
    requests = requests_of(given)
    load = load_of(requests)
    simulator = bw.Simulator(policy, Seen([]), limits_of({**given["config"], "num_blocks": 5000}))
    simulator.run(load.requests())
    check(Run("mine", load, simulator), simulator.stretch)


@pytest.mark.parametrize("name", COSTS)
@for_every_seed(40)
def test_gaps_are_right_where_holds_pauses_and_preemptions_meet(name: str, seed: int) -> None:
    check(*restless_run(seed, COSTS[name]))


@for_every_seed(25)
def test_the_tokens_of_requests_that_were_cancelled_do_not_count(seed: int) -> None:
    check(*restless_run(seed, COSTS["linear"], cancels=3))


def test_the_restless_policy_holds_pauses_and_preempts() -> None:
    runs = [restless_run(seed, COSTS["constant"])[0] for seed in range(20)]
    for name in ("held", "paused"):
        assert sum(len(run.log.column(name)) for run in runs) > 100
    assert sum(run.summary.num_preemptions for run in runs) > 20


@every_policy
@for_every_seed(5)
def test_the_gaps_of_a_request_add_up_to_its_end_less_its_first_token(name: str, seed: int) -> None:
    run = case(seed, name).run
    columns, found = run.requests(), run.gaps()
    if run.summary.num_preemptions == 0:
        assert found.counts.sum() == np.maximum(columns["output_tokens"] - 1, 0).sum()
    total = (columns["finished_s"] - columns["first_token_s"]).sum()
    if run.is_streamed:
        assert (found.seconds * found.counts).sum() == pytest.approx(total, rel=1e-9)


@every_policy
@for_every_seed(5)
def test_the_spread_of_gaps_is_that_of_the_list(name: str, seed: int) -> None:
    run = case(seed, name).run
    found = run.gaps()
    if not run.is_streamed:
        assert not run.summary.itl.is_defined
        return
    listed = spread(np.repeat(found.seconds, found.counts))
    for statistic in ("mean", "p50", "p90", "p95", "p99"):
        expected = getattr(listed, statistic)
        assert getattr(run.summary.itl, statistic) == pytest.approx(expected, rel=1e-9, nan_ok=True)


@for_every_seed(10)
def test_gaps_of_two_halves_of_the_requests_are_together_all_gaps(seed: int) -> None:
    run = case(seed, "vllm").run
    ids = np.arange(len(run.load))
    halves = [run.gaps(ids[::2]), run.gaps(ids[1::2])]
    both = np.sort(np.concatenate([np.repeat(half.seconds, half.counts) for half in halves]))
    whole = run.gaps()
    np.testing.assert_array_equal(both, np.sort(np.repeat(whole.seconds, whole.counts)))


def test_a_prompt_between_two_tokens_is_in_the_gap_of_those_who_wait_for_it() -> None:
    load = Workload.from_columns([0.0, 2.5], [8, 8], [6, 1])
    simulator = bw.Simulator(pauses, bw.Constant(1.0), bw.Limits(num_kv_blocks=50))
    simulator.run(load.requests())
    run = Run("pauses", load, simulator)
    assert run.requests()["finished_s"].tolist() == [9.0, 5.0]  # prompts come in two chunks
    assert sorted(np.repeat(run.gaps().seconds, run.gaps().counts)) == [1.0, 1.0, 1.0, 1.0, 3.0]
    assert run.gaps().greatest[0] == 3.0 and np.isnan(run.gaps().greatest[1])


@for_every_seed(30)
def test_range_maxima_are_those_of_every_span(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, 50, random.integers(1, 60)).astype(float)
    begin = random.integers(0, len(values), 40)
    end = begin + 1 + (random.random(40) * (len(values) - begin)).astype(int)
    expected = [values[b:e].max() for b, e in zip(begin, end, strict=True)]
    assert range_maxima(values, begin, end).tolist() == expected


def test_all_policies_are_covered() -> None:
    assert {"vllm", "padded", "dynamic", "orca"} <= set(POLICIES)
