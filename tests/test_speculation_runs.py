"""What a run says of its tokens under speculation is what its steps say, written out one by one."""

from __future__ import annotations

import numpy as np
import pytest

import batchwright as bw
from batchwright.history import steps
from batchwright.run import Run
from batchwright.run.ticks import token_times
from batchwright.run.windows import tokens_by
from batchwright.speculation import mean_tokens
from strategies import for_every_seed, limits_of, requests_of
from test_gaps import check as check_gaps
from test_phases import check as check_phases
from test_run import load_of
from test_slots import check as check_slots
from test_speculation import LINEAR, alone, drawn, policy_of
from test_step_columns import check as check_columns

# --- what a run says --------------------------------------------------------------------------


def run_of(seed: int) -> Run:
    load, k, guess = drawn(seed)
    first = load["requests"][0]["arrival"]
    for row in load["requests"]:
        row["arrival"] -= first
    requests = requests_of(load)
    simulator = bw.Simulator(policy_of(load, k, guess), LINEAR, limits_of(load["config"]))
    simulator.run(requests)
    return Run("speculative", load_of(requests), simulator)


def token_ends(run: Run) -> dict[int, list[float]]:
    """The second of every token, from the steps written out one by one."""
    left = dict.fromkeys(range(len(run.load)), 0)
    found: dict[int, list[float]] = {id: [] for id in left}
    times = run.steps()["end_s"].tolist()
    for step, end in zip(steps(run.log, run.limits.blocks, run.limits.block_size), times, strict=True):
        for id, cached in step.admitted:
            left[id] = int(run.load.prompt[id]) + len(found[id]) - cached
        for id, tokens in step.scheduled:
            if left[id] > tokens:
                left[id] -= tokens
            else:
                found[id] += [end] * (1 if left[id] > 0 else tokens)
                left[id] = 0
    return found


@for_every_seed(25)
def test_tokens_gaps_and_columns_are_those_of_the_steps_written_out(seed: int) -> None:
    run = run_of(seed)
    check_columns(run)
    check_gaps(run, run.stretch)
    check_slots(run, run.stretch)
    check_phases(run)
    expected = token_ends(run)
    assert [times.tolist() for times in token_times(run)] == list(expected.values())
    columns = run.requests()
    assert [len(times) for times in expected.values()] == columns["output_tokens"].tolist()
    of = [np.diff(times) for times in expected.values()]
    found = run.gaps()
    assert sorted(np.repeat(found.seconds, found.counts)) == pytest.approx(sorted(np.concatenate(of)))
    greatest = [gap.max() if len(gap) else np.nan for gap in of]
    assert np.array_equal(found.greatest, greatest, equal_nan=True)
    middle = np.array([run.steps()["end_s"][len(run.steps()["end_s"]) // 2], np.inf])
    made = np.concatenate(list(expected.values()))
    assert tokens_by(run, middle).tolist() == [int((made <= second).sum()) for second in middle]


def test_tokens_of_one_step_have_gaps_of_zero_and_tpot_is_what_its_formula_says() -> None:
    r, simulator = alone()
    run = Run("alone", load_of([r]), simulator)
    found = run.gaps()
    assert sorted(np.repeat(found.seconds, found.counts)) == [0.0, 0.0, 0.0, 0.5625, 0.59375]
    assert run.requests()["tpot_s"][0] == (1.65625 - 0.5) / 5
    assert run.itl().p50 == 0.0


def test_speculation_stands_in_one_table_with_the_policy_without_it() -> None:
    load = bw.Workload.open("poisson(rate=2, n=60, prompt=uniform(32,256), output=uniform(16,64))")
    policies = {"vllm": "vllm", "drafts": "vllm(num_speculative_tokens=3, acceptance=0.8, draft=0.05)"}
    runs = bw.compare(load, bw.Roofline("H100-SXM", "llama-3.1-8b"), bw.Limits(), policies)
    plain, drafts = (runs[name].requests() for name in policies)
    assert plain["output_tokens"].tolist() == drafts["output_tokens"].tolist()
    assert np.nanmean(drafts["tpot_s"]) < 0.7 * np.nanmean(plain["tpot_s"])
    assert "drafts" in runs.table()
    assert runs["vllm"].tokens_per_decode == 1.0
    assert 2.0 < runs["drafts"].tokens_per_decode < mean_tokens(0.8, 3)


