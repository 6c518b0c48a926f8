"""Folders: of LLMServingSim's bench, and our own runs."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchwright import Workload, compare
from batchwright.errors import InputError
from batchwright.imported import Imported, read
from batchwright.run_folder import write
from batchwright.scenario import Scenario

pytestmark = pytest.mark.pure

META: dict[str, Any] = {
    "schema_version": 1, "model": "a/b", "vllm_version": "0.19.0", "num_requests": 3,
    "engine_kwargs": {"model": "a/b", "tensor_parallel_size": 2, "max_num_seqs": 4, "max_model_len": None,
                      "kv_cache_dtype": "auto"},
    "kv_cache": {"num_gpu_blocks": 2588, "block_size": 16, "gpu_memory_utilization": 0.9},
    "hardware": {"device_name": "NVIDIA GeForce RTX 4090"},
    "resolved_config": {"scheduler_config": {"async_scheduling": True, "max_num_batched_tokens": 2048}},
}  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"request_id": "1", "input_toks": 30, "output_toks": 5, "arrival_time": 1000.5, "queued_ts": 50.75,
     "scheduled_ts": 51.0, "first_token_ts": 51.25, "last_token_ts": 52.25},
    {"request_id": "0", "input_toks": 20, "output_toks": 1, "arrival_time": 1000.0, "queued_ts": 50.125,
     "scheduled_ts": 50.125, "first_token_ts": 50.5, "last_token_ts": 50.5},
    {"request_id": "2", "input_toks": 10, "output_toks": 9, "arrival_time": 1001.0, "queued_ts": 51.5,
     "scheduled_ts": None, "first_token_ts": None, "last_token_ts": None},
]  # fmt: skip
TITLES = "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct"
SERIES = f"{TITLES}\n1.0,50.0,2.0,4,2,12.5\n2.0,0.0,4.0,2,0,50.0\n"


def bench(folder: Path, rows: list[dict[str, Any]] = ROWS, series: str = SERIES, **meta: Any) -> Imported:
    folder.mkdir(exist_ok=True)
    (folder / "meta.json").write_text(json.dumps({**META, **meta}))
    (folder / "requests.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "timeseries.csv").write_text(series)
    return read(folder)


def texts(found: Imported, is_wrong: bool | None = None) -> list[str]:
    return [one.text for one in found.findings if is_wrong is None or one.is_wrong == is_wrong]


def test_a_bench_folder_gives_its_requests_by_its_own_times_in_order_of_arrival(tmp_path: Path) -> None:
    found = bench(tmp_path / "run")
    requests = found.requests
    assert requests is not None
    assert requests["prompt_tokens"].tolist() == [20, 30, 10]
    assert requests["arrival_s"].tolist() == [0.0, 0.5, 1.0]
    np.testing.assert_array_equal(requests["ttft_s"], [0.375, 0.5, np.nan])
    np.testing.assert_array_equal(requests["e2e_s"], [0.375, 1.5, np.nan])
    np.testing.assert_array_equal(requests["tpot_s"], [np.nan, 0.25, np.nan])
    assert requests["is_completed"].tolist() == [1, 1, 0]
    # The two clocks differ by 949.875 s, of the request that was quickest to reach the engine.
    np.testing.assert_array_equal(requests["queued_s"], [0.0, 0.625, 1.375])
    np.testing.assert_array_equal(requests["finished_s"], [0.375, 2.125, np.nan])
    assert found.totals["duration_s"] == 2.125 and found.totals["num_completed"] == 2


def test_a_bench_folder_tells_its_server_in_our_words(tmp_path: Path) -> None:
    found = bench(tmp_path / "run")
    assert found.about == {
        "engine": "vllm", "engine_version": "0.19.0", "gpu": "NVIDIA GeForce RTX 4090", "model": "a/b",
        "tp": 2,
        "max_num_seqs": 4, "max_num_batched_tokens": 2048, "async_scheduling": True, "num_gpu_blocks": 2588,
        "block_size": 16, "gpu_memory_utilization": 0.9,
    }  # fmt: skip
    assert found.series is not None and found.series["kv_usage"].tolist() == [0.125, 0.5]


def test_how_late_requests_reach_the_engine_is_told(tmp_path: Path) -> None:
    found = bench(tmp_path / "run")
    late = [0.0, 0.125, 0.375]
    assert any(
        f"{sum(late) / 3:.3g} s after arrival_time on average, 0.375 s at most" in text
        for text in texts(found)
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_requests": 4}, "meta.json tells of 4 requests, requests.jsonl has 3"),
        ({"series": SERIES.replace(",4,2,", ",5,2,")}, "5 requests run at once, over max_num_seqs 4"),
        (
            {"rows": [{**ROWS[0], "first_token_ts": 50.8}, *ROWS[1:]]},
            "1 of 3 requests have first_token_s before scheduled_s",
        ),
    ],
)  # fmt: skip
def test_what_a_bench_folder_contradicts_is_wrong(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    assert any(text.startswith(said) for text in texts(bench(tmp_path / "run", **change), is_wrong=True))


def steady(folder: Path, seconds: int = 200, waiting: int = 1, rate: float = 20.0) -> Imported:
    """Two requests are always in the engine: one runs for 2 s and yields 40 tokens, one waits."""
    rows = [
        {"input_toks": 10, "output_toks": 40, "arrival_time": 2.0 * i, "queued_ts": 2.0 * i,
         "scheduled_ts": 2.0 * i + 2, "first_token_ts": 2.0 * i + 2.5, "last_token_ts": 2.0 * i + 4}
        for i in range(seconds // 2)
    ]  # fmt: skip
    series = "".join(f"{t + 1.0},5.0,{rate},1,{waiting},10.0\n" for t in range(seconds))
    return bench(folder, rows, f"{TITLES}\n{series}", num_requests=len(rows))


def test_littles_law_and_tokens_hold_between_requests_and_samples(tmp_path: Path) -> None:
    assert texts(steady(tmp_path / "run"), is_wrong=True) == []
    (wrong,) = texts(steady(tmp_path / "run", waiting=2), is_wrong=True)
    assert wrong.startswith("Little's law: 3 requests are in the engine on average over the samples, but")
    (wrong,) = texts(steady(tmp_path / "run", rate=10.0), is_wrong=True)
    assert wrong == "the samples tell of 2000 output tokens, the requests have 4000"


def test_kv_usage_that_was_not_recorded_is_left_out(tmp_path: Path) -> None:
    found = bench(tmp_path / "run", series=SERIES.replace("12.5", "0").replace("4.0,2,0,50.0", "4.0,2,0,0"))
    assert found.series is not None and "kv_usage" not in found.series
    assert any(text.startswith("kv_cache_pct is 0 throughout") for text in texts(found, is_wrong=False))


def test_a_bench_folder_that_is_cut_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    bench(folder)
    (folder / "requests.jsonl").write_text(json.dumps(ROWS[0])[:40])
    with pytest.raises(InputError, match=r"requests\.jsonl: row 1"):
        read(folder)
    (folder / "requests.jsonl").write_text('{"input_toks": 3}\n')
    with pytest.raises(InputError, match=r"row 1: is no whole request of the bench: .*output_toks"):
        read(folder)
    (folder / "meta.json").write_text("[]")
    with pytest.raises(InputError, match="is no JSON object with engine_kwargs"):
        read(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output_toks": -1}, "a request has -1 tokens"),
        ({"input_toks": 10**30}, "a request has 1000000000000000000000000000000 tokens"),
        ({"first_token_ts": 1e300}, "a time is 1e\\+300 s, beyond any clock"),
    ],
    ids=["tokens", "many tokens", "time"],
)
def test_a_request_of_a_bench_folder_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        bench(tmp_path, [{**ROWS[0], **change}, *ROWS[1:]])


def test_a_bench_folder_says_nothing_that_json_cannot(tmp_path: Path) -> None:
    found = bench(tmp_path, engine_kwargs={"tensor_parallel_size": math.nan, "max_num_seqs": math.inf})
    assert "tp" not in found.about and found.about["max_num_seqs"] == "inf"


@pytest.mark.skipif(
    "BATCHWRIGHT_DATA" not in os.environ, reason="BATCHWRIGHT_DATA names the folder of measurements"
)
@pytest.mark.parametrize(
    ("gpu", "ttft", "tpot", "e2e"),
    [("RTX4090", 65.4566, 0.0324, 86.5783), ("RTXPRO6000", 7.0972, 0.0325, 28.2007)],
)
def test_the_means_of_the_published_runs_are_those_that_were_published(
    gpu: str, ttft: float, tpot: float, e2e: float
) -> None:
    found = read(Path(os.environ["BATCHWRIGHT_DATA"]) / "measured" / "vllm_gpu" / gpu / "Llama-3.1-8B")
    assert found.requests is not None
    means = [float(found.requests[name].mean()) for name in ("ttft_s", "tpot_s", "e2e_s")]
    assert means == [
        pytest.approx(ttft, abs=5e-5),
        pytest.approx(tpot, abs=5e-5),
        pytest.approx(e2e, abs=5e-5),
    ]


# --- our own --------------------------------------------------------------------------------


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    from batchwright import Limits, Linear

    load = Workload.open("poisson(rate=4, n=30, prompt=200, output=20)")
    runs = compare(
        load,
        Linear(0.005, prefill=2e-5),
        Limits(max_num_seqs=8, num_kv_blocks=200),
        {"static": "static", "vllm": "vllm"},
    )
    write(tmp_path / "ours", Scenario(workload="chat"), runs.to_json(), runs)
    return tmp_path / "ours"


def test_one_policy_of_our_own_run_is_read_as_if_it_were_measured(ours: Path) -> None:
    found = read(ours, "vllm")
    assert found.requests is not None and found.steps is not None
    assert len(found.requests["ttft_s"]) == 30 and "policy" not in found.steps
    assert found.about["policy"] == "vllm" and found.about["num_gpu_blocks"] == 201
    assert found.findings == ()


def test_a_run_of_several_policies_needs_a_choice(ours: Path) -> None:
    with pytest.raises(InputError, match=r"holds 2 runs; choose one with --run \(0: static; 1: vllm\)"):
        read(ours)
