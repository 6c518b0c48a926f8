"""Scenarios: the same keys as YAML, flags, `--set` and schema, and one clear line for a wrong one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml

from batchwright.cli.app import run
from batchwright.cli.options import scenario_command
from batchwright.errors import BatchwrightError, InputError
from batchwright.files import write_whole
from batchwright.scenario.build import prepare
from batchwright.scenario.keys import Scenario
from batchwright.scenario.text import KEYS, as_yaml, read, schema

GOOD = {
    "workload": "chat",
    "policies": {"a": "static(batch_size=4)", "b": "vllm"},
    "requests": 20,
    "max_tokens": 64,
    "gpu": "L40S",
    "max_num_seqs": 8,
    "enable_prefix_caching": False,
}


def scenario_file(folder: Path, keys: object, name: str = "mine.yaml") -> str:
    file = folder / name
    file.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return str(file)


def test_yaml_says_again_what_was_read(tmp_path: Path) -> None:
    found = read(scenario_file(tmp_path, GOOD))
    assert yaml.safe_load(as_yaml(found)) == GOOD
    again = tmp_path / "again.yaml"
    again.write_text(as_yaml(found), encoding="utf-8")
    assert read(str(again)) == found


def test_flags_override_the_file_and_set_overrides_both(tmp_path: Path) -> None:
    file = scenario_file(tmp_path, GOOD)
    assert read(file).max_num_seqs == 8
    assert read(file, {"max_num_seqs": 9, "gpu": None}).max_num_seqs == 9
    found = read(file, {"max_num_seqs": 9}, ["max-num-seqs=10", "policies=[orca, vllm]", "gpu=null"])
    assert (found.max_num_seqs, found.policies, found.gpu) == (10, ["orca", "vllm"], None)


def test_the_limits_policies_and_load_are_those_of_the_keys(tmp_path: Path) -> None:
    prepared = prepare(read(scenario_file(tmp_path, GOOD)))
    assert list(prepared.policies) == ["a", "b"] and len(prepared.load) == 20
    assert prepared.limits.max_num_seqs == 8 and not prepared.limits.enable_prefix_caching
    assert int(prepared.load.max_tokens.max()) == 64
    assert "L40S" in prepared.cost_name


def test_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "load.csv").write_text("arrival,prompt,output\n0,10,3\n", encoding="utf-8")
    (inner / "mine.py").write_text("from batchwright import vllm\npolicy = vllm()\n", encoding="utf-8")
    keys = {"workload": "load.csv", "policy_file": ["mine.py"]}
    prepared = prepare(read(scenario_file(inner, keys)))
    assert len(prepared.load) == 1 and list(prepared.policies) == ["mine"]


def test_every_key_is_a_flag_and_stands_in_the_schema_with_its_meaning() -> None:
    properties = schema()["properties"]
    assert list(properties) == list(KEYS)
    assert all(properties[key]["description"] for key in KEYS)
    assert schema()["required"] == ["workload"] and schema()["additionalProperties"] is False


@pytest.mark.parametrize("name", ["slo", "columns"])
def test_a_mapping_says_the_same_as_its_text(name: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("in,out\n10,3\n", encoding="utf-8")
    texts = {"slo": "ttft=500ms,tpot=50ms", "columns": "prompt=in,output=out"}
    mapping = dict(pair.split("=") for pair in texts[name].split(","))
    keys = {"workload": "log.csv", **texts}
    one, other = (
        prepare(read(scenario_file(tmp_path, keys | {name: given}))) for given in (texts[name], mapping)
    )
    assert one.slo == other.slo and one.slo is not None and one.load == other.load
    assert read(scenario_file(tmp_path, msgspec.to_builtins(other.scenario))) == other.scenario


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        ({"ttfd": "1s"}, "no metric 'ttfd'; did you mean 'ttft'"),
        ({"ttft": 1}, "slo is {'ttft': 1}: expected str"),
        ({"ttft": "1"}, "SLO ttft '1' is not a number and a unit"),
        ({"ttft": "1s,tpot=1s"}, "SLO ttft '1s,tpot=1s' is not a number and a unit"),
        ({}, "the SLO has no limit"),
    ],
)
def test_a_wrong_objective_in_a_mapping_is_named(slo: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        prepare(read(scenario_file(tmp_path, {"workload": "chat", "slo": slo})))


def test_a_command_has_its_own_flags_beside_those_of_a_scenario() -> None:
    seen: list[object] = []

    def own(scenario: Scenario, *, count: int = 3) -> None:
        seen.append((scenario, count))

    scenario_command(own)("chat", **dict.fromkeys(KEYS[1:]), set=["tp=2"], count=5)
    assert seen == [(Scenario(workload="chat", tp=2), 5)]


WRONG = {
    "an unknown key": ({"workload": "chat", "max_num_seq": 3}, "'max_num_seq'; did you mean 'max_num_seqs'"),
    "a number that is text": ({"workload": "chat", "tp": "two"}, "tp is 'two': expected int"),
    "a flag that is no truth": (
        {"workload": "chat", "enable_prefix_caching": 3},
        "enable_prefix_caching is 3",
    ),
    "a list of numbers": ({"workload": "chat", "policies": [1, 2]}, "policies is .1, 2.: expected str"),
    "no workload": ({"gpu": "L4"}, "lacks the key workload"),
    "a list": ([1, 2], "no mapping"),
    "an unknown policy": ({"workload": "chat", "policies": ["statik"]}, "'statik'; did you mean 'static'"),
    "a trace that is missing": ({"workload": "gone.csv"}, "gone.csv"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_scenario_is_one_line_that_names_the_key(what: str, tmp_path: Path) -> None:
    keys, said = WRONG[what]
    with pytest.raises(BatchwrightError, match=said) as error:
        prepare(read(scenario_file(tmp_path, keys)))
    assert "\n" not in str(error.value)


def test_text_that_is_no_yaml_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("workload: [chat\ngpu: }", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.yaml: is not valid YAML") as error:
        read(str(file))
    assert "\n" not in str(error.value)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"bad\.yaml"):
        read(str(file))
    with pytest.raises(InputError, match=r"gone\.yaml.*config init"):
        read(str(tmp_path / "gone.yaml"))


@pytest.mark.parametrize("item", ["tp", "=3", "tp=[1", "unknown=1"])
def test_a_wrong_set_is_refused(item: str) -> None:
    with pytest.raises(InputError):
        read("chat", sets=[item])


def test_the_file_of_init_is_valid_and_shows_every_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "new.yaml"
    assert run(["config", "init", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    shown = set(re.findall(r"^(?:# )?([a-z_]+): ", text, flags=re.MULTILINE))
    assert set(KEYS) <= shown
    assert run(["config", "validate", str(file)]) == 0
    assert "valid" in capsys.readouterr().out
    defaults = re.findall(r"^# ([a-z_]+): (.+)$", text, flags=re.MULTILINE)
    sets = [f"{key}={value}" for key, value in defaults if key in KEYS]
    assert read(str(file), sets=sets) == read(str(file))


def test_the_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


def test_a_file_that_is_there_is_kept_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    write_whole(file, "one")
    with pytest.raises(InputError, match="there already"):
        write_whole(file, "two")
    assert file.read_text(encoding="utf-8") == "one"
    write_whole(file, b"two", force=True)
    assert file.read_text(encoding="utf-8") == "two" and list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_whole(tmp_path / "no" / "file", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_whole(tmp_path / "folder", "text", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_valid_scenario_is_shown_as_json_with_what_was_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = scenario_file(tmp_path, GOOD)
    assert run(["config", "validate", file, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["policies"] == ["a", "b"] and found["num_requests"] == 20
    assert found["scenario"]["max_num_batched_tokens"] == prepare(read(file)).limits.max_num_batched_tokens
    assert run(["version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"version", "core"}
