"""Repeats: the same requests for all policies, intervals that cover, and winners only beyond doubt."""

from __future__ import annotations

from math import isnan

import numpy as np
import pytest

import batchwright as bw
from batchwright.errors import InputError
from batchwright.interval import t_interval
from batchwright.replications import HIGHER, is_ranked, loads
from batchwright.workload import Workload
from strategies import for_every_seed

COST = bw.Constant(0.02)
LIMITS = bw.Limits(max_num_seqs=8)
POISSON = "poisson(n=300, rate=8, prompt=uniform(10, 200), output=uniform(5, 40))"


def trace(seed: int = 0, count: int = 300) -> Workload:
    random = np.random.default_rng(seed)
    gaps = random.exponential(0.2, count)
    return Workload.from_columns(
        np.cumsum(gaps), random.integers(1, 200, count), random.integers(1, 40, count), name="trace"
    )


def test_a_made_load_is_made_again_with_other_seeds() -> None:
    runs = bw.compare(Workload.open(POISSON), COST, LIMITS, {"vllm": "vllm"}, repeat=4)
    assert runs.estimates.method == "replications" and runs.estimates.num_loads == 4
    values = [load["e2e_s.mean"] for load in runs.estimates.values["vllm"]]
    assert len(set(values)) == 4
    assert runs.estimates.interval("vllm", "e2e_s.mean") == t_interval(values)


@pytest.mark.parametrize("load", [Workload.open(POISSON), trace()], ids=["made", "trace"])
def test_the_limits_are_those_that_all_loads_need(load: Workload) -> None:
    needed = max(int((one.prompt + one.max_tokens).max()) for one in loads(load, 5))
    assert bw.compare(load, COST, LIMITS, {"orca": "orca(4)"}, repeat=5).limits.max_model_len == needed


def test_a_trace_that_cannot_be_resampled_is_refused_before_anything_runs() -> None:
    load = Workload.from_columns([0.0, np.nan], [5, 5], [3, 3], after=[-1, 0])
    with pytest.raises(InputError, match="cannot be resampled"):
        bw.compare(load, COST, LIMITS, {"vllm": must_not_run}, repeat=2)


def must_not_run(b: bw.Batch) -> None:
    raise AssertionError("the policy is asked")


def test_a_trace_is_resampled_around_itself() -> None:
    load = trace()
    alone = bw.compare(load, COST, LIMITS, {"vllm": "vllm"})
    runs = bw.compare(load, COST, LIMITS, {"vllm": "vllm"}, repeat=5)
    assert runs.estimates.method == "bootstrap"
    assert (runs.estimates.num_loads, runs.estimates.num_replications) == (6, 5)
    found = runs.estimates.interval("vllm", "e2e_s.mean")
    assert found.value == alone.estimates.values["vllm"][0]["e2e_s.mean"]
    assert found.low < found.value < found.high


def test_every_policy_meets_the_same_requests_in_every_load() -> None:
    runs = bw.compare(trace(), COST, LIMITS, {"a": "vllm", "b": "vllm", "c": "static(4)"}, repeat=3)
    assert runs.estimates.values["a"] == runs.estimates.values["b"]
    assert runs.difference("a", "b", "e2e_s.p99").value == 0
    assert runs.winner("e2e_s.p99") is None  # two that are alike


def test_the_same_comparison_gives_the_same_loads_and_numbers() -> None:
    first, again = (bw.compare(Workload.open(POISSON), COST, LIMITS, {"v": "vllm"}, repeat=3) for _ in "ab")
    assert first.to_json() == again.to_json()
    other = bw.compare(Workload.open(POISSON, seed=7), COST, LIMITS, {"v": "vllm"}, repeat=3)
    assert other.estimates.digest != first.estimates.digest


def test_the_longest_request_of_all_loads_sets_max_model_len() -> None:
    load = Workload.open("poisson(n=50, rate=8, prompt=geometric(mean=200), output=geometric(mean=30))")
    runs = bw.compare(load, COST, bw.Limits(max_num_seqs=4), {"vllm": "vllm"}, repeat=6)
    assert runs["vllm"].summary.num_rejected == 0
    longest = max(int((one.prompt + one.max_tokens).max()) for one in loads(load, 6))
    assert runs.limits.max_model_len == longest


