"""A comparison runs every policy on the same requests, limits and cost, and says what it chose."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import batchwright as bw
from batchwright.errors import BatchwrightError, InputError, LimitError
from batchwright.settled import kv_blocks, settle
from batchwright.workload import Workload, poisson

COST = bw.Linear(base=0.01, prefill=2e-5, decode=1e-4, context=1e-7)
THREE: Mapping[str, str] = {"static": "static(4)", "dynamic": "dynamic(4)", "vllm": "vllm"}
SEVEN = {**THREE, "orca": "orca(4)", "shrinks": "static(4, padded=false, streamed=true)",
         "old": "vllm@0.19(async_scheduling=false)", "urgent": "vllm(policy=priority)"}  # fmt: skip


def load_of(count: int = 80, rate: float = 8.0, seed: int = 1) -> Workload:
    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.exponential(1 / rate, count))
    return Workload.from_columns(arrival, random.integers(1, 400, count), random.integers(1, 90, count))


TIGHT = bw.Limits(max_num_seqs=16, num_kv_blocks=60)


# --- what comes back ---------------------------------------------------------------------


def test_runs_are_a_mapping_in_the_order_that_was_given() -> None:
    runs = bw.compare(load_of(), COST, TIGHT, THREE)
    assert isinstance(runs, Mapping) and list(runs) == list(THREE) and len(runs) == 3
    assert [run.name for run in runs.values()] == list(THREE)
    assert "vllm" in runs and runs["vllm"] is dict(runs)["vllm"]
    assert runs.limits is runs["static"].limits and runs.load is runs["static"].load


def test_a_run_with_an_unknown_name_is_an_error_with_the_nearest_name() -> None:
    runs = bw.compare(load_of(), COST, TIGHT, THREE)
    with pytest.raises(InputError, match=r"no run is called 'vlm'; did you mean 'vllm'\?"):
        runs["vlm"]
    with pytest.raises(InputError, match="known: dynamic, static, vllm"):
        runs["zzz"]


def test_asking_for_a_run_that_is_not_there_works_as_for_any_mapping() -> None:
    runs = bw.compare(load_of(), COST, TIGHT, THREE)
    assert "nobody" not in runs
    assert runs.get("nobody") is None


def test_without_policies_static_dynamic_and_continuous_are_compared() -> None:
    runs = bw.compare(load_of(), COST, bw.Limits(num_kv_blocks=1000))
    named = bw.compare(
        load_of(), COST, bw.Limits(num_kv_blocks=1000),
        {"static": bw.static(), "dynamic": bw.dynamic(), "continuous": bw.vllm()},
    )  # fmt: skip
    assert runs.to_json() == named.to_json()


@pytest.mark.parametrize("text", SEVEN.values())
def test_a_policy_may_be_its_text(text: str) -> None:
    load = load_of()
    runs = bw.compare(load, COST, TIGHT, {"text": text, "object": bw.policy(text)})
    assert runs["text"].summary == runs["object"].summary


def test_a_policy_that_is_a_function_is_run() -> None:
    def one_by_one(b: bw.Batch) -> None:
        if b.edits == 0 and b.num_running == 0 and b.num_waiting > 0:
            b.admit(b.waiting.first(), b.waiting.first().prompt)

    run = bw.compare(load_of(), COST, TIGHT, {"mine": one_by_one})["mine"]
    assert run.summary.num_finished == 80 and run.summary.mean_batch == pytest.approx(1.0)


@pytest.mark.parametrize("text", ["vlm", "static(batch=3)", "vllm@0.1", ""])
def test_a_policy_text_that_is_wrong_is_an_error(text: str) -> None:
    with pytest.raises(BatchwrightError):
        bw.compare(load_of(), COST, TIGHT, {"mine": text})


def test_the_same_comparison_gives_the_same_numbers() -> None:
    one, two = (bw.compare(load_of(), COST, TIGHT, SEVEN) for _ in range(2))
    assert one.to_json() == two.to_json()


def test_no_policy_changes_what_another_one_does() -> None:
    together = bw.compare(load_of(), COST, TIGHT, SEVEN).to_json()["policies"]
    for name, text in SEVEN.items():
        assert bw.compare(load_of(), COST, TIGHT, {name: text}).to_json()["policies"] == {
            name: together[name]
        }


# --- limits that are left open -----------------------------------------------------------


def test_the_longest_request_sets_max_model_len() -> None:
    load = Workload.from_columns([0, 1, 2], [100, 10, 50], [5, 90, 60], max_tokens=[8, 95, 60])
    assert settle(bw.Limits(), COST, load).max_model_len == 110
    assert settle(bw.Limits(max_model_len=99), COST, load).max_model_len == 99


def test_a_cost_without_a_gpu_does_not_model_memory() -> None:
    assert settle(bw.Limits(), COST, load_of()).num_kv_blocks is None
    assert settle(bw.Limits(), bw.Hosted(COST), load_of()).num_kv_blocks is None


@pytest.mark.parametrize("wrap", [lambda cost: cost, bw.Hosted])
def test_a_roofline_brings_its_kv_blocks(wrap: type[bw.Hosted]) -> None:
    roofline = bw.Roofline("H100-SXM", "llama-3.1-8b")
    limits = bw.Limits(max_num_seqs=128, max_num_batched_tokens=4096, block_size=32)
    settled = settle(limits, wrap(roofline), load_of())
    assert settled.num_kv_blocks == roofline.num_kv_blocks(0.92, 32, 4096, 128)
    assert kv_blocks(limits, wrap(roofline), 0.5) == roofline.num_kv_blocks(0.5, 32, 4096, 128)
    given = settle(bw.Limits(num_kv_blocks=77, max_model_len=99), wrap(roofline), load_of())
    assert (given.num_kv_blocks, given.max_model_len) == (77, 99)


def test_the_model_bounds_max_model_len() -> None:
    roofline = bw.Roofline("H100-SXM", "llama-3.1-8b")
    load = Workload.from_columns([0], [200_000], [10])
    assert settle(bw.Limits(), roofline, load).max_model_len == roofline.model.max_position_embeddings


def test_runs_keep_the_limits_that_were_used() -> None:
    load = load_of()
    runs = bw.compare(load, COST, bw.Limits(num_kv_blocks=500), {"vllm": "vllm"})
    assert runs.limits == settle(bw.Limits(num_kv_blocks=500), COST, load)
    assert runs["vllm"].limits == runs.limits


def test_a_cache_that_cannot_hold_one_request_is_an_error() -> None:
    with pytest.raises(LimitError, match="cannot fit 10 KV blocks of 16"):
        bw.compare(load_of(), COST, bw.Limits(num_kv_blocks=10), THREE)


# --- progress ----------------------------------------------------------------------------


@pytest.mark.parametrize("load", [load_of(), load_of(1), poisson(50, rate=0.2, prompt=9, output=3)],
                         ids=["busy", "one", "idle"])  # fmt: skip
def test_progress_grows_to_one_for_every_policy_in_turn(load: Workload) -> None:
    reports: list[tuple[str, float]] = []
    bw.compare(load, COST, TIGHT, THREE, progress=lambda name, share: reports.append((name, share)))
    order = [name for i, (name, _) in enumerate(reports) if i == 0 or reports[i - 1][0] != name]
    assert order == list(THREE)
    for name in THREE:
        shares = [share for reported, share in reports if reported == name]
        assert shares == sorted(set(shares)) and shares[-1] == 1.0 and shares[0] > 0.0


def with_and_without_progress(name: str, seed: int) -> list[bw.Runs]:
    load = load_of(seed=seed)
    return [
        bw.compare(load, COST, TIGHT, {name: SEVEN[name]}, progress=progress)
        for progress in (None, lambda name, share: None)
    ]


@pytest.mark.parametrize("name", SEVEN)
@pytest.mark.parametrize("seed", [1, 2])
def test_reporting_on_the_way_changes_no_request_and_no_step(name: str, seed: int) -> None:
    quiet, heard = (runs[name] for runs in with_and_without_progress(name, seed))
    for key, column in quiet.requests().items():
        assert np.array_equal(column, heard.requests()[key], equal_nan=True), key
    for key, column in quiet.steps().items():
        if key in ("start_s", "end_s"):
            np.testing.assert_allclose(column, heard.steps()[key], rtol=1e-12, atol=0)
        else:
            assert np.array_equal(column, heard.steps()[key]), key


@pytest.mark.parametrize("name", SEVEN)
@pytest.mark.parametrize("seed", [1, 2])
def test_reporting_on_the_way_changes_no_number_of_the_summary(name: str, seed: int) -> None:
    quiet, heard = with_and_without_progress(name, seed)
    assert quiet.to_json() == heard.to_json()


# --- what the numbers are ----------------------------------------------------------------


def test_one_request_alone_waits_for_nobody() -> None:
    load = Workload.from_columns([5.0], [100], [11])
    runs = bw.compare(load, bw.Constant(0.5), None, {**SEVEN, "dynamic": "dynamic(4, window=0)"})
    for name, run in runs.items():
        summary = run.summary
        assert summary.num_finished == 1 and summary.duration == 5.5, name
        assert summary.e2e.mean == 5.5 and summary.mean_batch == 1.0
        assert summary.output_throughput == 2.0 and summary.total_throughput == pytest.approx(111 / 5.5)
        assert summary.ttft.p99 == (5.5 if name == "static" else 0.5)
        assert np.isnan(summary.tpot.mean) if name == "static" else summary.tpot.mean == 0.5


def test_dynamic_waits_for_its_window_or_the_end_of_the_load_only() -> None:
    load = Workload.from_columns([0.0], [100], [1])
    run = bw.compare(load, bw.Constant(0.5), None, {"d": "dynamic(4, window=2.0)"})["d"]
    assert run.summary.ttft.mean == 2.5


@pytest.mark.parametrize("seed", range(4))
def test_who_sees_no_stream_has_no_tpot_and_its_first_token_with_its_last(seed: int) -> None:
    runs = bw.compare(load_of(seed=seed), COST, TIGHT, SEVEN)
    static = runs["static"]
    assert not static.summary.tpot.is_defined and np.isnan(static.requests()["tpot_s"]).all()
    assert static.summary.ttft == static.summary.e2e
    for name in ("shrinks", "dynamic", "vllm"):
        assert runs[name].summary.tpot.is_defined
        assert runs[name].summary.ttft.mean < runs[name].summary.e2e.mean


@pytest.mark.parametrize("name", SEVEN)
def test_prompts_that_reach_max_model_len_are_rejected_by_every_policy(name: str) -> None:
    load = load_of()
    limits = bw.Limits(max_num_seqs=16, num_kv_blocks=60, max_model_len=200)
    run = bw.compare(load, COST, limits, {name: SEVEN[name]})[name]
    expected = np.flatnonzero(load.prompt >= 200)
    assert 0 < len(expected) < len(load)
    assert run.rejected == expected.tolist() and run.summary.num_rejected == len(expected)
    assert run.summary.num_finished == len(load) - len(expected)
    over = (load.prompt < 200) & (load.prompt + load.output > 200)
    assert over.any()
    assert (run.requests()["output_tokens"][over] == 200 - load.prompt[over]).all()
    assert run.summary.num_cut == over.sum()


def test_static_auto_is_the_batch_size_with_the_lowest_mean_end_to_end_time() -> None:
    load, limits = Workload.open("chat").head(200), bw.Limits(max_num_seqs=64, num_kv_blocks=20_000)
    found = bw.compare(load, COST, limits, {"auto": "static(batch_size=auto)"})["auto"]
    sizes = {str(size): bw.static(size) for size in (1, 2, 4, 8, 16, 32, 64)}
    means = {name: run.summary.e2e.mean for name, run in bw.compare(load, COST, limits, sizes).items()}
    best = min(means, key=lambda name: means[name])
    assert found.summary.e2e.mean == means[best] and f"batch_size is {best}," in found.note
    with pytest.raises(InputError, match="auto"):
        bw.Simulator(bw.static("auto"), COST, limits)
    with pytest.raises(InputError, match="batch_size is 'best'"):
        bw.static("best")
