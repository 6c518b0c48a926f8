"""What a run says of its requests and steps is what its simulator did.

Every random case is simulated twice: in one run quiet steps are skipped, in the other each
step is walked, and an observer in place of the cost model writes down what every step computes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.conformance import VLLM_FLAGS
from batchwright.figures import seconds
from batchwright.history import EngineStep, steps
from batchwright.run import Run
from batchwright.step import Step
from batchwright.workload import Workload
from strategies import for_every_seed, limits_of, requests_of, timed_workload

POLICIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "vllm": lambda config: vllm_of(config, config["async_scheduling"]),
    "synchronous": lambda config: vllm_of(config, False),
    "padded": lambda config: bw.static(seats(config, 4)),
    "unpadded": lambda config: bw.static(seats(config, 3), padded=False, streamed=True),
    "dynamic": lambda config: bw.dynamic(seats(config, 4), window=1.5, preferred_sizes=(seats(config, 2),)),
    "orca": lambda config: bw.orca(seats(config, 3)),
}
LEAVES_AT_ONCE = ("synchronous", "dynamic", "orca")  # an end is seen, and its seat free, when it comes
COUNTS = ("step", "prefill_tokens", "num_decodes", "running", "waiting", "preempted", "finished",
          "free_blocks", "num_chunks", "past_tokens", "prefill_attention", "padded_rows",
          "context_tokens")  # fmt: skip

every_policy = pytest.mark.parametrize("name", POLICIES)


def vllm_of(config: dict[str, Any], asynchronous: bool) -> Any:
    flags = {flag: config[flag] for flag in VLLM_FLAGS if config.get(flag) is not None}
    return bw.vllm(async_scheduling=asynchronous, **flags)


def seats(config: dict[str, Any], wanted: int) -> int:
    return min(wanted, config["max_num_seqs"])


@dataclass
class Seen:
    """A cost model that writes down every step that it prices: once each, if none is skipped."""

    steps: list[tuple[int, int, int, int]]

    def stretch(self, step: Step, steps: int) -> float:
        rows = step.num_decodes + step.padded_rows
        last = step.context_tokens + rows * (steps - 1)
        self.steps.append((step.prefill_tokens, step.num_decodes, step.padded_rows, last))
        each = 0.0131 + 3e-5 * step.prefill_tokens + 1e-4 * rows
        return steps * each + 1e-7 * (steps * (step.context_tokens + last) / 2)


@dataclass
class Case:
    """One random workload under one policy."""

    load: Workload
    requests: list[bw.Request]
    simulator: bw.Simulator
    run: Run
    seen: Seen

    @property
    def is_plain(self) -> bool:
        """Was no request ever preempted, and did no decode miss a step?"""
        log = self.run.log
        return not any(r.preemptions for r in self.requests) and not log.column("held")


def case(
    seed: int,
    name: str,
    skip: bool = True,
    longest: int | None = None,
    cancels: dict[int, float] | None = None,
) -> Case:
    """`longest`: max_model_len, where not the workload's.  `cancels`: when the client goes, by id."""
    given = timed_workload(seed, headroom=seed % 2 == 0)
    first = given["requests"][0]["arrival"]
    for row in given["requests"]:
        row["arrival"] -= first
    requests = requests_of(given)
    load = load_of(requests)
    limits = limits_of({**given["config"], "max_model_len": longest or given["config"]["max_model_len"]})
    seen = Seen([])
    simulator = bw.Simulator(POLICIES[name](given["config"]), seen, limits, skip=skip)
    for id, at in (cancels or {}).items():
        simulator.cancel(requests[id], at)
    simulator.run(requests)
    num_seen = len(seen.steps)
    run = Run(name, load, simulator)
    seen.steps = seen.steps[:num_seen]
    return Case(load, requests, simulator, run, seen)