@for_every_seed(12)
def test_a_winner_is_better_than_all_others_by_its_paired_intervals(seed: int) -> None:
    load = Workload.open(POISSON, seed=seed)
    policies = {"static": "static(4)", "dynamic": "dynamic(8)", "vllm": "vllm", "orca": "orca(6)"}
    runs = bw.compare(load, COST, LIMITS, policies, repeat=[1, 4][seed % 2])
    for metric in runs.estimates.values["vllm"][0]:
        winner = runs.winner(metric)
        if winner is None:
            continue
        assert is_ranked(metric)
        sign = 1 if metric in HIGHER else -1
        for other in policies:
            gap = runs.difference(winner, other, metric)
            if other != winner and not isnan(gap.value):
                assert gap.is_clear and gap.value * sign > 0


def test_a_policy_without_a_metric_never_wins_it() -> None:
    runs = bw.compare(trace(), COST, LIMITS, {"static": "static(4)", "vllm": "vllm"}, repeat=4)
    assert isnan(runs.estimates.interval("static", "tpot_s.mean").value)
    assert runs.winner("tpot_s.mean") is None and runs.winner("itl_s.p99") is None


def test_of_two_equal_policies_none_wins_though_they_are_run_often() -> None:
    runs = bw.compare(trace(), COST, LIMITS, {"a": "vllm", "b": "vllm"}, repeat=4)
    assert all(winner is None for winner in runs.to_json()["winners"].values())


@pytest.mark.parametrize("repeat", [1, 6])
def test_a_difference_has_the_sign_of_its_order(repeat: int) -> None:
    runs = bw.compare(trace(), COST, LIMITS, {"s": "static(4)", "v": "vllm"}, repeat=repeat)
    for metric in ("ttft_s.mean", "e2e_s.p50", "output_throughput"):
        there, back = runs.difference("s", "v", metric), runs.difference("v", "s", metric)
        assert there.value == pytest.approx(-back.value)
        assert there.low == pytest.approx(-back.high, nan_ok=True)


def test_the_batch_size_of_auto_is_found_on_the_first_load_and_kept() -> None:
    runs = bw.compare(trace(), COST, LIMITS, {"auto": "static(batch_size=auto)"}, repeat=2)
    size = int(runs["auto"].note.split("batch_size is ")[1].split(",")[0])
    fixed = bw.compare(trace(), COST, LIMITS, {"auto": f"static(batch_size={size})"}, repeat=2)
    assert runs.estimates.values == fixed.estimates.values


def test_objectives_are_text_or_values_and_give_attainment_and_goodput() -> None:
    runs = bw.compare(trace(), COST, LIMITS, {"v": "vllm"}, slo="ttft=300ms,tpot=30ms")
    values = runs.estimates.values["v"][0]
    assert 0 < values["attainment"] <= 1 and 0 < values["goodput"] <= values["request_throughput"]
    assert "SLO attainment" in runs.table()
    assert runs.to_json()["slo"] == {"ttft_s": 0.3, "tpot_s": 0.03}
    assert "SLO attainment" not in bw.compare(trace(), COST, LIMITS, {"v": "vllm"}).table()


@pytest.mark.parametrize("repeat", [0, -1, 1.5, True, 10**9])
def test_a_number_of_repeats_that_makes_no_sense_is_refused(repeat: int) -> None:
    with pytest.raises(InputError, match="repeat is"):
        bw.compare(trace(), COST, LIMITS, {"v": "vllm"}, repeat=repeat)


def test_intervals_of_replications_cover_the_mean_about_as_often_as_they_say() -> None:
    """95 % of them, but for chance: 40 intervals of 6 loads, around the mean of all 240."""
    text = "poisson(n=60, rate=6, prompt=uniform(10, 200), output=uniform(5, 40))"
    found = [
        bw.compare(Workload.open(text, seed=1000 * k), COST, LIMITS, {"v": "vllm"}, repeat=6).estimates
        for k in range(40)
    ]
    mean = np.mean([load["e2e_s.mean"] for one in found for load in one.values["v"]])
    intervals = [one.interval("v", "e2e_s.mean") for one in found]
    covered = sum(interval.low <= mean <= interval.high for interval in intervals)
    assert 34 <= covered <= 40  # binomial(40, 0.95): below 34 once in 700
