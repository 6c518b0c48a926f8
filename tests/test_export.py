"""What other tools read back is the run, in their conventions."""

from __future__ import annotations

import json
import shlex
import statistics
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.errors import InputError
from batchwright.export import (
    mooncake_trace,
    perfetto_trace,
    replay_script,
    replay_trace,
    vllm_bench_result,
)
from batchwright.export.replay import bench_command, serve_command
from batchwright.files import write_whole
from batchwright.run import Run
from batchwright.workload import Workload, chat
from strategies import for_every_seed
from test_run import case, every_policy

pytestmark = pytest.mark.pure  # the layers above the core are pure Python


def strict(text: str) -> Any:
    """JSON without NaN and Infinity, which are none."""

    def refuse(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_constant=refuse)


# --- Mooncake ----------------------------------------------------------------------------


def random_load(seed: int, has_prefixes: bool) -> Workload:
    """Arrivals on whole milliseconds, like the format's."""
    random = Random(seed)
    count = random.randint(1, 40)
    arrivals = sorted(random.randrange(100_000) / 1000 for _ in range(count))
    prompts = [random.choice([1, 511, 512, 513, random.randint(1, 5000)]) for _ in range(count)]
    hashes = [[random.randrange(50) for _ in range(-(-prompt // 512))] for prompt in prompts]
    return Workload.from_columns(
        [arrival - arrivals[0] for arrival in arrivals],
        prompts,
        [random.randint(1, 800) for _ in range(count)],
        hash_ids=hashes if has_prefixes else None,
    )


def read_back(text: str, folder: Path) -> Workload:
    file = folder / "trace.jsonl"
    write_whole(file, text, force=True)
    return Workload.open(file)


@pytest.mark.parametrize("has_prefixes", [False, True])
@for_every_seed(25)
def test_a_mooncake_trace_is_read_back_as_the_same_load(
    tmp_path_factory: pytest.TempPathFactory, has_prefixes: bool, seed: int
) -> None:
    load = random_load(seed, has_prefixes)
    rounded = Workload.from_columns(
        np.rint(load.arrival * 1000) / 1000,
        load.prompt,
        load.output,
        hash_ids=hash_lists(load) if has_prefixes else None,
    )
    exported = mooncake_trace(load)
    found = read_back(exported.text, tmp_path_factory.mktemp("mooncake"))
    assert found == rounded
    assert np.abs(found.arrival - load.arrival).max() <= 0.0005 + 1e-9


def hash_lists(load: Workload) -> list[list[int]]:
    hashes = load.columns.hashes
    assert hashes is not None
    return [hashes.ids[first:end].tolist() for first, end in pairwise(hashes.offsets.tolist())]


def test_arrivals_between_milliseconds_are_rounded_and_that_is_said(tmp_path: Path) -> None:
    load = chat(50)
    exported = mooncake_trace(load)
    found = read_back(exported.text, tmp_path)
    assert np.array_equal(found.arrival, np.rint(load.arrival * 1000) / 1000)
    assert np.array_equal(found.prompt, load.prompt) and np.array_equal(found.output, load.output)
    assert exported.notes == ("arrivals are rounded to whole milliseconds, the unit of the format",)
    assert mooncake_trace(found).notes == ()


def test_private_hashes_share_nothing_and_never_replace_the_loads_own(tmp_path: Path) -> None:
    load = random_load(3, has_prefixes=False)
    exported = mooncake_trace(load, private_hashes=True)
    ids = [id for ids in hash_lists(read_back(exported.text, tmp_path)) for id in ids]
    assert len(set(ids)) == len(ids)
    assert "hash_ids are made up" in exported.notes[0]
    own = random_load(3, has_prefixes=True)
    assert mooncake_trace(own, private_hashes=True) == mooncake_trace(own)


def test_what_a_mooncake_trace_cannot_hold_is_said() -> None:
    load = Workload.from_columns(
        [0.0, 1.0], [5, 5], [9, 20], max_tokens=[10, 15], priority=[1, 0], client=[3, 4], name="mine"
    )
    assert mooncake_trace(load).notes == (
        "output_length is what is served: 1 outputs are cut to max_tokens",
        "the format has no place for max_tokens and priority and client of the requests",
    )
    assert [json.loads(line)["output_length"] for line in mooncake_trace(load).text.splitlines()] == [9, 15]


def shared_tokens(hashes: list[list[int]], prompts: list[int], tokens: int) -> list[list[int]]:
    """Tokens that each prompt has in common with each other one, by their hashes."""

    def common(a: int, b: int) -> int:
        pieces = 0
        while pieces < min(len(hashes[a]), len(hashes[b])) and hashes[a][pieces] == hashes[b][pieces]:
            pieces += 1
        return min(pieces * tokens, prompts[a], prompts[b])

    return [[common(a, b) for b in range(len(prompts))] for a in range(len(prompts))]


@for_every_seed(10)
def test_coarser_hashes_share_the_whole_pieces_of_finer_ones(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    shared = Random(seed).choice([512, 528, 1040, 1536, 2064])
    load = Workload.open(f"poisson(n=12, rate=3, prompt=300, shared_prefix={shared}, prefixes=2)", seed=seed)
    hashes = load.columns.hashes
    assert hashes is not None
    prompts = load.prompt.tolist()
    fine = [hashes.ids[first:end].tolist() for first, end in pairwise(hashes.offsets.tolist())]
    exported = mooncake_trace(load)
    coarse = hash_lists(read_back(exported.text, tmp_path_factory.mktemp("coarse")))
    for row, rows in zip(
        shared_tokens(coarse, prompts, 512), shared_tokens(fine, prompts, hashes.tokens), strict=True
    ):
        assert row == [tokens if tokens in prompts else tokens // 512 * 512 for tokens in rows]
    assert any("in pieces of 512" in note for note in exported.notes) == (shared % 512 > 0)
    kept = [json.loads(line)["hash_ids"] for line in replay_trace(load).text.splitlines()]
    assert kept == fine
    flags = flags_of(bench_command(load, "t", "m"))
    assert flags["--timed-trace-chunk-hash-size"] == str(hashes.tokens)


def test_hashes_that_do_not_fill_those_of_the_trace_are_refused() -> None:
    with pytest.raises(InputError, match="are of 512 tokens, which do not fill the 300 of a hash"):
        mooncake_trace(random_load(1, has_prefixes=True), hash_tokens=300)


FOLLOWERS = (
    "closed(clients=3, n=12, prompt=600, output=40)",
    "sessions(n=12, rate=2, turns=4, think=1, prompt=300, output=40)",
)


@pytest.mark.parametrize("text", FOLLOWERS)
def test_requests_that_follow_others_come_when_they_came_in_the_run(tmp_path: Path, text: str) -> None:
    load = Workload.open(text)
    run = bw.compare(load, bw.Constant(0.05), policies={"v": bw.vllm()})["v"]
    with pytest.raises(InputError, match="requests follow others, so only a run knows when they come"):
        mooncake_trace(load)
    exported = mooncake_trace(load, arrival=run.arrival)
    found, order = read_back(exported.text, tmp_path), np.argsort(run.arrival, kind="stable")
    assert np.array_equal(found.arrival, np.rint(run.arrival[order] * 1000) / 1000)
    assert np.array_equal(found.prompt, load.prompt[order]) and not found.has_followers
    assert "arrivals are those of the run" in exported.notes[0]
    assert any("answers have no hashes" in note for note in exported.notes) == text.startswith("sessions")
    script = replay_script(load, run.limits, bw.vllm(), trace="t", model="m")
    assert "the clients' loop" in script.text and "--num-prompts 12" in script.text


@pytest.mark.parametrize("text", FOLLOWERS)
def test_results_and_pictures_of_such_a_load_are_those_of_its_run(text: str) -> None:
    run = bw.compare(Workload.open(text), bw.Constant(0.05), policies={"v": bw.vllm()})["v"]
    result = strict(vllm_bench_result(run).text)
    assert result["start_times"] == run.arrival.tolist()
    assert result["request_rate"] == pytest.approx(11 / (run.arrival.max() - run.arrival.min()))
    check_format(events_of(run))


# --- vllm bench serve --------------------------------------------------------------------


@every_policy
@for_every_seed(5)
def test_the_statistics_are_those_of_the_lists_as_vllm_makes_them(name: str, seed: int) -> None:
    found = case(seed, name)
    result = strict(vllm_bench_result(found.run).text)
    samples = samples_of(result, found.run)
    for metric, seconds in samples.items():
        keys = [f"{word}_{metric}_ms" for word in ("mean", "median", "std", "p99")]
        if not seconds:
            assert [result[key] for key in keys] == [None] * 4
            continue
        expected = [
            statistics.fmean(seconds),
            statistics.median(seconds),
            statistics.pstdev(seconds),
            float(np.percentile(seconds, 99)),
        ]
        assert [result[key] / 1000 for key in keys] == pytest.approx(expected, abs=2e-8)


def samples_of(result: dict[str, Any], run: Run) -> dict[str, list[float]]:
    """TTFT, TPOT, ITL and E2EL from the lists, by vLLM's rules."""
    rows = list(zip(result["ttfts"], result["itls"], result["output_lens"], strict=True))
    if not run.is_streamed:
        assert all(gaps == [] for _, gaps, _ in rows)
        return {"ttft": [ttft for ttft, _, _ in rows], "tpot": [], "itl": []}
    latencies = [ttft + sum(gaps) for ttft, gaps, _ in rows]
    return {
        "ttft": [ttft for ttft, _, _ in rows],
        "tpot": [
            (latency - ttft) / (output - 1)
            for latency, (ttft, _, output) in zip(latencies, rows, strict=True)
            if output > 1
        ],
        "itl": [gap for _, gaps, _ in rows for gap in gaps],
        "e2el": latencies,
    }


@every_policy
@for_every_seed(5)
def test_counts_and_peaks_are_those_of_the_lists(name: str, seed: int) -> None:
    found = case(seed, name)
    result = strict(vllm_bench_result(found.run).text)
    assert result["num_prompts"] == result["completed"] == len(found.requests) and result["failed"] == 0
    assert result["total_input_tokens"] == sum(r.prompt for r in found.requests)
    assert result["total_output_tokens"] == sum(result["output_lens"])
    assert result["duration"] == max(r.finished for r in found.requests)
    assert result["output_throughput"] == pytest.approx(found.run.summary.output_throughput)
    assert result["total_token_throughput"] == pytest.approx(found.run.summary.total_throughput)
    if found.run.itl().is_defined:
        assert result["mean_itl_ms"] == pytest.approx(found.run.itl().mean * 1000)
        assert result["p99_itl_ms"] == pytest.approx(found.run.itl().p99 * 1000)
    assert result["max_concurrent_requests"] == max(
        sum(1 for other in found.requests if other.arrival <= r.arrival < other.finished)
        for r in found.requests
    )
    first = min(r.arrival for r in found.requests)
    seconds: Counter[int] = Counter()
    for r, gaps in zip(found.requests, result["itls"], strict=True):
        if not found.run.is_streamed:
            seconds[int(r.finished - first)] += r.true_output
            continue
        times = np.cumsum([r.first_token, *gaps]) - first
        near = np.abs(times - np.rint(times)) < 1e-6  # could fall on either side of a second
        times[near] = np.rint(times[near])
        seconds.update(times.astype(int).tolist())
    assert result["max_output_tokens_per_s"] == pytest.approx(max(seconds.values()), abs=3)


def test_requests_that_the_server_refuses_have_failed() -> None:
    load = Workload.from_columns([0.0, 1.0, 9.0], [4, 4, 400], [1, 3, 9])
    run = bw.compare(load, bw.Constant(0.5), bw.Limits(max_model_len=200), policies={"v": bw.vllm()})["v"]
    result = strict(vllm_bench_result(run).text)
    assert (result["completed"], result["failed"], result["num_prompts"]) == (2, 1, 3)
    assert result["duration"] == 9.0  # until the last request was sent
    assert result["errors"] == ["", "", "prompt of 400 tokens reaches max_model_len 200"]
    assert result["output_lens"] == [1, 3, 0] and result["ttfts"][2] == 0.0
    assert result["total_input_tokens"] == 8 and result["itls"][0] == []
    assert result["mean_tpot_ms"] == pytest.approx(500.0)  # of the one output over a token


def test_goodput_counts_those_who_met_every_goal() -> None:
    load = Workload.from_columns([0.0, 1.0, 10.0], [4, 4, 4], [1, 3, 9])
    run = bw.compare(load, bw.Constant(0.5), policies={"v": bw.vllm()})["v"]
    of = {
        text: strict(vllm_bench_result(run, goodput=goals).text)["request_goodput"]
        for text, goals in {
            "none": {},
            "all": {"ttft": 501.0, "tpot": 500.1},
            "one": {"e2el": 500.1},
            "lone tokens have TPOT 0": {"tpot": 1.0},
        }.items()
    }
    assert of == {"none": None, "all": 3 / 14.5, "one": 1 / 14.5, "lone tokens have TPOT 0": 1 / 14.5}
    with pytest.raises(InputError, match="goodput has no goal 'itl'; known: e2el, tpot, ttft"):
        vllm_bench_result(run, goodput={"itl": 1.0})


def test_without_details_no_entry_grows_with_the_load() -> None:
    run = case(3, "vllm").run
    short, long = (strict(vllm_bench_result(run, is_detailed=flag).text) for flag in (False, True))
    assert not any(isinstance(value, list) for value in short.values())
    assert {key: value for key, value in long.items() if not isinstance(value, list)} == short
    assert "lists" not in short and long["generated_texts"] == [""] * len(run.load)


def test_a_load_that_comes_at_once_has_rate_inf_as_in_vllm() -> None:
    load = Workload.from_columns([0.0, 0.0], [4, 4], [2, 2])
    run = bw.compare(load, bw.Constant(0.5), policies={"v": bw.vllm()})["v"]
    result = strict(vllm_bench_result(run, model="m").text)
    assert (result["request_rate"], result["burstiness"], result["model_id"]) == ("inf", 1.0, "m")
    even = Workload.from_columns([0.0, 2.0, 4.0], [4, 4, 4], [2, 2, 2])
    result = strict(
        vllm_bench_result(bw.compare(even, bw.Constant(0.5), policies={"v": bw.vllm()})["v"]).text
    )
    assert (result["request_rate"], result["burstiness"]) == (0.5, "inf")


def test_a_run_in_which_nothing_finishes_has_no_statistics() -> None:
    load = Workload.from_columns([0.0], [400], [9])
    run = bw.compare(load, bw.Constant(0.5), bw.Limits(max_model_len=200), policies={"v": bw.vllm()})["v"]
    result = strict(vllm_bench_result(run).text)
    assert (
        result["completed"] == 0 and result["mean_ttft_ms"] is None and result["request_throughput"] is None
    )
    assert result["max_concurrent_requests"] == 0 and result["max_output_tokens_per_s"] == 0.0


# --- Perfetto ----------------------------------------------------------------------------


def events_of(run: Run, **choice: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = strict(perfetto_trace(run, **choice).text)["traceEvents"]
    return found


def check_format(events: list[dict[str, Any]]) -> None:
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {e["pid"] for e in events if e["name"] == "process_name"} == {1, 2}
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            assert type(e["ts"]) is int and type(e["dur"]) is int and e["ts"] >= 0 and e["dur"] >= 0
            tracks[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
        elif e["ph"] == "C":
            assert type(e["ts"]) is int and all(value >= 0 for value in e["args"].values())
        else:
            assert e["ph"] == "M" and e["args"]["name"]
    assert tracks.keys() == named
    for spans in tracks.values():
        check_nesting(spans)


def check_nesting(spans: list[tuple[int, int]]) -> None:
    """Sorted by start, the longer first: each is inside what is open, or after it."""
    open_until: list[int] = []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        assert not open_until or end <= open_until[-1]
        open_until.append(end)


def area(events: list[dict[str, Any]], name: str) -> int:
    """The counter `name` summed over time."""
    points = [(e["ts"], e["args"][name]) for e in events if e["ph"] == "C" and e["name"] == name]
    assert points[-1][1] == 0
    return sum((after - time) * value for (time, value), (after, _) in pairwise(points))


@every_policy
@for_every_seed(6)
def test_a_trace_is_valid_and_its_counters_are_what_its_tracks_show(name: str, seed: int) -> None:
    found = case(seed, name)
    events = events_of(found.run)
    check_format(events)
    spans = [e for e in events if e["ph"] == "X"]
    assert area(events, "running") == sum(e["dur"] for e in spans if e["name"].startswith("request "))
    assert area(events, "waiting") == sum(e["dur"] for e in spans if e["name"] == "wait")
    slots = {e["tid"] for e in spans if e["pid"] == 1}
    assert slots == set(range(1, max(e["args"].get("running", 0) for e in events if "args" in e) + 1))
    free = [e["args"]["free blocks"] for e in events if e["name"] == "free blocks"]
    assert free[-1] == found.run.limits.blocks


@every_policy
@for_every_seed(6)
def test_decodes_and_prefills_have_the_times_of_the_requests(name: str, seed: int) -> None:
    run = case(seed, name).run
    events, columns = events_of(run), run.requests()
    for id in range(len(run.load)):
        own = [e for e in events if e["ph"] == "X" and e["pid"] == 2 and e["tid"] == id + 1]
        assert own[0]["ts"] == round(columns["arrival_s"][id] * 1e6)
        assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(own))
        tokens = [e for e in own if e["name"] in ("prefill", "decode")]
        if run.is_streamed:
            assert tokens[-1]["ts"] + tokens[-1]["dur"] == round(columns["finished_s"][id] * 1e6)
        assert len([e for e in own if e["name"] == "wait"]) <= columns["preemptions"][id] + 1


def test_a_trace_with_cancelled_clients_is_valid() -> None:
    whole = case(12, "vllm")
    cancels = {r.id: whole.simulator.now / (2 + r.id % 3) for r in whole.requests[:5]}
    check_format(events_of(case(12, "vllm", cancels=cancels).run))


def test_a_trace_is_bounded_and_says_what_it_leaves_out() -> None:
    run = bw.compare(chat(300), bw.Constant(0.02), policies={"v": bw.vllm()})["v"]
    exported = perfetto_trace(run, requests=5, since=20.0, until=30.0)
    content = strict(exported.text)
    events = content["traceEvents"]
    check_format(events)
    drawn = sorted({e["tid"] - 1 for e in events if e["pid"] == 2 and e["ph"] == "X"})
    columns = run.requests()
    assert len(drawn) == 5 and all(columns["finished_s"][id] >= 20.0 for id in drawn)
    assert exported.notes == (f"5 of 300 requests are drawn, {drawn[0]} to {drawn[-1]}",)
    assert content["otherData"]["drawn"] == exported.notes[0]
    begin, end = (f(e["ts"] for e in events if e["ph"] == "X") for f in (min, max))
    last = max(e["ts"] + e["dur"] for e in events if e["ph"] == "X")
    assert all(begin <= e["ts"] <= max(end, last) for e in events if e["ph"] == "C")
    assert perfetto_trace(run, ids=[7, 8]).notes == ("2 of 300 requests are drawn, 7 to 8",)


def test_a_time_window_without_requests_is_refused() -> None:
    run = bw.compare(chat(5), bw.Constant(0.02), policies={"v": bw.vllm()})["v"]
    with pytest.raises(InputError, match=r"no request is there from 1000000\.0 to inf s"):
        perfetto_trace(run, since=1e6)
    with pytest.raises(InputError, match="0 requests are to be drawn"):
        perfetto_trace(run, requests=0)


def test_no_free_blocks_are_counted_where_memory_is_not_modelled() -> None:
    run = bw.compare(chat(5), bw.Constant(0.02), policies={"v": bw.vllm()})["v"]
    assert {e["name"] for e in events_of(run) if e["ph"] == "C"} == {"running", "waiting"}


# --- the commands ------------------------------------------------------------------------


def flags_of(command: str) -> dict[str, str]:
    """The value of each flag; '' for a switch."""
    words = shlex.split(command)
    found = {}
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            found[word] = "" if after.startswith("--") else after
    return found


def test_the_server_gets_the_limits_and_the_flags_that_were_set() -> None:
    limits = bw.Limits(max_num_seqs=8, max_num_batched_tokens=512, max_model_len=900, num_kv_blocks=99)
    policy = bw.vllm(policy="priority", async_scheduling=False, watermark=0.01, max_num_seqs=4)
    assert flags_of(serve_command(limits, policy, "org/model", tp=2)) == {
        "--tensor-parallel-size": "2",
        "--max-num-seqs": "4",
        "--max-num-batched-tokens": "512",
        "--max-model-len": "900",
        "--block-size": "16",
        "--enable-prefix-caching": "",
        "--num-gpu-blocks-override": "100",
        "--no-async-scheduling": "",
        "--scheduling-policy": "priority",
        "--watermark": "0.01",
    }
    plain = flags_of(serve_command(bw.Limits(enable_prefix_caching=False), bw.static(4), "m"))
    assert "--no-enable-prefix-caching" in plain and "--async-scheduling" not in plain
    assert "--max-model-len" not in plain and "--num-gpu-blocks-override" not in plain


def test_the_client_replays_the_trace_at_its_times() -> None:
    flags = flags_of(bench_command(chat(30), "my trace.jsonl", "org/model"))
    assert flags["--dataset-name"] == "timed_trace" and flags["--dataset-path"] == "my trace.jsonl"
    assert flags["--num-prompts"] == "30" and flags["--timed-trace-chunk-hash-size"] == "512"
    assert float(flags["--timed-trace-sec-multiplier"]) == 0.001 and "--self-timed" in flags


def test_the_script_says_what_it_does_not_reproduce() -> None:
    load = Workload.from_columns([0.0, 1.0], [4, 400], [1, 3], priority=[0, 1])
    limits = bw.Limits(max_model_len=200)
    script = replay_script(load, limits, bw.static(4), trace="t.jsonl", model="m")
    words = " ".join(script.notes)
    for said in ("not as Static(", "no two of them share", "max_tokens", "priority", "KV memory",
                 "1 requests whose prompt and output are over max_model_len 200"):  # fmt: skip
        assert said in words, said
    lines = script.text.splitlines()
    assert all(f"#   {note}" in lines for note in script.notes)
    ours = [line for line in lines if line and not line.startswith("#")]
    assert [shlex.split(line)[:2] for line in ours] == [["vllm", "serve"], ["vllm", "bench"]]