def load_of(requests: list[bw.Request]) -> Workload:
    return Workload.from_columns(
        [r.arrival for r in requests],
        [r.prompt for r in requests],
        [r.true_output for r in requests],
        max_tokens=[r.max_tokens for r in requests],
    )


def steps_of(run: Run) -> list[EngineStep]:
    return steps(run.log, run.limits.blocks, run.limits.block_size, run.pads)


# --- requests ----------------------------------------------------------------------------


@every_policy
@for_every_seed(5)
def test_the_columns_of_the_requests_are_what_the_requests_say(name: str, seed: int) -> None:
    found = case(seed, name)
    columns = found.run.requests()
    assert all(len(column) == len(found.requests) for column in columns.values())
    for r in found.requests:
        row = {key: column[r.id] for key, column in columns.items()}
        assert row["id"] == r.id and row["arrival_s"] == r.arrival
        assert row["prompt_tokens"] == r.prompt and row["output_tokens"] == r.true_output
        assert row["first_token_s"] == r.first_token and row["finished_s"] == r.finished
        assert row["preemptions"] == r.preemptions
        assert row["ttft_s"] == r.first_token - r.arrival and row["e2e_s"] == r.finished - r.arrival
        assert row["cached_tokens"] == r.cached or r.preemptions > 0


@every_policy
@for_every_seed(5)
def test_tpot_is_the_mean_gap_where_clients_see_a_stream(name: str, seed: int) -> None:
    found = case(seed, name)
    columns = found.run.requests()
    for r, each in zip(found.requests, columns["tpot_s"].tolist(), strict=True):
        if name == "padded" or r.true_output == 1:
            assert np.isnan(each)
        else:
            assert each == pytest.approx((r.finished - r.first_token) / (r.true_output - 1), rel=1e-12)


@every_policy
@for_every_seed(5)
def test_the_columns_are_the_same_whether_steps_are_skipped_or_walked(name: str, seed: int) -> None:
    skipped, walked = case(seed, name).run.requests(), case(seed, name, skip=False).run.requests()
    assert skipped.keys() == walked.keys()
    for key, column in skipped.items():
        assert np.array_equal(column, walked[key], equal_nan=True), key


