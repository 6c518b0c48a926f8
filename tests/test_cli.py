"""The command: a table or JSON on standard output, or one line on standard error and exit 2."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from batchwright import __version__, batch
from batchwright.cli import main

PLAIN = ["arrival,prompt,output", "0,100,20", "0.5,200,30", "1,50,4", "1.5,500,1"]
AZURE = [
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "2023-11-16 18:17:03.0000000,374,44",
    "2023-11-16 18:17:04.5000000,396,109",
]
FOUR = PLAIN[0] + "\n" + "\n".join(PLAIN[1:]) + "\n"


@dataclass
class Outcome:
    status: int
    out: str
    err: str


Command = Callable[..., Outcome]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in a folder with the trace `four.csv`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "four.csv").write_text(FOUR, encoding="utf-8")

    def run(*arguments: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["batchwright", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Outcome(end.value.code, printed.out, printed.err)

    return run


def refusal(outcome: Outcome) -> str:
    """The one line that says what is wrong."""
    assert outcome.status == 2 and outcome.out == "", outcome
    lines = outcome.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("batchwright: "), outcome.err
    assert "Traceback" not in outcome.err
    return lines[0].removeprefix("batchwright: ")


def good(outcome: Outcome) -> str:
    assert outcome.status == 0 and outcome.err == "", outcome
    return outcome.out


# --- what it prints ----------------------------------------------------------------------


def test_the_table_comes_after_what_was_chosen(command: Command) -> None:
    printed = good(command("compare", "four.csv", "--policies", "static(2),vllm"))
    lines = printed.splitlines()
    assert lines[0].startswith("four.csv: 4 requests over 1.5 s")
    head = next(i for i, line in enumerate(lines) if line.split() == ["static(2)", "vllm"])
    notes = "\n".join(lines[1:head])
    for chosen in ("max_tokens is 30", "llama-3.1-8b", "H100-SXM", "max_num_seqs is 1024",
                   "max_num_batched_tokens is 8192", "KV blocks of 16", "max_model_len is 530"):  # fmt: skip
        assert chosen in notes
    assert re.search(r"^ *finished +4 +4 *$", printed, flags=re.MULTILINE)


def test_the_name_of_a_load_is_printed_as_it_is(command: Command) -> None:
    name = ":fire:[bold].csv"
    Path(name).write_text(FOUR, encoding="utf-8")
    for what in ("compare", "timeline", "theory"):
        assert good(command(what, name)).startswith(f"{name}: 4 requests ")


def test_three_families_are_compared_if_none_is_named(command: Command) -> None:
    printed = good(command("compare", "four.csv"))
    assert any(line.split() == ["static", "dynamic", "continuous"] for line in printed.splitlines())


def test_what_the_user_said_is_not_announced_as_chosen(command: Command) -> None:
    printed = good(command(
        "compare", "four.csv", "--cost", "constant(0.02)", "--max-num-seqs", "64", "--max-num-batched-tokens",
        "512", "--max-model-len", "600", "--num-gpu-blocks-override", "101", "--max-tokens", "exact",
    ))  # fmt: skip
    for silent in ("max_num_seqs is", "max_num_batched_tokens is", "max_model_len is", "default"):
        assert silent not in printed
    assert "oracle" in printed and "100 KV blocks are usable" in printed


def shape(value: Any) -> Any:
    """The keys, and the types of the values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted({type(inner).__name__ for inner in value})
    return type(value).__name__


