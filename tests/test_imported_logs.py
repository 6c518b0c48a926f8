"""Logs of vLLM and of our stat logger, whatever stands before a line or between two."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.imported import Imported, read
from batchwright.imported.log_lines import LONGEST, lines

pytestmark = pytest.mark.pure

SERVERS = Path(__file__).resolve().parent / "data" / "imported" / "servers"
LOG, STEPS = SERVERS / "vllm_server.log.gz", SERVERS / "vllm_steps.csv.gz"
OWN = "INFO 11-30 21:16:36 [loggers.py:199] "
STATE = (
    "Engine 000: Avg prompt throughput: 584.0 tokens/s, Avg generation throughput: 630.0 tokens/s, "
    "Running: 4 reqs, Waiting: 1 reqs, GPU KV cache usage: 87.5%, Prefix cache hit rate: 37.6%"
)
V0_START = """\
INFO 12-22 10:55:30 llm_engine.py:249] Initializing an LLM engine (v0.6.6) with config: model='a/b', \
speculative_config=None, tokenizer='a/b', dtype=torch.bfloat16, max_seq_len=2048, tensor_parallel_size=2, \
quantization=None, enforce_eager=False, kv_cache_dtype=auto, enable_prefix_caching=False
INFO 12-22 10:55:34 worker.py:241] the current vLLM instance can use total_gpu_memory (79.25GiB) x \
gpu_memory_utilization (0.15) = 11.89GiB
INFO 12-22 10:55:34 worker.py:241] model weights take 8.51GiB; non_torch_memory takes 0.26GiB; PyTorch \
activation peak memory takes 0.94GiB; the rest of the memory reserved for KV Cache is 2.18GiB.
INFO 12-22 10:55:34 worker.py:241] model weights take 8.51GiB; non_torch_memory takes 0.26GiB; PyTorch \
activation peak memory takes 0.94GiB; the rest of the memory reserved for KV Cache is 2.10GiB.
INFO 12-22 10:55:35 gpu_executor.py:76] # GPU blocks: 715, # CPU blocks: 1310
INFO 12-22 10:55:35 gpu_executor.py:80] Maximum concurrency for 2048 tokens per request: 5.59x
INFO 12-22 10:56:00 metrics.py:467] Avg prompt throughput: 0.9 tokens/s, Avg generation throughput: 0.1 \
tokens/s, Running: 1 reqs, Swapped: 0 reqs, Pending: 3 reqs, GPU KV cache usage: 12.5%, CPU KV cache \
usage: 0.0%.
WARNING 12-22 10:56:01 scheduler.py:1057] Sequence group 0 is preempted by PreemptionMode.RECOMPUTE mode \
because there is not enough KV cache space.
"""


def iteration(
    number: int, *, engine: int = 0, ctx: int = 1, prompt: int = 32, gen: int = 3, ms: float = 5.0
) -> str:
    return (
        f"Engine {engine:03d}: Iteration({number}): {ctx} context requests, {prompt} context "
        f"tokens, {gen} generation "
        f"requests, {gen} generation tokens, iteration elapsed time: {ms:.2f} ms, GPU KV cache usage: 50.0%"
    )


def log(tmp_path: Path, *rows: str) -> Imported:
    file = tmp_path / "server.log"
    file.write_text("\n".join(rows) + "\n")
    return read(file)


def texts(found: Imported) -> list[str]:
    return [finding.text for finding in found.findings]


# --- a real server --------------------------------------------------------------------------


def test_the_log_of_a_real_server_tells_its_flags_its_steps_and_its_state() -> None:
    found = read(LOG)
    assert found.form == "vLLM server log, version 0.32.0"
    about = found.about
    assert (about["max_num_seqs"], about["max_num_batched_tokens"], about["max_model_len"]) == (8, 256, 256)
    assert (about["num_gpu_blocks"], about["block_size"], about["async_scheduling"]) == (14, 32, False)
    assert about["enable_prefix_caching"] is True and about["tp"] == 1 and about["dtype"] == "bfloat16"
    assert found.totals["max_concurrency"] == 1.75 and found.totals["kv_tokens"] == 14 * 32
    assert found.series is not None and found.series["running"].max() == 6
    assert not any(finding.is_wrong for finding in found.findings)


def test_three_records_of_one_run_agree_step_by_step() -> None:
    told, ours = read(LOG), read(STEPS)
    assert told.steps is not None and ours.steps is not None
    for name in ("step", "prefill_tokens", "num_chunks", "num_decodes"):
        np.testing.assert_array_equal(told.steps[name], ours.steps[name])
    took = ours.steps["end_s"] - ours.steps["start_s"]
    assert (told.steps["end_s"] - told.steps["start_s"] <= took + 1e-3).mean() > 0.97  # without the scheduler
    metrics = read(SERVERS / "vllm_metrics.txt.gz")
    assert ours.totals["preemptions"] == metrics.totals["preemptions"] == 20
    assert ours.totals["finished"] == metrics.totals["num_completed"] == 24


def test_what_a_preempted_request_computes_again_is_told_from_decodes() -> None:
    found = read(LOG)
    assert found.steps is not None
    again = int((found.steps["decode_tokens"] - found.steps["num_decodes"]).sum())
    outputs, requests = 1536, 24  # of the load that was served; the first token of each is a prompt's
    assert found.totals["decode_tokens"] - again == outputs - requests
    assert any(f"{again} tokens are computed again" in text for text in texts(found))


# --- lines ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "front",
    [
        "",
        OWN,
        f"(APIServer pid=9946) {OWN}",
        f"\x1b[0;36m(APIServer pid=9946)\x1b[0;0m {OWN}",
        f"2026-11-30T21:16:36.120000001Z (APIServer pid=9946) {OWN}",
        f"2026-11-30T21:16:36.120000001Z stdout F (APIServer pid=9946) {OWN}",
        f"vllm-1  | {OWN}",
        f"Nov 30 21:16:36 host vllm[12]: {OWN}",
        "INFO 11-30 21:16:36 loggers.py:199] ",
    ],
)
def test_what_stands_before_a_line_changes_nothing(tmp_path: Path, front: str) -> None:
    found = log(
        tmp_path, "noise", front + iteration(0, ms=6.65), "GET / 200", front + iteration(1), front + STATE
    )
    assert found.steps is not None and found.series is not None
    np.testing.assert_allclose(found.steps["end_s"] - found.steps["start_s"], [0.00665, 0.005])
    np.testing.assert_array_equal(found.steps["num_decodes"], [3, 3])
    assert found.series["kv_usage"].tolist() == [0.875] and found.series["waiting"].tolist() == [1]
    assert found.series["prefix_hit_rate"][0] == pytest.approx(0.376)


def test_lines_of_dockers_json_file_are_unpacked(tmp_path: Path) -> None:
    rows = [
        json.dumps({"log": f"{OWN}{iteration(i)}\n", "stream": "stdout", "time": f"2026-11-30T21:16:3{i}.5Z"})
        for i in range(3)
    ]
    found = log(tmp_path, *rows)
    assert found.steps is not None
    np.testing.assert_allclose(found.steps["end_s"], [0.005, 1.0, 2.0])


def test_a_step_has_its_length_and_the_earliest_place_that_its_line_allows(tmp_path: Path) -> None:
    second = "INFO 11-30 21:16:{:02d} [loggers.py:199] "
    rows = [second.format(s) + iteration(i, ms=400.0) for i, s in enumerate((10, 10, 10, 14))]
    found = log(tmp_path, *rows)
    assert found.steps is not None
    np.testing.assert_allclose(found.steps["start_s"], [0.0, 0.4, 0.8, 3.6])
    np.testing.assert_allclose(found.steps["end_s"], [0.4, 0.8, 1.2, 4.0])


def test_new_year_is_no_year_back(tmp_path: Path) -> None:
    rows = ["INFO 12-31 23:59:59 [a.py:1] " + iteration(0), "INFO 01-01 00:00:01 [a.py:1] " + iteration(1)]
    found = log(tmp_path, *rows)
    assert found.steps is not None and found.steps["end_s"][-1] == pytest.approx(2.0)
    assert not any(finding.is_wrong for finding in found.findings)


@given(st.permutations([(engine, number) for engine in range(3) for number in range(4)]))
def test_engines_that_write_into_one_log_are_told_apart(order: list[tuple[int, int]]) -> None:
    from batchwright.imported.vllm_iterations import columns, last_start
    from batchwright.imported.vllm_iterations import iteration as parsed

    order = sorted(order, key=lambda pair: pair[1])  # each engine's own steps come in order
    rows = [f"(EngineCore_DP{engine} pid=7) {OWN}{iteration(number)[12:]}" for engine, number in order]
    steps = [step for line in lines("log", "\n".join(rows)) if (step := parsed(line)) is not None]
    kept, starts = last_start(steps)
    found = columns(kept)
    assert starts == 1
    assert found["engine"].tolist() == sorted([0, 1, 2] * 4) and found["step"].tolist() == [0, 1, 2, 3] * 3


def test_dummy_steps_of_a_rank_without_work_are_counted_apart(tmp_path: Path) -> None:
    dummy = iteration(1, ctx=0, prompt=0, gen=0).replace(" ms,", " ms (dummy),")
    found = log(tmp_path, OWN + iteration(0), OWN + dummy, OWN + iteration(2))
    assert found.steps is not None and found.steps["step"].tolist() == [0, 2]
    assert (found.totals["num_steps"], found.totals["num_dummy_steps"]) == (2, 1)


# --- start-up -------------------------------------------------------------------------------


def test_the_first_engine_tells_its_memory_in_other_words(tmp_path: Path) -> None:
    found = log(tmp_path, V0_START)
    assert found.about["engine_version"] == "0.6.6" and found.about["model"] == "a/b"
    assert (found.about["num_gpu_blocks"], found.about["tp"], found.about["max_model_len"]) == (715, 2, 2048)
    assert found.about["gpu_memory_utilization"] == 0.15 and "quantization" not in found.about
    assert (found.totals["weights_gib"], found.totals["activation_peak_gib"]) == (8.51, 0.94)
    assert found.totals["kv_gib"] == 2.10  # of the worker that has the least
    assert found.totals["preemptions"] == 1
    assert found.series is not None and found.series["waiting"].tolist() == [3]
    assert found.series["kv_usage"].tolist() == [0.125]


def test_blocks_follow_from_tokens_and_the_block_size_that_is_assumed_is_said(tmp_path: Path) -> None:
    rows = [
        "INFO 11-30 21:16:33 [core.py:9] Initializing a V1 LLM engine (v0.19.0) with config: "
        "model='m', max_seq_len=512",
        "INFO 11-30 21:16:33 [gpu_worker.py:9] Available KV cache memory: 5.05 GiB",
        "INFO 11-30 21:16:33 [kv_cache_utils.py:9] GPU KV cache size: 41,408 tokens",
        "INFO 11-30 21:16:33 [kv_cache_utils.py:9] Maximum concurrency for 512 tokens per request: 80.88x",
    ]
    found = log(tmp_path, *rows)
    assert found.about["num_gpu_blocks"] == 2588
    assert any("num_gpu_blocks is KV tokens / 16" in text for text in found.conventions)


def test_a_concurrency_that_is_not_tokens_over_length_is_told(tmp_path: Path) -> None:
    found = log(
        tmp_path,
        f"{OWN}GPU KV cache size: 1,000 tokens, Maximum concurrency for 100 tokens per request: 25.00x",
    )
    assert any(
        "maximum concurrency is 25.0x, but 1000 tokens / 100 are 10.00x" in text for text in texts(found)
    )


def test_a_second_start_replaces_the_first(tmp_path: Path) -> None:
    args = OWN + "non-default args: {{'model': 'm', 'max_num_seqs': {}}}"
    blocks = OWN + "GPU KV cache size: {} tokens"
    found = log(
        tmp_path,
        *(args.format(8), blocks.format(160), OWN + iteration(0), OWN + iteration(1)),
        *(args.format(64), blocks.format(1600), OWN + iteration(0, gen=60)),
    )
    assert found.about["max_num_seqs"] == 64 and found.about["num_gpu_blocks"] == 100
    assert found.totals["num_steps"] == 1
    assert any("2 starts of the engine; the 1 steps of the last one" in text for text in texts(found))


# --- what is broken -------------------------------------------------------------------------


def test_steps_over_the_limits_are_of_another_server(tmp_path: Path) -> None:
    rows = [OWN + "non-default args: {'max_num_seqs': 2, 'max_num_batched_tokens': 34}", OWN + iteration(0)]
    wrong = [finding.text for finding in log(tmp_path, *rows).findings if finding.is_wrong]
    assert wrong[0].startswith("1 of 1 steps have more tokens than max_num_batched_tokens 34, up to 35")
    assert wrong[1].startswith("1 of 1 steps have more requests than max_num_seqs 2, up to 4")


def test_missing_steps_are_counted_by_their_numbers(tmp_path: Path) -> None:
    found = log(tmp_path, *[OWN + iteration(i) for i in (4, 5, 9, 10)])
    assert any(text.startswith("3 of 7 steps are missing") for text in texts(found))


def test_steps_that_take_longer_than_the_clock_overlap(tmp_path: Path) -> None:
    found = log(tmp_path, *[OWN + iteration(i, ms=500.0) for i in range(10)])
    (wrong,) = [finding.text for finding in found.findings if finding.is_wrong]
    assert "steps take 4.5 s, but only 0 s pass" in wrong and "overlap" in wrong


def test_a_clock_that_runs_back_is_told(tmp_path: Path) -> None:
    rows = ["INFO 11-30 21:16:36 [a.py:1] " + iteration(0), "INFO 11-30 21:16:30 [a.py:1] " + iteration(1)]
    assert any("runs back by 6 s" in text for text in texts(log(tmp_path, *rows)))


def test_a_line_that_is_cut_is_counted_and_left_out(tmp_path: Path) -> None:
    found = log(tmp_path, OWN + iteration(0), OWN + iteration(1)[:90], OWN + STATE[:60])
    assert found.totals["num_steps"] == 1 and found.series is None
    assert any(text.startswith("2 lines are cut") for text in texts(found))


def test_a_line_that_is_too_long_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"line 2 has {LONGEST + 1} characters"):
        log(tmp_path, OWN + iteration(0), "x" * (LONGEST + 1))


def test_bytes_are_no_log(tmp_path: Path) -> None:
    file = tmp_path / "core"
    file.write_bytes(b"Iteration(0): \x00\xff" * 100)
    with pytest.raises(InputError, match=r"core: .*no UTF-8 text"):
        read(file)


@given(st.text(max_size=200), st.integers(0, 400))
def test_any_text_is_read_or_refused_in_one_line(noise: str, cut: int) -> None:
    from batchwright.imported import vllm_log
    from batchwright.imported.source import Source

    text = f"{OWN}{iteration(0)}\n{noise}\n{OWN}{STATE}\n{V0_START}"[cut:]
    source = Source(path=Path("log"), text=text, is_folder=False, run=None)
    try:
        vllm_log.read(source)
    except InputError as error:
        assert "\n" not in str(error)


# --- step logs ------------------------------------------------------------------------------

HEADER = (
    "step,start_s,end_s,prefill_tokens,num_decodes,running,waiting,preempted,finished,free_blocks,num_chunks"
)


def steps(tmp_path: Path, *rows: str) -> Imported:
    file = tmp_path / "steps.csv"
    file.write_text("\n".join([HEADER, *rows]) + "\n")
    return read(file)


def test_a_step_log_gives_the_columns_of_a_run_folder(tmp_path: Path) -> None:
    found = steps(tmp_path, "0,1.0,1.5,64,0,1,2,0,0,11,1", "1,1.5,1.75,0,1,1,2,3,1,10,0")
    assert found.steps is not None and found.findings == ()
    assert found.steps["prefill_tokens"].tolist() == [64, 0]
    assert found.totals["preemptions"] == 3 and found.totals["duration_s"] == 0.75
    assert found.series is not None and found.series["waiting"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("1,1.5,1.2,0,1,1,0,0,0,1,0", "1 of 2 steps end before they start"),
        ("1,1.2,1.6,0,1,1,0,0,0,1,0", "1 of 2 steps start before the one before has ended, by up to 0.3 s"),
        ("4,1.5,1.6,0,1,1,0,0,0,1,0", "3 steps are missing"),
        ("1,1.5,1.6,0,0,1,0,0,0,1,0", "1 of 2 steps compute nothing"),
    ],
)
def test_steps_that_cannot_be_are_told(tmp_path: Path, row: str, said: str) -> None:
    assert any(text.startswith(said) for text in texts(steps(tmp_path, "0,1.0,1.5,64,0,1,0,0,0,1,1", row)))


@pytest.mark.parametrize(
    ("row", "said"),
    [("0,1.0,1.5,64", "row 2: 4 fields"), ("0,1.0,x,64,0,1,0,0,0,1,1", "row 2: end_s is 'x'"),
     ("0,1.0,nan,64,0,1,0,0,0,1,1", "row 2: end_s is 'nan', which is no finite number")],
)  # fmt: skip
def test_a_row_that_is_no_step_is_named(tmp_path: Path, row: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        steps(tmp_path, row)


def test_steps_timed_inside_the_engine_are_converted_to_our_words(tmp_path: Path) -> None:
    file = tmp_path / "inside.csv"
    file.write_text(
        "trial,budget,cap,prefill_tokens,prefill_seqs,decode_seqs,decode_ctx_sum,prefill_attn_pairs,model_ms,"
        "schedule_ms,update_ms,t_start,waiting\n"
        "0,554,32,27,1,0,0,378,8.0,0.5,0.25,10.0,0\n"
        "0,554,32,0,0,2,60,0,5.0,0.5,0.5,10.1,3\n"
    )
    found = read(file).steps
    assert found is not None
    np.testing.assert_allclose(found["end_s"] - found["start_s"], [0.00875, 0.006])
    assert found["prefill_attention"].tolist() == [27 * 27 / 2, 0]  # tokens * (past + tokens / 2)
    assert found["context_tokens"].tolist() == [0, 58]  # without the tokens that the two compute
    assert found["model_s"].tolist() == [0.008, 0.005] and found["waiting"].tolist() == [0, 3]
