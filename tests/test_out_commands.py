"""`batchwright timeline` and `batchwright export`: what they print, write and refuse."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import batchwright as bw
from batchwright.cli.export import FORMATS
from test_cli import Command, command, good, refusal

__all__ = ["command"]  # the fixture
DOCS = Path(__file__).resolve().parent.parent / "docs"
SMALL = ("--policies", "static(2),vllm", "--cost", "constant(0.1)")


def test_a_timeline_has_a_panel_for_each_policy_and_a_legend(command: Command) -> None:
    printed = good(command("timeline", "four.csv", *SMALL))
    assert re.search(r"^static\(2\): steps 0 to \d+ of \d+, 1 character = 1 step$", printed, re.MULTILINE)
    assert re.search(r"^vllm: steps 0 to", printed, re.MULTILINE)
    assert re.search(r"^0  100\+20 +P-{19}e", printed, re.MULTILINE)
    assert "P prefill" in printed.splitlines()[-2] + printed.splitlines()[-1]
    assert "cost is constant(0.1)" in printed


def test_a_timeline_draws_the_requests_and_steps_that_are_asked_for(command: Command) -> None:
    asked = ("--ids", "3, 1", "--from", "4", "--steps", "6", "--scale", "2")
    found = json.loads(good(command("timeline", "four.csv", *SMALL, *asked, "--json")))
    assert list(found["policies"]) == ["static(2)", "vllm"]
    panel = found["policies"]["vllm"]
    assert list(panel["rows"]) == ["3", "1"]
    assert (panel["first_step"], panel["end_step"], panel["steps_per_character"]) == (4, 10, 2)
    first = json.loads(good(command("timeline", "four.csv", *SMALL, "--first", "2", "--json")))
    assert list(first["policies"]["vllm"]["rows"]) == ["0", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ids", "1", "--first", "2"), "--ids is given together with --first"),
        (("--ids", "1,two"), "--ids has 'two', which is no request"),
        (("--ids", "4"), "request 4 is not in four.csv; give ids of 0 to 3"),
        (("--from", "9999"), "the first one to draw is 9999"),
        (("--first", "0"), "--first is 0; give at least 1"),
    ],
)
def test_a_timeline_of_nothing_is_refused(command: Command, arguments: tuple[str, ...], message: str) -> None:
    assert message in refusal(command("timeline", "four.csv", *SMALL, *arguments))


@pytest.mark.parametrize("name", ["mooncake", "vllm-bench", "perfetto"])
def test_every_format_is_written_and_kept_unless_forced(command: Command, name: str) -> None:
    arguments = ("export", "four.csv", "--format", name, "-o", "out.json")
    assert good(command(*arguments)).startswith("out.json: written\n  four.csv: 4 requests")
    text = Path("out.json").read_text(encoding="utf-8")
    assert all(json.loads(line) for line in text.splitlines())
    assert "out.json: is there already; give another name, or --force" in refusal(command(*arguments))
    good(command(*arguments, "--force"))
    assert Path("out.json").read_text(encoding="utf-8") == text


def test_the_trace_that_is_exported_is_the_load_with_its_limits(command: Command) -> None:
    good(command("export", "four.csv", "--format", "mooncake", "-o", "a.jsonl", "--requests", "3",
                 "--max-tokens", "25"))  # fmt: skip
    load = bw.Workload.open("a.jsonl")
    assert load.output.tolist() == [20, 25, 4] and not load.has_prefixes
    good(command("export", "four.csv", "--format", "mooncake", "-o", "b.jsonl", "--private-hashes"))
    assert bw.Workload.open("b.jsonl").has_prefixes


def test_the_commands_lie_beside_the_trace_that_they_replay(command: Command) -> None:
    printed = good(command("export", "four.csv", "--format", "command", "-o", "replay.sh", "--tp", "2",
                           "--policy", "vllm(policy=priority)"))  # fmt: skip
    assert printed.startswith("replay.jsonl and replay.sh: written\n")
    lines = [
        line for line in Path("replay.sh").read_text(encoding="utf-8").splitlines() if line[:4] == "vllm"
    ]
    server, client = map(shlex.split, lines)
    assert server[:5] == ["vllm", "serve", "meta-llama/Llama-3.1-8B", "--tensor-parallel-size", "2"]
    assert "--scheduling-policy" in server
    assert client[client.index("--dataset-path") + 1] == "replay.jsonl"
    load = bw.Workload.open("replay.jsonl")
    assert len(load) == int(client[client.index("--num-prompts") + 1]) == 4 and load.has_prefixes


def test_one_file_that_is_there_keeps_both_from_being_written(command: Command) -> None:
    Path("replay.sh").write_text("mine", encoding="utf-8")
    refusal(command("export", "four.csv", "--format", "command", "-o", "replay.sh"))
    assert not Path("replay.jsonl").exists() and Path("replay.sh").read_text(encoding="utf-8") == "mine"


def test_goodput_and_details_are_those_that_are_asked_for(command: Command) -> None:
    good(command("export", "four.csv", "--format", "vllm-bench", "-o", "out.json", "--cost", "constant(0.1)",
                 "--goodput", "ttft:1000", "--goodput", "e2el:1500", "--no-detailed"))  # fmt: skip
    found = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert found["request_goodput"] == pytest.approx(2 / found["duration"]) and "ttfts" not in found
    assert found["model_id"] == "" and found["label"] == "vllm"


def test_what_was_written_is_said_as_json(command: Command) -> None:
    printed = good(command("export", "four.csv", "--format", "perfetto", "-o", "out.json", "--draw", "2",
                           "--since", "0.1", "--until", "9", "--json"))  # fmt: skip
    found = json.loads(printed)
    assert found["schema_version"] == 1 and found["files"] == ["out.json"]
    assert "2 of 4 requests are drawn, 0 to 1" in found["notes"]
    assert "policy is vllm (none was given)" in found["notes"]


def test_the_policy_is_the_one_of_a_scenario_or_a_file_that_is_named(command: Command) -> None:
    Path("mine.py").write_text("from batchwright import orca\npolicy = orca()\n", encoding="utf-8")
    scenario = {
        "workload": "four.csv",
        "policies": {"two": "static(2)", "v": "vllm"},
        "policy_file": ["mine.py"],
    }
    Path("all.yaml").write_text(json.dumps(scenario), encoding="utf-8")
    arguments = ("export", "all.yaml", "--format", "vllm-bench", "-o", "out.json")
    assert "the policies are two, v, mine; choose one with --policy" in refusal(command(*arguments))
    for name in ("two", "mine", "dynamic"):
        good(command(*arguments, "--policy", name, "--force"))
        assert json.loads(Path("out.json").read_text(encoding="utf-8"))["label"] == name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "perfeto"), "--format is 'perfeto'; did you mean 'perfetto'?"),
        (("--format", "vllm-bench", "--policy", "static(2),vllm"), "choose one with --policy"),
        (("--format", "vllm-bench", "--goodput", "ttft"), "--goodput is 'ttft'; give a metric and millisec"),
        (("--format", "vllm-bench", "--goodput", "ttf:3"), "goodput has no goal 'ttf'; did you mean 'ttft'?"),
        (
            ("--format", "command", "--cost", "constant(1)"),
            "names no model to serve; give one with --serve-m",
        ),
        (("--format", "perfetto", "--since", "1e6"), "no request is there from 1000000.0"),
        (("--format", "mooncake", "-o", "no/where.jsonl"), "no/where.jsonl: cannot be written"),
        (("--format", "command", "-o", "a.jsonl"), "a.jsonl: is where the trace goes"),
    ],
)
def test_what_cannot_be_exported_is_refused_and_nothing_is_written(
    command: Command, arguments: tuple[str, ...], message: str
) -> None:
    before = set(Path.cwd().iterdir())
    output = () if "-o" in arguments else ("-o", "out.sh")
    assert message in refusal(command("export", "four.csv", *arguments, *output))
    assert set(Path.cwd().iterdir()) == before


@pytest.mark.parametrize("name", ["timeline", "export"])
def test_every_flag_of_its_own_stands_on_its_page(command: Command, name: str) -> None:
    own, shared = (
        set(re.findall(r"--[a-z][a-z-]+", good(command(which, "--help")))) for which in (name, "compare")
    )
    shared -= {"--json", "--output", "--force"}  # of many commands, but not of a scenario
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| (`-.*?) \|", page, flags=re.MULTILINE))
    assert set(re.findall(r"--[a-z][a-z-]+", " ".join(named))) == own - shared


def test_every_key_of_the_results_stands_on_the_page_of_exports(command: Command) -> None:
    page = (DOCS / "export.md").read_text(encoding="utf-8")
    cells = set(re.findall(r"`([a-z0-9_]+)`", page))
    good(command("export", "four.csv", "--format", "vllm-bench", "-o", "out.json"))
    keys = set(json.loads(Path("out.json").read_text(encoding="utf-8")))
    plain = {key for key in keys if not re.match("(mean|median|std|p99)_", key)}
    assert plain <= cells and {"mean_ttft_ms", "p99_ttft_ms"} <= cells
    assert all(f"`{name}`" in page for name in FORMATS)


def test_a_load_in_which_clients_wait_for_answers_is_exported_as_it_came_in_the_run(command: Command) -> None:
    load = ("closed(clients=2, n=6, prompt=40, output=5)", "--cost", "constant(0.1)")
    printed = good(command("export", *load, "--format", "mooncake", "-o", "a.jsonl", "--policy", "orca"))
    assert "arrivals are those of the run" in printed
    assert bw.Workload.open("a.jsonl").arrival.tolist() == [0, 0, 0.5, 0.5, 1, 1]
    good(command("export", *load, "--format", "command", "-o", "b.sh", "--serve-model", "m"))
    assert len(bw.Workload.open("b.jsonl")) == 6
