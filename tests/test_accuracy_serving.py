"""Predicted against measured on GPU runs: what is compared, and, where the data is there, that it holds."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from batchwright.accuracy import rtx4090, rtx_pro_6000, rtx_pro_6000_fitted
from batchwright.accuracy.rtx_pro_6000_fitted import fitted_step
from batchwright.accuracy.serving import WORKLOAD, GpuRun, mean_row, percentile_row
from batchwright.errors import InputError
from layer_folders import FOLDER

DATA = os.environ.get("BATCHWRIGHT_DATA")
needs_data = pytest.mark.skipif(DATA is None, reason="BATCHWRIGHT_DATA names no folder of measurements")
SUMMARY = """Metric   vLLM   Sim   Diff%
TTFT Mean  100.0  110.0  +10.0%
TTFT P99  200.0  190.0  -5.0%
Latency Mean  1000.0  1010.0  +1.0%
"""
STEP = 0.0007


@pytest.fixture
def run(tmp_path: Path) -> GpuRun:
    """A run of 200 requests whose measured times are those predicted with a constant of `STEP`."""
    root = tmp_path / "vllm_gpu"
    shutil.copytree(FOLDER, root / "profiles" / "MADE")
    found = GpuRun(tmp_path, "MADE")
    found.folder.mkdir(parents=True)
    asked = [
        {
            "input_toks": 40 + 7 * i % 90,
            "output_toks": 5 + i % 40,
            "prefix_block_hashes": [f"h{i % 9}", f"t{i}"],
        }
        for i in range(200)
    ]
    (root / WORKLOAD).write_text("\n".join(json.dumps(row) for row in asked))
    engine = {"max_num_seqs": 16, "max_num_batched_tokens": 256, "max_model_len": 512}
    (found.folder / "meta.json").write_text(json.dumps({"engine_kwargs": engine}))
    (found.folder / "sim_vs_vllm_summary.txt").write_text(SUMMARY)
    rows = [row | {"request_id": str(i), "arrival_time": 1e9 + i / 64} for i, row in enumerate(asked)]
    write(found, rows)
    predicted, _ = GpuRun(tmp_path, "MADE").predict(STEP)
    for row, ttft, e2e in zip(rows, predicted["TTFT"], predicted["E2E"], strict=True):
        row |= {"queued_ts": 50.0, "first_token_ts": 50.0 + ttft, "last_token_ts": 50.0 + e2e}
    write(found, rows)
    return found


def write(run: GpuRun, rows: list[dict[str, object]]) -> None:
    (run.folder / "requests.jsonl").write_text("\n".join(json.dumps(row) for row in rows))


def test_measured_times_count_from_when_the_engine_took_the_request(run: GpuRun) -> None:
    row = run.rows[7]
    assert run.measured["TTFT"][7] == row["first_token_ts"] - row["queued_ts"]
    assert run.measured["E2E"][7] == row["last_token_ts"] - row["queued_ts"]
    gaps = row["output_toks"] - 1
    assert run.measured["TPOT"][7] == pytest.approx((row["last_token_ts"] - row["first_token_ts"]) / gaps)


def test_requests_have_the_arrivals_of_the_run_and_the_prefixes_of_the_workload(run: GpuRun) -> None:
    requests = run.requests()
    assert [r.arrival for r in requests[:3]] == [0.0, 1 / 64, 2 / 64]
    assert requests[0].prefix[0] == requests[9].prefix[0] != requests[1].prefix[0]
    assert len(requests[0].prefix) == 2 and requests[0].prompt == 40


def test_memory_is_modelled_where_the_engine_said_how_many_blocks_it_has(run: GpuRun) -> None:
    assert run.limits().num_kv_blocks is None and run.limits().max_num_seqs == 16
    known = run.meta | {"kv_cache": {"num_gpu_blocks": 100}}
    (run.folder / "meta.json").write_text(json.dumps(known))
    limits = GpuRun(run.data, run.card).limits()
    assert limits.num_kv_blocks == 99 and limits.max_model_len == 512  # one is the null block


def test_rows_name_what_the_other_simulator_said(run: GpuRun) -> None:
    predicted, preemptions = run.predict(STEP)
    row = mean_row(run, predicted, "TTFT", 0.01)
    assert (row.others, row.bound, preemptions) == ({"LLMServingSim 2": 0.11}, 0.01, 0)
    assert row.holds and abs(row.error) < 1e-9
    assert mean_row(run, predicted, "E2E", 0.01).others == {"LLMServingSim 2": pytest.approx(1.01)}
    assert mean_row(run, predicted, "E2E", 0.01, slice(150, None)).others == {}
    tail = percentile_row(run, predicted, "TTFT", 99, 0.02)
    assert tail.measured == np.percentile(run.measured["TTFT"], 99) and tail.what == "P99 TTFT"


def test_the_constant_of_a_step_is_found_from_the_first_half(run: GpuRun) -> None:
    assert fitted_step(run) == pytest.approx(STEP, abs=2e-6)
    for row in run.rows[150:]:
        row["last_token_ts"] += 100.0  # of which nothing is read
    write(run, run.rows)
    assert fitted_step(GpuRun(run.data, run.card)) == pytest.approx(STEP, abs=2e-6)


def test_a_run_that_no_constant_explains_is_refused(run: GpuRun) -> None:
    for row in run.rows:
        row["last_token_ts"] = row["first_token_ts"] + 1e-6
    write(run, run.rows)
    with pytest.raises(InputError, match=r"no constant of 0 to 0\.01 s a step gives the measured TPOT"):
        fitted_step(GpuRun(run.data, run.card))


def test_another_workload_than_that_of_the_run_is_refused(run: GpuRun) -> None:
    path = run.root / WORKLOAD
    path.write_text(path.read_text().replace('"input_toks": 40,', '"input_toks": 41,', 1))
    with pytest.raises(InputError, match="request 0 is not that of"):
        run.requests()


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"meta\.json: cannot be read"):
        GpuRun(tmp_path, "MADE").limits()


@pytest.mark.parametrize("name", ["meta.json", "requests.jsonl"])
def test_a_run_that_is_cut_is_named(run: GpuRun, name: str) -> None:
    path = run.folder / name
    path.write_text(path.read_text(encoding="utf-8").rstrip()[:-1], encoding="utf-8")
    with pytest.raises(InputError, match=f"{name}: cannot be read; give the file as it was published"):
        run.requests() and run.limits()


@needs_data
@pytest.mark.parametrize(
    "study", [rtx4090.study, rtx_pro_6000_fitted.study], ids=["RTX 4090", "RTX PRO 6000, fitted"]
)
def test_predictions_hold_what_is_promised(study: object) -> None:
    assert DATA is not None and callable(study)
    rows = study(Path(DATA) / "measured").rows
    assert [row.what for row in rows if not row.holds] == []
    assert sum(row.bound < 1 for row in rows) >= 3


@needs_data
def test_unfitted_the_other_card_is_as_near_as_the_other_simulator() -> None:
    assert DATA is not None
    for row in rtx_pro_6000.study(Path(DATA) / "measured").rows[:3]:
        other = row.others["LLMServingSim 2"] / row.measured - 1
        assert abs(row.error) < 0.045 and abs(row.error) < abs(other) + 0.003