STATISTICS = ("mean", "p50", "p90", "p95", "p99")
SPREAD = dict.fromkeys(STATISTICS, "float")
ROW = {
    **dict.fromkeys(
        ("num_requests", "num_finished", "num_rejected", "num_cut", "num_preemptions", "num_steps"), "int"
    ),
    "duration_s": "float", "output_throughput_tokens_per_s": "float",
    "total_throughput_tokens_per_s": "float", "ttft_s": SPREAD, "tpot_s": SPREAD, "e2e_s": SPREAD,
    "request_throughput_per_s": "float", "itl_s": SPREAD, "normalised_s": SPREAD,
    "attainment": "float", "goodput_requests_per_s": "float",
    "mean_batch_requests": "float", "peak_batch_requests": "float", "kv_occupancy_mean": "float",
    "kv_occupancy_peak": "float", "prefix_cache_hit_rate": "NoneType",
    "slots": {
        "num_slots": "int", "seconds_s": "float",
        "shares": dict.fromkeys(
            ("prefill", "decode", "padding", "held", "idle_with_queue", "idle_without_queue"), "float"
        ),
    },
    "saturation": {
        "kind": "str", "text": "str", "last_empty_s": "float",
        "waiting_requests": {"first_half": "float", "last_quarter": "float"},
        "running_requests": {"first_half": "float", "last_quarter": "float"},
    },
    "fairness": {
        "num_clients": "int", "num_starved": "int", "jain": "NoneType", "max_slowdown": "float",
        "mean_slowdown": "float", "jain_slowdown": "NoneType", "worst_client_ttft_s_p99": "NoneType",
    },
    "clients": "NoneType",
    "intervals": {}, "per_load": {},
}  # fmt: skip
MUTE = dict.fromkeys(STATISTICS, "NoneType")  # of a policy that is not streamed


def test_json_has_the_documented_schema(command: Command) -> None:
    printed = good(
        command("compare", "four.csv", "--policies", "static(2),vllm@0.19", "--slo", "ttft=1s", "--json")
    )
    found = json.loads(printed)
    winners, differences = found.pop("winners"), found.pop("differences")
    assert set(winners) >= {"ttft_s.p99", "goodput_requests_per_s"} and set(winners.values()) == {None}
    assert list(differences) == ["vllm@0.19 - static(2)"]
    assert differences["vllm@0.19 - static(2)"]["ttft_s.mean"][1:] == [None, None]
    assert shape(found) == {
        "schema_version": "int",
        "slo": {"ttft_s": "float"}, "intervals_from": "str", "num_loads": "int", "loads_sha256": "str",
        "num_warm_up_requests": "int", "paragraph": "str",
        "workload": {"name": "str", "num_requests": "int", "span_s": "float", "sha256": "str"},
        "limits": {
            "max_num_seqs": "int", "max_num_batched_tokens": "int", "max_model_len": "int",
            "block_size": "int", "num_kv_blocks": "int", "enable_prefix_caching": "bool",
            "prefix_cache_blocks": "NoneType", "prefix_eviction": "str",
        },
        "policies": {
            "static(2)": ROW | {"tpot_s": MUTE, "itl_s": MUTE},
            "vllm@0.19": ROW,
        },
        "cost": "str",
        "like": "NoneType",
        "notes": ["str"],
    }  # fmt: skip
    assert re.fullmatch(r"[0-9a-f]{64}", found["workload"]["sha256"])


def test_json_says_null_where_memory_is_not_modelled(command: Command) -> None:
    found = json.loads(good(command("compare", "four.csv", "--cost", "constant(0.02)", "--json")))
    assert found["limits"]["num_kv_blocks"] is None
    for row in found["policies"].values():
        assert row["kv_occupancy_mean"] is None and row["kv_occupancy_peak"] is None


def test_json_says_null_where_nobody_is_served(command: Command) -> None:
    found = json.loads(good(command("compare", "four.csv", "--max-model-len", "5", "--json")))
    for row in found["policies"].values():
        assert (row["num_finished"], row["num_rejected"], row["duration_s"]) == (0, 4, None)
        assert row["ttft_s"] == row["e2e_s"] == dict.fromkeys(STATISTICS)


def test_json_is_the_same_every_time_and_agrees_with_the_table(command: Command) -> None:
    arguments = ("compare", "four.csv", "--policies", "vllm", "--cost", "constant(0.25)")
    first, second = (good(command(*arguments, "--json")) for _ in range(2))
    assert first == second
    row = json.loads(first)["policies"]["vllm"]
    table = good(command(*arguments))
    assert re.search(rf"^ *duration +{row['duration_s']:#.3g} s *$", table, flags=re.MULTILINE)


def test_version_says_whether_the_core_is_compiled(command: Command) -> None:
    mode = "interpreted" if str(batch.__file__).endswith(".py") else "compiled"
    assert re.fullmatch(
        rf"batchwright {re.escape(__version__)}, core {mode} \(.*\)\n", good(command("version"))
    )


