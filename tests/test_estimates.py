"""The flat numbers of a run are those of its summary, and of fewer requests those of these."""

from __future__ import annotations

import numpy as np
import pytest

import batchwright as bw
from batchwright.errors import InputError
from batchwright.metrics import STATISTICS, spread
from batchwright.run import Run
from batchwright.slo import Slo
from batchwright.workload import Workload, closed
from strategies import for_every_seed
from test_history import steps_of
from test_run import case, every_policy, seated

COST = bw.Constant(0.025)
METRICS = {"ttft_s": "ttft", "tpot_s": "tpot", "itl_s": "itl", "e2e_s": "e2e", "normalised_s": "normalised"}


def random_run(count: int, policy: str = "vllm", seed: int = 1) -> Run:
    random = np.random.default_rng(seed)
    load = Workload.from_columns(
        random.exponential(0.2, count).cumsum(), random.integers(1, 90, count), random.integers(1, 60, count)
    )
    return bw.compare(load, COST, bw.Limits(max_num_seqs=16), {"mine": policy})["mine"]


@every_policy
@for_every_seed(8)
def test_without_a_warm_up_they_are_those_of_the_summary(name: str, seed: int) -> None:
    run = case(seed, name).run
    found, summary = run.estimates(), run.summary
    for key, field in METRICS.items():
        for statistic in STATISTICS:
            expected = getattr(getattr(summary, field), statistic)
            assert found[f"{key}.{statistic}"] == pytest.approx(expected, rel=1e-12, nan_ok=True)
    same = {
        "output_throughput": summary.output_throughput, "total_throughput": summary.total_throughput,
        "duration_s": summary.duration, "preemptions": summary.num_preemptions,
        "finished": summary.num_finished, "mean_batch": summary.mean_batch,
        "peak_batch": summary.peak_batch, "kv_occupancy_mean": summary.kv_occupancy,
        "kv_occupancy_peak": summary.kv_peak, "prefix_cache_hit_rate": summary.hit_rate,
    }  # fmt: skip
    for key, value in same.items():
        assert found[key] == pytest.approx(value, rel=1e-12, nan_ok=True), key
    assert found["request_throughput"] == pytest.approx(summary.num_finished / summary.duration, rel=1e-12)
    assert all(isinstance(value, float) for value in found.values())


@pytest.mark.parametrize("skip", [1, 7, 39])
@every_policy
def test_left_out_requests_have_no_part_in_them(name: str, skip: int) -> None:
    run = random_run(40, "static" if name == "padded" else "vllm")
    found, columns = run.estimates(Slo(ttft=1.0), skip), run.requests()
    rest = {key: column[skip:] for key, column in columns.items()}
    for key in ("ttft_s", "tpot_s", "e2e_s", "normalised_s"):
        assert found[f"{key}.p90"] == pytest.approx(spread(rest[key]).p90, nan_ok=True)
    seconds = rest["finished_s"].max() - rest["arrival_s"][0]
    assert found["output_throughput"] == pytest.approx(rest["output_tokens"].sum() / seconds)
    assert found["attainment"] == (rest["ttft_s"] <= 1.0).mean()
    assert found["goodput"] == pytest.approx((rest["ttft_s"] <= 1.0).sum() / seconds)
    if run.is_streamed:
        gaps = run.gaps(np.arange(skip, 40))
        assert gaps.counts.sum() == (rest["output_tokens"] - 1).sum()
        assert found["itl_s.mean"] == pytest.approx((gaps.seconds * gaps.counts).sum() / gaps.counts.sum())


def test_a_warm_up_of_everybody_is_refused() -> None:
    run = random_run(10)
    for skip in (-1, 10):
        with pytest.raises(InputError, match="give 0 to 9"):
            run.estimates(skip=skip)
        with pytest.raises(InputError, match="give 0 to 9"):
            run.interval("e2e_s", skip)


@every_policy
@for_every_seed(5)
def test_the_peak_batch_is_the_most_that_had_a_seat_in_a_step(name: str, seed: int) -> None:
    found = case(seed, name)
    assert found.run.summary.peak_batch == seated(found).max() <= found.run.seats
    assert len(steps_of(found.simulator)) == found.run.summary.num_steps


