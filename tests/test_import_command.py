"""`batchwright import`: what it prints, keeps and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from batchwright.columns_file import read_columns, write_columns
from batchwright.imported import read
from test_cli import Command, command, good, refusal

__all__ = ["command"]  # the fixture
pytestmark = pytest.mark.pure
DATA = Path(__file__).resolve().parent / "data" / "imported"
BENCH, MOCK = str(DATA / "vllm_bench.json"), str(DATA / "guidellm_mock.json")
DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_it_prints_form_conventions_and_our_metrics(command: Command) -> None:
    lines = good(command("import", BENCH)).splitlines()
    assert lines[0] == f"{BENCH}: vllm bench serve, detailed JSON of 0.32 or later"
    assert lines[1] == "  TTFT: first chunk - sent, in seconds: as ours"
    assert "  20 requests over 2.05 s, prompt 64/64/64, output 16/16/16 tokens (mean/P50/P99)" in lines
    (head,) = [line for line in lines if line.split() == ["mean", "P50", "P90", "P99"]]
    rows = [line.split()[0] for line in lines[lines.index(head) + 2 :] if line.strip()]
    assert rows[:4] == ["TTFT", "TPOT", "ITL", "E2E"]
    assert lines[-1] == "9.77 requests/s, 156 output tokens/s, 782 prompt + output tokens/s"


def test_lengths_are_those_of_the_requests_that_completed(command: Command) -> None:
    printed = good(command("import", MOCK, "--run", "1"))
    assert "  20 requests (15 completed) over 701 ms, prompt 107/107/111, output 16/16/16 tokens" in printed


def test_findings_stand_before_the_table_by_their_weight(command: Command) -> None:
    broken = json.loads(Path(BENCH).read_text())
    broken["mean_ttft_ms"] *= 2
    Path("broken.json").write_text(json.dumps(broken))
    lines = good(command("import", "broken.json")).splitlines()
    assert any(line.startswith("wrong: mean TTFT of the file, ") for line in lines)
    assert "note: the statistics below are made anew from its requests" in lines


def test_the_folder_that_it_writes_is_read_as_the_file(command: Command) -> None:
    assert good(command("import", MOCK, "--run", "1", "-o", "kept")).endswith("kept: written\n")
    again = json.loads(good(command("import", "kept", "--json")))
    assert again == json.loads(good(command("import", MOCK, "--run", "1", "--json")))
    assert "is there already" in refusal(command("import", BENCH, "-o", "kept"))
    good(command("import", BENCH, "-o", "kept", "--force"))
    assert read("kept").form.startswith("vllm bench serve")


@pytest.mark.parametrize(("table", "column"), [("steps", "running"), ("requests", "finished_s")])
def test_a_run_folder_without_a_column_is_refused_by_its_name(
    command: Command, table: str, column: str
) -> None:
    load = "poisson(n=5, rate=9, prompt=9, output=3)"
    good(command("compare", load, "--policies", "vllm", "--cost", "constant(0.01)", "-o", "run"))
    rows = read_columns(Path("run") / table)
    next(Path("run").glob(f"{table}.*")).unlink()
    write_columns(Path("run") / table, {name: of for name, of in rows.items() if name != column})
    assert f"{table}: has no {column}" in refusal(command("import", "run"))


def test_a_file_that_is_refused_leaves_no_folder(command: Command) -> None:
    assert "holds 2 runs" in refusal(command("import", MOCK, "-o", "kept"))
    assert "no such file" in refusal(command("import", "nothing.json", "-o", "kept"))
    assert not Path("kept").exists() and list(Path().glob(".kept*")) == []


def test_every_key_of_the_json_is_documented(command: Command) -> None:
    found = json.loads(good(command("import", BENCH, "--json")))
    section = (DOCS / "import.md").read_text(encoding="utf-8").partition("## JSON")[2]
    assert list(found) == re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    for name in (*found["totals"], *found["metrics"], *found["metrics"]["ttft_s"]):
        assert f"`{name}`" in section
    assert found["num_requests"] == 20 and found["num_steps"] is None


def test_every_form_is_in_the_documentation(command: Command) -> None:
    known = refusal(command("import", "four.csv"))
    assert known.startswith(
        "four.csv: is a file of no form that is read; known: a folder that import -o wrote, "
    )
    page = (DOCS / "import.md").read_text(encoding="utf-8")
    for tool in ("vllm bench serve", "GuideLLM", "AIPerf", "bench_serving", "inference-perf"):
        assert tool in known and tool in page
