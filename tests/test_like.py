"""The key `like`: what a pasted command says stands where nothing else is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from batchwright.errors import BatchwrightError, InputError
from batchwright.scenario import Scenario
from batchwright.scenario.build import prepare
from batchwright.scenario.text import as_yaml, read

pytestmark = pytest.mark.pure
LOAD = "poisson(rate=4, n=20, prompt=200, output=20)"
COMMAND = (
    "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 64 --block-size 32 -tp 2 "
    "--no-async-scheduling"
)
POLICY = "vllm@0.32(async_scheduling=false)"


def scenario(like: str = COMMAND, **flags: Any) -> Scenario:
    return read(LOAD, {"like": like, **flags})


def test_what_the_command_says_stands_for_what_is_not_given() -> None:
    found = scenario()
    assert (found.max_num_seqs, found.block_size, found.tp) == (64, 32, 2)
    assert found.model == "meta-llama/Llama-3.1-8B-Instruct" and found.policies == [POLICY]


@pytest.mark.parametrize(
    ("key", "value", "note"),
    [
        ("max_num_seqs", 8, "max_num_seqs is 8, not the 64 of --like"),
        ("block_size", 16, "block_size is 16, not the 32 of --like"),  # though it is what nobody gives, too
        ("tp", 1, "tp is 1, not the 2 of --like"),
    ],
)
def test_what_is_given_beside_it_wins_and_is_said(key: str, value: int, note: str) -> None:
    found = scenario(**{key: value})
    assert getattr(found, key) == value
    assert note in prepare(found).notes


@pytest.mark.parametrize(
    ("policies", "names"),
    [
        (None, [POLICY]),
        ("static,dynamic", [POLICY, "static", "dynamic"]),
        (f"static,{POLICY}", ["static", POLICY]),
        (["static"], [POLICY, "static"]),
        ({"mine": "static"}, [POLICY, "mine"]),
        ({"mine": POLICY}, ["mine"]),
    ],
)
def test_its_policy_runs_beside_the_others_once(policies: Any, names: list[str]) -> None:
    assert list(prepare(scenario(policies=policies)).policies) == names


def test_reading_it_again_changes_nothing(tmp_path: Path) -> None:
    found = scenario(policies="static", max_num_seqs=8)
    file = tmp_path / "it.yaml"
    file.write_text(as_yaml(found))
    assert read(str(file)) == found


def test_a_cost_takes_the_place_of_its_gpu_and_model() -> None:
    found = scenario(cost="linear(base=0.005, prefill=2e-5)")
    assert found.model is None and found.tp is None and found.max_num_seqs == 64
    notes = prepare(found).notes
    assert "tp is not given, not the 2 of --like" in notes


def test_blocks_that_are_given_take_the_place_of_its_share_of_the_memory() -> None:
    found = scenario("vllm serve llama-3.1-8b --gpu-memory-utilization 0.8", num_gpu_blocks_override=1001)
    assert found.gpu_memory_utilization is None and prepare(found).limits.num_kv_blocks == 1000


def test_every_flag_is_in_the_notes() -> None:
    notes = "\n".join(prepare(scenario(f"{COMMAND} --port 8000 --enable-lora --no-such-flag")).notes)
    for flag in ("--max-num-seqs", "--block-size", "-tp", "--no-async-scheduling", "--port", "--enable-lora"):
        assert flag in notes
    assert "--no-such-flag is unknown" in notes


def test_a_scenario_that_was_made_without_reading_the_command_is_refused() -> None:
    made = structs.replace(scenario(), policies=None)
    with pytest.raises(InputError, match=r"use scenario\.text\.read"):
        prepare(made)


@pytest.mark.parametrize("like", [3, ["vllm serve m"]])
def test_a_command_that_is_no_text_is_refused(like: object) -> None:
    with pytest.raises(BatchwrightError, match="not the command of a server as text"):
        read(LOAD, {"like": like})