@every_policy
@for_every_seed(5)
def test_normalised_latency_is_end_to_end_time_per_token(name: str, seed: int) -> None:
    columns = case(seed, name).run.requests()
    np.testing.assert_array_equal(columns["normalised_s"], columns["e2e_s"] / columns["output_tokens"])


# --- intervals of a run ------------------------------------------------------------------


def test_intervals_of_a_run_are_around_its_estimates() -> None:
    run = random_run(3000)
    found = run.estimates(skip=100)
    for name in ("ttft_s.mean", "e2e_s.p95", "itl_s.mean", "itl_s.p99", "tpot_s.p50"):
        interval = run.interval(name, skip=100)
        assert interval.value == pytest.approx(found[name], rel=1e-9)
        assert interval.is_known and interval.low <= interval.value <= interval.high
    assert run.interval("e2e_s") == run.interval("e2e_s.mean")


def test_a_difference_of_gaps_is_that_of_their_statistics() -> None:
    load = random_run(1200).load
    cost, limits = bw.Linear(0.01, 1e-4, 1e-3), bw.Limits(max_num_seqs=64)
    few, many = (
        bw.compare(load, cost, limits, {"mine": f"vllm(max_num_seqs={seats})"})["mine"] for seats in (4, 64)
    )
    found = (few - many).metric("itl_s.p95")
    expected = few.summary.itl.p95 - many.summary.itl.p95
    assert found.value == pytest.approx(expected) and found.is_known and found.high < 0
    nothing = bw.compare(load, COST, policies={"a": "static"})["a"] - many
    assert np.isnan(nothing.metric("itl_s").value) and not nothing.metric("itl_s").is_known


@pytest.mark.parametrize("name", ["ttft", "e2e_s.p98", "mean_batch", ""])
def test_other_names_have_no_interval(name: str) -> None:
    run = random_run(10)
    with pytest.raises(InputError, match="is called"):
        run.interval(name)
    with pytest.raises(InputError, match="is called"):
        (run - run).metric(name)


# --- warm-up -----------------------------------------------------------------------------


def test_a_made_load_that_fills_a_server_slowly_has_a_warm_up() -> None:
    load = bw.Workload.open("poisson(rate=9, n=3000, prompt=20, output=1000)")
    run = bw.compare(load, COST, bw.Limits(max_num_seqs=1024), {"vllm": "vllm"})["vllm"]
    assert run.warm_up() == 0  # steps are constant, so nobody is slowed down by others
    slow = bw.compare(load, bw.Linear(0.005, decode=8e-5), bw.Limits(max_num_seqs=1024), {"v": "vllm"})["v"]
    skip = slow.warm_up()
    e2e = slow.requests()["e2e_s"]
    assert 50 <= skip <= 1500 and e2e[:skip].mean() < 0.95 * e2e[skip:].mean()


def test_traces_and_loads_that_come_at_once_have_no_warm_up() -> None:
    load = bw.Workload.open("poisson(rate=9, n=800, prompt=20, output=500)")
    cost, limits = bw.Linear(0.005, decode=8e-5), bw.Limits(max_num_seqs=1024)
    read = Workload.from_columns(load.arrival, load.prompt, load.output)
    assert bw.compare(read, cost, limits, {"v": "vllm"})["v"].warm_up() == 0
    burst = bw.Workload.open("burst(n=300, prompt=20, output=50)")
    assert bw.compare(burst, cost, limits, {"v": "vllm"})["v"].warm_up() == 0


def test_a_closed_loop_is_counted_from_when_its_requests_really_came() -> None:
    load = closed(clients=8, think=0.5, n=300, prompt=20, output=10)
    run = bw.compare(load, COST, bw.Limits(max_num_seqs=4), {"vllm": "vllm"})["vllm"]
    found = run.estimates(skip=50)
    kept = np.argsort(run.arrival, kind="stable")[50:]
    assert found["e2e_s.mean"] == pytest.approx(run.requests()["e2e_s"][kept].mean())
    assert 0 <= run.warm_up() <= 150 and not run.saturation().is_saturated
    assert run.windows(1.0)[-1].end >= run.span