def test_the_first_requests_are_used(command: Command) -> None:
    found = json.loads(good(command("compare", "four.csv", "--requests", "2", "--json")))
    assert found["workload"]["num_requests"] == 2 and found["workload"]["span_s"] == 0.5


def test_max_tokens_cuts_and_says_so(command: Command) -> None:
    printed = good(command("compare", "four.csv", "--max-tokens", "10"))
    assert "max_tokens is 10, as given" in printed and "2 of 4 outputs are cut to max_tokens" in printed


def test_prompts_that_are_too_long_are_rejected_or_fail(command: Command) -> None:
    arguments = ("compare", "four.csv", "--max-model-len", "200", "--policies", "vllm")
    printed = good(command(*arguments))
    assert re.search(r"^ *rejected +2 *$", printed, flags=re.MULTILINE)
    said = refusal(command(*arguments, "--over-length", "fail"))
    assert "2 prompts" in said and "max_model_len 200" in said and "request 1 of 200 tokens" in said
    assert good(command(*arguments[:2], "--max-model-len", "501", "--over-length", "fail"))


# --- traces ------------------------------------------------------------------------------


def written(name: str, lines: list[str] | bytes) -> str:
    data = lines if isinstance(lines, bytes) else ("\n".join(lines) + "\n").encode()
    Path(name).write_bytes(data)
    return name


