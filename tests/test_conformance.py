"""The shipped simulator and policy replay vLLM's recorded schedules, step for step."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from batchwright.conformance import check, main, replay, rows
from batchwright.errors import InputError

GOLDENS = sorted((Path(__file__).parent / "golden").glob("0*.json"))
TIGHT = next(path for path in GOLDENS if path.stem == "001")
ASYNCHRONOUS = next(path for path in GOLDENS if path.stem == "031")
EVERY_STEP_DECIDES = {"007"}  # outputs of one token: each step is edited

each_recording = pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)


def golden(path: Path) -> dict[str, Any]:
    recording: dict[str, Any] = json.loads(path.read_text())
    return recording


def written(tmp_path: Path, content: object) -> str:
    file = tmp_path / "recording.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "batchwright.conformance", *arguments], capture_output=True, text=True
    )


# --- the recordings ---------------------------------------------------------------


def test_there_are_35_recordings() -> None:
    assert len(GOLDENS) == 35


@each_recording
def test_every_recorded_step_is_identical_and_quiet_ones_are_skipped(path: Path) -> None:
    result = check(str(path))
    assert (result.step, result.ours, result.theirs) == (None, None, None)
    assert result.num_steps == len(golden(path)["steps"])
    assert result.num_decisions <= result.num_steps
    assert result.num_decisions < result.num_steps or path.stem in EVERY_STEP_DECIDES


@each_recording
def test_walking_quiet_steps_gives_the_same_rows(path: Path) -> None:
    recording = golden(path)
    skipped, walked = replay(recording), replay(recording, skip=False)
    assert rows(recording, walked) == rows(recording, skipped)
    assert walked.num_decisions >= skipped.num_decisions


def test_808_steps_of_a_tight_cache_take_at_most_200_decisions() -> None:
    result = check(str(TIGHT))
    assert result.num_steps == 808
    assert result.num_decisions <= 200


# --- a recording that differs -----------------------------------------------------


def reorder(step: dict[str, Any]) -> None:
    step["scheduled"] = dict(reversed(step["scheduled"].items()))


def add_a_token(step: dict[str, Any]) -> None:
    step["scheduled"][next(iter(step["scheduled"]))] += 1


def admit(step: dict[str, Any]) -> None:
    step["admitted"]["r999"] = 0


def change(key: str, by: int) -> Callable[[dict[str, Any]], None]:
    def alter(step: dict[str, Any]) -> None:
        step[key] += by

    return alter


def end(key: str) -> Callable[[dict[str, Any]], None]:
    def alter(step: dict[str, Any]) -> None:
        step[key] = [*step[key], "r999"]

    return alter


EITHER = {
    "order": reorder,
    "tokens": add_a_token,
    "preempted": end("preempted"),
    "admitted": admit,
    "running": change("running", 1),
    "waiting": change("waiting", -1),
    "free_blocks_sched": change("free_blocks_sched", 1),
}
ALTERATIONS = [
    *((TIGHT, alter) for alter in (*EITHER.values(), change("free_blocks", -1), end("finished"))),
    *((ASYNCHRONOUS, alter) for alter in (*EITHER.values(), end("finished_before"))),
]
NAMES = [
    *(f"001-{name}" for name in (*EITHER, "free_blocks", "finished")),
    *(f"031-{name}" for name in (*EITHER, "finished_before")),
]


@pytest.mark.parametrize(("path", "alter"), ALTERATIONS, ids=NAMES)
def test_one_altered_step_is_named_with_both_sides(
    path: Path, alter: Callable[[dict[str, Any]], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = golden(path)
    alter(recording["steps"][40])
    altered = written(tmp_path, recording)
    result = check(altered)
    assert result.step == 40
    assert result.ours is not None and result.theirs is not None
    original = golden(path)["steps"][40]
    assert sided(result.ours) == sided(original) != sided(recording["steps"][40]) == sided(result.theirs)
    assert main([altered]) == 1
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert f"{recording['name']}: step 40 differs; ours {result.ours}; recorded {result.theirs}" in line


def sided(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose requests are compared in order."""
    scheduled = row["scheduled"]
    pairs = scheduled.items() if isinstance(scheduled, dict) else scheduled
    return {key: value for key, value in row.items() if key != "step"} | {"scheduled": [*map(tuple, pairs)]}