@every_policy
@for_every_seed(5)
def test_a_cancelled_request_has_no_times_and_all_others_have(name: str, seed: int) -> None:
    random = Random(seed)
    whole = case(seed, name)
    chosen = random.sample(range(len(whole.requests)), k=-(-len(whole.requests) // 3))
    until = whole.simulator.now
    found = case(seed, name, cancels={id: random.uniform(0.0, until) for id in chosen})
    columns = found.run.requests()
    gone = {r.id for r in found.requests if r.finished == 0.0 or np.isnan(columns["finished_s"][r.id])}
    assert gone <= set(chosen)
    for r in found.requests:
        times = [columns[key][r.id] for key in ("first_token_s", "finished_s", "ttft_s", "tpot_s", "e2e_s")]
        if r.id in gone:
            assert np.isnan(times).all()
        else:
            assert columns["finished_s"][r.id] == r.finished > r.arrival
    summary = found.run.summary
    assert summary.num_finished == len(found.requests) - len(gone)
    assert summary.num_requests == len(found.requests)


def test_a_request_is_cancelled_while_it_waits_while_it_runs_and_never_after_its_end() -> None:
    load = Workload.from_columns([0.0] * 4, [8] * 4, [4, 100, 4, 4])
    simulator = bw.Simulator(bw.static(2), bw.Constant(1.0), bw.Limits(num_kv_blocks=50))
    requests = list(load.requests())
    for id, at in ((0, 500.0), (1, 1.5), (3, 0.5)):  # ended, decoding, waiting
        simulator.cancel(requests[id], at)
    simulator.run(requests)
    finished = Run("static", load, simulator).requests()["finished_s"]
    assert np.isnan(finished).tolist() == [False, True, False, True]


@every_policy
@for_every_seed(5)
def test_a_rejected_request_has_no_times_and_is_counted(name: str, seed: int) -> None:
    prompts = [r.prompt for r in requests_of(timed_workload(seed))]
    longest = max(2, max(prompts) * 2 // 3)
    found = case(seed, name, longest=longest)
    columns = found.run.requests()
    is_rejected = found.load.prompt >= longest
    assert is_rejected.any() == (max(prompts) > 1)
    assert np.array_equal(np.isnan(columns["finished_s"]), is_rejected)
    assert np.array_equal(np.isnan(columns["ttft_s"]), is_rejected)
    assert (columns["output_tokens"] == np.clip(longest - found.load.prompt, 0, found.load.output)).all()
    summary = found.run.summary
    assert summary.num_rejected == len(found.run.rejected) == is_rejected.sum()
    assert summary.num_finished + summary.num_rejected == summary.num_requests


@every_policy
def test_a_run_in_which_everybody_is_rejected_has_no_steps(name: str) -> None:
    load = Workload.from_columns([0.0, 1.0], [40, 50], [3, 3])
    config = timed_workload(0)["config"] | {"enable_chunked_prefill": True}
    limits = bw.Limits(num_kv_blocks=8, max_model_len=20)
    simulator = bw.Simulator(POLICIES[name](config), bw.Constant(0.02), limits)
    simulator.run(load.requests())
    run = Run(name, load, simulator)
    assert {key: len(column) for key, column in run.steps().items()} == dict.fromkeys(run.steps(), 0)
    assert np.isnan(run.requests()["finished_s"]).all()
    summary = run.summary
    assert (summary.num_finished, summary.num_rejected, summary.num_steps) == (0, 2, 0)
    undefined = (
        summary.duration, summary.output_throughput, summary.total_throughput, summary.ttft.mean,
        summary.tpot.p50, summary.e2e.p99, summary.mean_batch, summary.kv_occupancy, summary.kv_peak,
        summary.hit_rate,
    )  # fmt: skip
    assert np.isnan(undefined).all()


# --- steps -------------------------------------------------------------------------------


@every_policy
@for_every_seed(5)
def test_skipped_steps_are_expanded_to_what_walking_finds(name: str, seed: int) -> None:
    skipped, walked = case(seed, name).run.steps(), case(seed, name, skip=False).run.steps()
    assert skipped.keys() == walked.keys() == {*COUNTS, "start_s", "end_s"}
    for key in COUNTS:
        assert np.array_equal(skipped[key], walked[key]), key
    for key in ("start_s", "end_s"):
        np.testing.assert_allclose(skipped[key], walked[key], rtol=1e-12, atol=0, err_msg=key)


@every_policy
@for_every_seed(5)
def test_every_step_is_the_one_that_the_cost_model_priced(name: str, seed: int) -> None:
    found = case(seed, name, skip=False)
    seen = np.array(found.seen.steps)  # before steps() prices those inside a stretch anew
    columns = found.run.steps()
    assert len(columns["step"]) == found.run.summary.num_steps
    is_priced = (columns["num_decodes"] > 0) | (columns["prefill_tokens"] > 0)
    columns = {name: column[is_priced] for name, column in columns.items()}
    assert len(seen) == len(columns["step"])
    assert np.array_equal(columns["num_decodes"], seen[:, 1])
    if name == "padded":
        assert (columns["prefill_tokens"] <= seen[:, 0]).all()
    else:
        assert np.array_equal(columns["prefill_tokens"], seen[:, 0])


@every_policy
@for_every_seed(5)
def test_steps_follow_each_other_and_wait_only_when_idle(name: str, seed: int) -> None:
    columns = case(seed, name).run.steps()
    start, end = columns["start_s"], columns["end_s"]
    assert np.array_equal(columns["step"], np.arange(len(start)))
    assert (end >= start).all() and (start[1:] >= end[:-1]).all() and start[0] >= 0
    idle = np.flatnonzero(start[1:] > end[:-1])
    assert (columns["running"][idle] == 0).all()


@every_policy
@for_every_seed(5)
def test_first_tokens_and_ends_come_at_ends_of_steps(name: str, seed: int) -> None:
    found = case(seed, name)
    columns, ends = found.run.requests(), found.run.steps()["end_s"]
    assert np.isin(columns["first_token_s"], ends).all()
    assert np.isin(columns["finished_s"], ends).all()
    assert ends[-1] >= columns["finished_s"].max()


@pytest.mark.parametrize("name", LEAVES_AT_ONCE)
@for_every_seed(5)
def test_a_step_counts_the_requests_that_end_with_it(name: str, seed: int) -> None:
    found = case(seed, name)
    ends = found.run.steps()["end_s"]
    places = np.searchsorted(ends, found.run.requests()["finished_s"])
    assert np.array_equal(found.run.steps()["finished"], np.bincount(places, minlength=len(ends)))


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "padded"])
@for_every_seed(12)
def test_a_step_decodes_those_that_have_their_first_token_and_lack_their_last(name: str, seed: int) -> None:
    found = case(seed, name)
    if not found.is_plain:
        return
    requests, columns = found.run.requests(), found.run.steps()
    middle = (columns["start_s"] + columns["end_s"]) / 2
    is_between = (requests["first_token_s"] < middle[:, None]) & (middle[:, None] < requests["finished_s"])
    assert np.array_equal(columns["num_decodes"], is_between.sum(axis=1))


def test_many_random_workloads_preempt_and_many_do_not() -> None:
    plain = [case(seed, "synchronous").is_plain for seed in range(30)]
    assert 5 < sum(plain) < 25


@every_policy
@for_every_seed(5)
def test_what_goes_in_comes_out(name: str, seed: int) -> None:
    found = case(seed, name)
    columns, load = found.run.steps(), found.load
    prefilled = columns["prefill_tokens"].sum() + found.run.requests()["cached_tokens"].sum()
    decoded = columns["num_decodes"].sum()
    if found.is_plain:
        assert prefilled == load.prompt.sum()
        assert decoded == (load.output - 1).sum()
    else:  # the preempted prefill again what they had decoded, and may lose a part of a prompt
        assert prefilled + decoded >= load.prompt.sum() + (load.output - 1).sum()
    assert columns["finished"].sum() == len(load)


@every_policy
@for_every_seed(5)
def test_all_who_have_come_wait_run_or_have_left(name: str, seed: int) -> None:
    found = case(seed, name)
    columns = found.run.steps()
    come = np.searchsorted(found.load.arrival, columns["start_s"], side="right")
    assert np.array_equal(columns["waiting"] + columns["running"] + columns["finished"].cumsum(), come)
    assert columns["waiting"].min() >= 0 and columns["running"].min() >= 0


def test_arrivals_inside_a_step_wait_until_it_has_ended() -> None:
    load = Workload.from_columns([0.0, 0.25, 1.0], [8, 8, 8], [2, 2, 1])
    simulator = bw.Simulator(bw.vllm(async_scheduling=False), bw.Constant(1.0), bw.Limits(num_kv_blocks=50))
    simulator.run(load.requests())
    columns = Run("vllm", load, simulator).steps()
    assert columns["start_s"].tolist() == [0.0, 1.0, 2.0]
    assert columns["prefill_tokens"].tolist() == [8, 16, 0]
    assert columns["num_decodes"].tolist() == [0, 1, 1]
    assert columns["finished"].tolist() == [0, 2, 1]


# --- summary -----------------------------------------------------------------------------


def seated(found: Case) -> np.ndarray:
    """Requests that hold a seat during each step."""
    expanded = steps_of(found.run)
    dropped = np.array([step.dropped for step in expanded])
    columns = found.run.steps()
    return columns["running"] + columns["finished"] - dropped


@every_policy
@for_every_seed(5)
def test_the_mean_batch_is_the_average_over_the_steps(name: str, seed: int) -> None:
    found = case(seed, name)
    columns = found.run.steps()
    seconds = columns["end_s"] - columns["start_s"]
    expected = (seated(found) * seconds).sum() / seconds.sum()
    assert found.run.summary.mean_batch == pytest.approx(expected, rel=1e-9)


@every_policy
@for_every_seed(5)
def test_walked_occupancy_is_the_skipped_one_to_the_last_bit(name: str, seed: int) -> None:
    walked, skipped = (case(seed, name, skip=skip).run.summary for skip in (False, True))
    assert walked.kv_occupancy == skipped.kv_occupancy and walked.kv_peak == skipped.kv_peak


@every_policy
@for_every_seed(5)
def test_skipped_occupancy_errs_at_most_by_half_of_what_each_stretch_takes(name: str, seed: int) -> None:
    found = case(seed, name)
    columns, blocks = found.run.steps(), found.run.limits.blocks
    start, end, free = columns["start_s"], columns["end_s"], columns["free_blocks"]
    exact = ((1 - free / blocks) * (end - start)).sum()
    # Free blocks only fall inside a stretch, so their mean lies between what was free before it and
    # at its end; the estimate takes blocks evenly over its steps.
    after = [blocks] + [step.free_blocks for step in steps_of(found.run)]
    slack, first = 0.0, 0
    for last in np.cumsum(found.run.log.column("steps")):
        if last - first > 1:
            most = max(after[first], free[first]) - free[last - 1]
            slack += most / 2 / blocks * (end[last - 1] - start[first])
        first = last
    busy = (end - start).sum()
    error = abs(found.run.summary.kv_occupancy - exact / busy)
    assert error <= slack / busy + 1e-9
    assert found.run.summary.kv_peak == pytest.approx(1 - free.min() / blocks, rel=1e-12)


@every_policy
@for_every_seed(5)
def test_means_over_time_leave_out_what_was_before_the_first_request_kept(name: str, seed: int) -> None:
    found = case(seed, name, skip=False)
    run, columns = found.run, found.run.steps()
    count = len(run.load) // 2
    since = float(np.sort(run.arrival)[count])
    begins, ends = np.maximum(columns["start_s"], since), np.maximum(columns["end_s"], since)
    kept = run.estimates(skip=count)
    if (ends - begins).sum() == 0 or np.isnan(kept["kv_occupancy_mean"]):
        return
    blocks = run.limits.blocks
    exact = ((1 - columns["free_blocks"] / blocks) * (ends - begins)).sum() / (ends - begins).sum()
    widest = max(run.log.column("taken")) / blocks  # steps of one stretch are counted alike
    assert abs(kept["kv_occupancy_mean"] - exact) <= widest
    expected = (seated(found) * (ends - begins)).sum() / (ends - begins).sum()
    assert kept["mean_batch"] == pytest.approx(expected, rel=1e-9)
    assert kept["kv_occupancy_peak"] == run.estimates()["kv_occupancy_peak"]


@pytest.mark.parametrize("skip", [True, False])
def test_the_occupancy_of_a_growing_request_is_half_of_its_peak(skip: bool) -> None:
    simulator = bw.Simulator(
        bw.vllm(async_scheduling=False),
        bw.Constant(1.0),
        bw.Limits(block_size=1, num_kv_blocks=200),
        skip=skip,
    )
    load = Workload.from_columns([0.0], [1], [101])
    simulator.run(load.requests(block_size=1))
    summary = Run("vllm", load, simulator).summary
    assert summary.kv_peak == pytest.approx(101 / 200)
    assert summary.kv_occupancy == pytest.approx(51 / 200, rel=1e-12)  # of 1, 2, ... 101 blocks


@every_policy
@for_every_seed(5)
def test_preemptions_are_counted_once_in_requests_steps_and_summary(name: str, seed: int) -> None:
    found = case(seed, name)
    expected = sum(r.preemptions for r in found.requests)
    assert found.run.summary.num_preemptions == expected
    assert found.run.steps()["preempted"].sum() == expected
    assert expected == 0 or name in ("vllm", "synchronous")


@pytest.mark.parametrize("name", ["vllm", "synchronous"])
@for_every_seed(12)
def test_the_hit_rate_counts_first_admissions_against_all_prompts(name: str, seed: int) -> None:
    found = case(seed, name)
    first: dict[int, int] = {}
    for step in steps_of(found.run):
        for id, cached in step.admitted:
            first.setdefault(id, cached)
    expected = sum(first.values()) / sum(r.prompt for r in found.requests)
    if expected == 0:  # the workload itself says of no prompt how it begins
        assert np.isnan(found.run.summary.hit_rate)
    else:
        assert found.run.summary.hit_rate == pytest.approx(expected, rel=1e-12)


def test_the_second_of_two_equal_prompts_hits_all_but_its_last_block() -> None:
    load = Workload.from_columns([0.0, 10.0], [512, 512], [4, 4], hash_ids=[[7], [7]])
    simulator = bw.Simulator(bw.vllm(), bw.Constant(0.01), bw.Limits(num_kv_blocks=200))
    simulator.run(load.requests())
    run = Run("vllm", load, simulator)
    assert run.requests()["cached_tokens"].tolist() == [0, 496]
    assert run.summary.hit_rate == 496 / 1024


@every_policy
@for_every_seed(5)
def test_throughput_is_tokens_over_the_time_to_the_last_end(name: str, seed: int) -> None:
    found = case(seed, name)
    duration = max(r.finished for r in found.requests)
    output, prompt = sum(r.true_output for r in found.requests), sum(r.prompt for r in found.requests)
    summary = found.run.summary
    assert summary.duration == duration
    assert summary.output_throughput == pytest.approx(output / duration, rel=1e-12)
    assert summary.total_throughput == pytest.approx((output + prompt) / duration, rel=1e-12)


def test_without_a_kv_cache_occupancy_is_not_applicable() -> None:
    load = Workload.from_columns([0.0], [8], [2])
    simulator = bw.Simulator(bw.vllm(), bw.Constant(1.0))
    simulator.run(load.requests())
    summary = Run("vllm", load, simulator).summary
    assert np.isnan([summary.kv_occupancy, summary.kv_peak]).all()
    assert summary.num_steps == 3 and summary.mean_batch == 1.0


def test_a_difference_of_runs_pairs_their_requests() -> None:
    load = Workload.from_columns(np.arange(100) * 0.5, [64] * 100, [8, 1] * 50)
    limits, cost = bw.Limits(max_num_seqs=4, num_kv_blocks=100), bw.Constant(0.25)
    runs = bw.compare(load, cost, limits, {"a": bw.vllm(), "b": bw.static(4)})
    difference = runs["a"] - runs["b"]
    expected = runs["a"].requests()["ttft_s"] - runs["b"].requests()["ttft_s"]
    assert difference.metric("ttft_s").value == pytest.approx(expected.mean(), rel=1e-12)
    mirrored = (runs["b"] - runs["a"]).metric("ttft_s")
    assert mirrored.value == pytest.approx(-expected.mean(), rel=1e-12)
    lines = str(difference).splitlines()
    assert lines[0].startswith("a - b") and len(lines) == 4
    assert lines[1].startswith(f"  TTFT  {seconds(expected.mean())}  [")
    assert "TPOT  not applicable" in lines[2]


def test_columns_that_are_handed_out_can_be_dropped_without_harm() -> None:
    found = case(3, "vllm")
    found.run.requests().clear()
    found.run.steps().clear()
    assert found.run.requests() and found.run.steps()