BAD_TRACES: dict[str, tuple[list[str] | bytes, str]] = {
    "a row that is short": ([*PLAIN, "2,5"], "row 6"),
    "a row that is long": ([*PLAIN, "2,5,5,5"], "row 6"),
    "a negative prompt": ([*PLAIN, "2,-5,5"], "row 6.*-5"),
    "an absurd output": ([*PLAIN, "2,5,99999999999"], "row 6.*99999999999"),
    "time that runs backwards": ([*PLAIN, "1.4,5,5"], "row 6.*before '1.5' in row 5"),
    "an arrival that is no number": ([*PLAIN, "nan,5,5"], "row 6.*nan"),
    "a length that is no number": ([*PLAIN, "2,nan,5"], "row 6.*nan"),
    "an endless arrival": ([*PLAIN, "inf,5,5"], "row 6.*inf"),
    "no output column": (["arrival,prompt", "0,5"], "output"),
    "an Azure file without outputs": (["TIMESTAMP,ContextTokens", "2023-11-16 18:17:03.0000000,5"],
                                      "GeneratedTokens"),
    "an Azure row that is wrong": ([*AZURE, "2023-11-16 18:17:05.0000000,x,1"], "row 4"),
    "an Azure date in the past": ([*AZURE, "2022-11-16 18:17:05.0000000,1,1"], "row 4"),
    "nothing": (b"", "empty"),
    "a header alone": ([PLAIN[0]], "no request|no row|header"),
    "a gzip file that is cut short": (gzip.compress(FOUR.encode() * 99)[:-12], "gzip|cut"),
    "no text": (bytes(range(128, 256)) * 8, "UTF-8|text"),
    "zeros": (bytes(1000), ""),
    "a Mooncake line that is wrong": (['{"timestamp": 0, "input_length": 5, "output_length": 5}', "{"],
                                      "row 2"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_TRACES)
def test_a_bad_trace_is_one_line_that_names_file_and_row(what: str, command: Command) -> None:
    data, said = BAD_TRACES[what]
    line = refusal(command("compare", written("bad.csv", data), "--policies", "vllm"))
    assert line.startswith("bad.csv: ") and re.search(said, line), line


def test_a_trace_that_is_missing_or_a_folder_is_refused(command: Command) -> None:
    Path("folder").mkdir()
    for name in ("missing.csv", "folder"):
        assert name in refusal(command("compare", name))


def test_gzip_is_told_by_content_not_by_name(command: Command) -> None:
    Path("plain.csv.gz").write_text(FOUR, encoding="utf-8")
    Path("packed.csv").write_bytes(gzip.compress(FOUR.encode()))
    reports = [
        json.loads(good(command("compare", name, "--json")))
        for name in ("four.csv", "plain.csv.gz", "packed.csv")
    ]
    assert [report["workload"].pop("name") for report in reports] == [
        "four.csv",
        "plain.csv.gz",
        "packed.csv",
    ]
    assert reports[0] == reports[1] == reports[2]


def test_columns_that_are_not_used_are_named_once(command: Command) -> None:
    lines = [
        f"{line},{extra}"
        for line, extra in zip(PLAIN, ("colour", "purple", "blue", "purple", "pink"), strict=True)
    ]
    printed = good(command("compare", written("extra.csv", lines)))
    assert printed.count("colour") == 1 and "purple" not in printed


# --- flags -------------------------------------------------------------------------------

BAD_FLAGS: dict[str, tuple[list[str], str]] = {
    "an unknown policy": (["--policies", "statik"], "'statik'; did you mean 'static'"),
    "an unknown flag of a policy": (["--policies", "static(batchsize=2)"],
                                    "'batchsize'; did you mean 'batch_size'"),
    "an unknown version": (["--policies", "vllm@7"], "'7'.*0.19, 0.32"),
    "a version where there are none": (["--policies", "static@2"], "no versions"),
    "a batch of nobody": (["--policies", "static(0)"], "batch_size is 0"),
    "a policy twice": (["--policies", "vllm,vllm"], "'vllm' is listed twice"),
    "a bracket that stays open": (["--policies", "static(2"], "static"),
    "no policy": (["--policies", ""], "polic"),
    "only commas": (["--policies", ","], "polic"),
    "an unknown option": (["--polices", "static"], "--polices.*--policies"),
    "a seat too few": (["--max-num-seqs", "0"], "max_num_seqs is 0"),
    "negative seats": (["--max-num-seqs", "-1"], "max_num_seqs is -1"),
    "no token a step": (["--max-num-batched-tokens", "0"], "max_num_batched_tokens is 0"),
    "more seats than tokens": (["--max-num-seqs", "9", "--max-num-batched-tokens", "8"], "max_num_seqs 9"),
    "no token a block": (["--block-size", "0"], "block_size is 0"),
    "no length": (["--max-model-len", "0"], "max_model_len is 0"),
    "a length that the model lacks": (["--max-model-len", "999999999"], "999999999.*max_position_embeddings"),
    "a KV cache of the null block": (["--num-gpu-blocks-override", "1"], "at least 2"),
    "a KV cache under one request": (["--num-gpu-blocks-override", "5"], "530 cannot fit 4 KV blocks of 16"),
    "too much memory": (["--gpu-memory-utilization", "2"], r"gpu_memory_utilization is 2.0.*\(0, 1\]"),
    "no memory": (["--gpu-memory-utilization", "0"], "gpu_memory_utilization is 0"),
    "memory that is no number": (["--gpu-memory-utilization", "nan"], "gpu_memory_utilization is nan"),
    "an unknown GPU": (["--gpu", "H100-SMX"], "'H100-SMX'; did you mean 'H100-SXM'"),
    "an empty GPU": (["--gpu", ""], "GPU|gpu"),
    "an unknown model": (["--model", "lama-3.1-8b"], "'lama-3.1-8b'.*llama-3.1-8b"),
    "heads that cannot be split": (["--tp", "3"], "tp 3 cannot split the 32 heads"),
    "no GPU": (["--tp", "0"], "tp is 0"),
    "a model that does not fit": (["--gpu", "T4"], "T4 does not fit.*raise tp"),
    "a cost and a GPU": (["--cost", "constant(1)", "--gpu", "L4"], "--cost.*--gpu"),
    "a cost and a model": (["--cost", "constant(1)", "--model", "llama-3.1-8b"], "--cost.*--model"),
    "a cost and tensor parallelism": (["--cost", "constant(1)", "--tp", "2"], "--cost.*--tp"),
    "a cost and a share of memory": (["--cost", "constant(1)", "--gpu-memory-utilization", "0.5"],
                                     "--cost.*--gpu-memory-utilization"),
    "an unknown cost": (["--cost", "konstant(1)"], "'konstant'; did you mean 'constant'"),
    "a cost of no time": (["--cost", "constant(0)"], "seconds of constant is 0"),
    "an empty cost": (["--cost", ""], "cost ''"),
    "no request": (["--requests", "0"], "--requests is 0"),
    "negative requests": (["--requests", "-3"], "--requests is -3"),
    "requests that are no number": (["--requests", "few"], "--requests"),
    "no token": (["--max-tokens", "0"], "max_tokens is 0"),
    "negative tokens": (["--max-tokens", "-5"], "max-tokens is '-5'"),
    "tokens in words": (["--max-tokens", "many"], "'many'.*exact"),
    "a fraction of tokens": (["--max-tokens", "1.5"], "'1.5'"),
    "absurd tokens": (["--max-tokens", "9" * 12], "9" * 12),
    "an unknown way with long prompts": (["--over-length", "rejekt"], "'rejekt'; did you mean 'reject'"),
    "one trace too many": (["more.csv"], "more.csv"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_FLAGS)
def test_a_bad_flag_is_one_line_that_names_it(what: str, command: Command) -> None:
    flags, said = BAD_FLAGS[what]
    line = refusal(command("compare", "four.csv", *flags))
    assert re.search(said, line), line


def test_a_command_that_is_unknown_is_named_with_the_nearest(command: Command) -> None:
    assert re.search("'comparr'.*'compare'", refusal(command("comparr", "four.csv")))
    assert "load" in refusal(command("compare"))


def test_an_error_without_a_command_is_not_the_whole_help_in_one_line(command: Command) -> None:
    outcome = command()
    assert "Usage" in outcome.out + outcome.err
    assert len(outcome.out.splitlines()) > 5 or len(outcome.err) < 300


def test_blocks_that_do_not_fill_a_hash_are_refused(command: Command) -> None:
    row = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
    trace = written("trace.jsonl", [json.dumps(row)])
    said = refusal(command("compare", trace, "--policies", "vllm", "--block-size", "48"))
    assert "48" in said and "512" in said


# --- policy files ------------------------------------------------------------------------

FUNCTION = """
def policy(b):
    if b.edits == 0 and b.num_running == 0 and b.num_waiting > 0:
        b.admit(b.waiting.first(), b.waiting.first().prompt)
"""
OBJECT = """
class Seats:
    def __init__(self, seats):
        self.seats = seats

    def begin(self, batch):
        def ask(b):
            if b.edits == 0:
                while b.num_waiting > 0 and b.num_running < self.seats:
                    b.admit(b.waiting.first(), b.waiting.first().prompt)
        return ask

policy = Seats(1)
"""
DATACLASS = """from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seats:
    seats: int = 1

    def begin(self, batch):
        return self.ask

    def ask(self, b):
        if b.edits == 0:
            while b.num_waiting > 0 and b.num_running < self.seats:
                b.admit(b.waiting.first(), b.waiting.first().prompt)


policy = Seats()
"""
NEIGHBOUR = "from helpers import policy\n"


@pytest.mark.parametrize("source", [FUNCTION, OBJECT, DATACLASS, NEIGHBOUR],
                         ids=["function", "object", "dataclass", "neighbour"])  # fmt: skip
def test_a_policy_of_ones_own_is_a_column_named_after_its_file(source: str, command: Command) -> None:
    Path("helpers.py").write_text(FUNCTION, encoding="utf-8")
    Path("my-policy.py").write_text(source, encoding="utf-8")
    arguments = ("compare", "four.csv", "--cost", "constant(0.05)", "--policy-file", "my-policy.py", "--json")
    alone = json.loads(good(command(*arguments)))["policies"]
    beside = json.loads(good(command(*arguments, "--policies", "vllm")))["policies"]
    sys.modules.pop("helpers", None)
    assert list(alone) == ["my-policy"] and list(beside) == ["vllm", "my-policy"]
    assert alone["my-policy"] == beside["my-policy"]
    assert alone["my-policy"]["num_finished"] == 4 and alone["my-policy"]["mean_batch_requests"] == 1.0


BEGINS = "class P:\n    def begin(self, b):\n        "
BAD_POLICIES = {
    "nothing": ("x = 1\n", "defines no name `policy`"),
    "a class": (OBJECT.replace("Seats(1)", "Seats"), r"`policy` is the class Seats.*Seats\(\)"),
    "a number": ("policy = 3\n", "`policy` is 3"),
    "what does not parse": ("def policy(b:\n    pass\n", "SyntaxError"),
    "what fails when it is read": ("import math\n\nmath.sqrt(-1)\n", "line 3: ValueError"),
    "what imports nothing": ("import no_such_module_here\n", "line 1: ModuleNotFoundError"),
    "what fails when it is asked": ("def policy(b):\n    x = 0\n    return 1 / x\n",
                                    "line 3: ZeroDivisionError"),
    "what fails in many lines": ("def policy(b):\n    raise ValueError('one\\ntwo')\n",
                                 "line 2: ValueError: one two"),
    "what fails when it begins": (f"{BEGINS}return b.nobody\n\npolicy = P()\n",
                                  "line 3: AttributeError"),
    "what begins with nothing": (f"{BEGINS}pass\n\npolicy = P()\n", "mine.P object.*None cannot be asked"),
    "what takes no batch": ("def policy():\n    pass\n", "TypeError"),
    "what starves": ("def policy(b):\n    pass\n", "starves 1 requests"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_POLICIES)
def test_a_bad_policy_file_is_one_line_that_names_it_and_the_place(what: str, command: Command) -> None:
    source, said = BAD_POLICIES[what]
    Path("mine.py").write_text(source, encoding="utf-8")
    trace = written("one.csv", PLAIN[:2])
    line = refusal(command("compare", trace, "--cost", "constant(0.02)", "--policy-file", "mine.py"))
    assert re.search(said, line), line
    assert line.startswith("mine.py") or what in ("what starves", "what begins with nothing")


def test_a_policy_file_that_is_missing_or_no_python_file_is_refused(command: Command) -> None:
    written("policy.txt", ["policy = 3"])
    for name in ("missing.py", "policy.txt"):
        assert refusal(command("compare", "four.csv", "--policy-file", name)).startswith(name)


def test_two_columns_never_have_one_name(command: Command) -> None:
    for folder in ("a", "b"):
        Path(folder).mkdir()
        Path(folder, "vllm.py").write_text(FUNCTION, encoding="utf-8")
    files = ["--policy-file", "a/vllm.py"]
    said = refusal(command("compare", "four.csv", "--policies", "vllm", *files))
    assert "a/vllm.py" in said and "'vllm' is listed already" in said
    assert "b/vllm.py" in refusal(command("compare", "four.csv", *files, "--policy-file", "b/vllm.py"))


# --- processes ---------------------------------------------------------------------------


def process(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "batchwright", *arguments],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip


def heed_interrupts() -> None:
    """Whoever starts the tests in the background lets them, and all below, ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_an_interrupted_run_prints_nothing_and_exits_130(tmp_path: Path) -> None:
    (tmp_path / "four.csv").write_text(FOUR, encoding="utf-8")
    slow = "import time, pathlib\ndef policy(b):\n    pathlib.Path('asked').touch()\n    time.sleep(30)\n"
    (tmp_path / "slow.py").write_text(slow, encoding="utf-8")
    run = process(tmp_path, "compare", "four.csv", "--policies", "vllm", "--policy-file", "slow.py")
    deadline = time.monotonic() + 20
    while not (tmp_path / "asked").exists() and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=20)
    assert run.returncode == 130 and out == ""
    assert err.splitlines() == ["batchwright: interrupted; nothing was written"]


@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    "arguments", [["compare", "four.csv"], ["compare", "four.csv", "--json"], ["--help"]]
)
def test_a_reader_that_has_gone_gets_no_traceback(
    arguments: list[str], unbuffered: str, tmp_path: Path
) -> None:
    (tmp_path / "four.csv").write_text(FOUR, encoding="utf-8")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "batchwright", *arguments],
        cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=write, stderr=subprocess.PIPE, text=True, timeout=60,
    )  # fmt: skip
    os.close(write)
    assert done.returncode == 1 and done.stderr == ""


def test_the_module_is_the_command(tmp_path: Path) -> None:
    run = process(tmp_path, "compare", "nowhere.csv")
    out, err = run.communicate(timeout=60)
    assert run.returncode == 2 and out == "" and len(err.splitlines()) == 1 and "nowhere.csv" in err