@pytest.mark.parametrize("path", [TIGHT, ASYNCHRONOUS], ids=lambda path: path.stem)
def test_a_recording_that_stops_early_differs_where_it_stops(path: Path, tmp_path: Path) -> None:
    recording = golden(path)
    last = recording["steps"].pop()
    result = check(written(tmp_path, recording))
    assert (result.step, result.theirs) == (len(recording["steps"]), None)
    assert result.ours is not None and sided(result.ours) == sided(last)


@pytest.mark.parametrize("path", [TIGHT, ASYNCHRONOUS], ids=lambda path: path.stem)
def test_a_recording_that_goes_on_differs_where_we_stop(path: Path, tmp_path: Path) -> None:
    recording = golden(path)
    recording["steps"].append(recording["steps"][-1])
    result = check(written(tmp_path, recording))
    assert (result.step, result.ours) == (len(recording["steps"]) - 1, None)
    assert result.theirs is not None and sided(result.theirs) == sided(recording["steps"][-1])


def test_another_limit_than_the_recorded_one_differs(tmp_path: Path) -> None:
    recording = golden(TIGHT)
    recording["config"]["num_blocks"] += 1
    result = check(written(tmp_path, recording))
    assert result.step == 0  # the free blocks are one more from the start


# --- the command ------------------------------------------------------------------


def test_the_command_prints_one_line_per_file() -> None:
    done = command(*map(str, GOLDENS))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for path, line in zip(GOLDENS, lines, strict=True):
        recording = golden(path)
        assert line.startswith(f"{path} {recording['name']}: identical, ")
        assert line.endswith(f" decisions, {len(recording['steps'])} steps")


def test_the_command_exits_1_if_any_file_differs_and_still_checks_the_others(tmp_path: Path) -> None:
    recording = golden(TIGHT)
    recording["steps"][7]["running"] += 1
    done = command(str(ASYNCHRONOUS), written(tmp_path, recording), str(TIGHT))
    assert (done.returncode, done.stderr) == (1, "")
    assert [line.split()[2] for line in done.stdout.splitlines()] == ["identical,", "step", "identical,"]
    assert "step 7 differs" in done.stdout


def test_the_command_without_a_file_prints_its_usage() -> None:
    done = command()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: python -m batchwright.conformance FILE...\n"


def test_the_command_exits_2_with_one_line_if_a_file_is_missing(tmp_path: Path) -> None:
    done = command(str(tmp_path / "nowhere.json"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "nowhere.json: cannot be read" in done.stderr


def lacking(part: str, key: str) -> dict[str, Any]:
    """A small recording, well formed but for one missing key."""
    recording = golden(TIGHT)
    recording["steps"] = recording["steps"][:1]
    place = {"top": recording, "config": recording["config"], "request": recording["requests"][3]}
    del (place | {"step": recording["steps"][0]})[part][key]
    return recording


def holding(part: str, key: str, value: object) -> dict[str, Any]:
    """A small recording with one bad value."""
    recording = golden(TIGHT)
    place = {"config": recording["config"], "request": recording["requests"][3], "top": recording}
    place[part][key] = value
    return recording


WRONG: dict[str, object] = {
    "no JSON": "step,scheduled\n",
    "empty": "",
    "a number": "5",
    "null": "null",
    "a text": '"recording"',
    "a list": [],
    "an object": {"requests": []},
    "no steps": lacking("top", "steps"),
    "no block size": lacking("config", "block_size"),
    "no prompt length": lacking("request", "prompt_len"),
    "no scheduled requests": lacking("step", "scheduled"),
    "a prompt of 0 tokens": holding("request", "prompt_len", 0),
    "a prompt that is no number": holding("request", "prompt_len", "long"),
    "no seat": holding("config", "max_num_seqs", 0),
    "an unknown order": holding("config", "policy", "random"),
    "a config that is no object": holding("top", "config", 7),
    "requests that are no list": holding("top", "requests", 7),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_file_that_is_no_recording_exits_2_with_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([written(tmp_path, WRONG[name])]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1 and "recording.json" in error


def test_a_file_of_bytes_that_are_no_text_is_no_recording(tmp_path: Path) -> None:
    file = tmp_path / "packed.json"
    file.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(InputError, match=r"packed\.json: is not JSON"):
        check(str(file))


def test_a_folder_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        check(str(tmp_path))
