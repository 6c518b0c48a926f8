"""The key `like`: what a pasted command says stands where nothing else is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from batchwright.cli.app import run
from batchwright.errors import BatchwrightError, InputError
from batchwright.scenario import Scenario
from batchwright.scenario.build import prepare
from batchwright.scenario.like import command_of
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


def test_defaults_that_go_by_the_gpu_are_those_of_the_one_that_is_given() -> None:
    found = scenario("sglang serve --model llama-3.2-1b", gpu="T4")
    (policy,) = prepare(found).policies.values()
    assert policy.chunked_prefill_size == 2048


@pytest.mark.parametrize(
    "secret",
    ["HF_TOKEN=s3cret {}", "docker run -e 'X_API_KEY=s3cret' vllm/vllm-openai --model llama-3.1-8b",
     "{} --api-key s3cret", "{} --api-key='s3cret more'", "{} --hf_token \"s3cret\" --port 1"],
)  # fmt: skip
def test_secrets_of_the_command_are_not_kept(secret: str) -> None:
    found = scenario(secret.format("vllm serve llama-3.1-8b"))
    command = command_of(found)
    assert command is not None and command.keys["model"] == "llama-3.1-8b"
    assert "s3cret" not in as_yaml(found) + json.dumps(command.to_json())


def test_a_cost_takes_the_place_of_its_gpu_and_model() -> None:
    found = scenario(cost="linear(base=0.005, prefill=2e-5)")
    assert found.model is None and found.tp is None and found.max_num_seqs == 64
    notes = prepare(found).notes
    assert "the tp of --like, 2, does not count beside what is given" in notes


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


# --- batchwright kv -------------------------------------------------------------------------


def kv(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["kv", *arguments]) == 0
    return capsys.readouterr().out


def test_kv_counts_what_the_command_says_as_its_version_does(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--max-num-seqs", "20", "--max-model-len", "4k")
    image = f"docker run vllm/vllm-openai:v0.9.1 --model llama-3.1-8b {' '.join(flags)} --enforce-eager"
    by_hand = kv(capsys, "--gpu", "L40", "--engine", "vllm@0.9", "--enforce-eager", *flags)
    pasted = kv(capsys, "--gpu", "L40", "--like", image)
    assert pasted.endswith(by_hand) and "--like is vLLM 0.9.1" in pasted


def test_kv_takes_flags_that_are_given_before_those_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "vllm serve llama-3.1-8b --block-size 32"
    pasted = kv(capsys, "--like", command, "--block-size", "16")
    assert "block_size is 16, not the 32 of --like" in pasted
    assert pasted.endswith(kv(capsys, "--block-size", "16"))
    found = json.loads(kv(capsys, "--like", command, "--json"))
    assert found["like"]["flags"][1] == {
        "flag": "--block-size", "value": "32", "how": "used", "text": "block_size 32"
    }  # fmt: skip


def test_kv_counts_no_other_engine(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="--like starts SGLang, but KV blocks are counted as vLLM does"):
        kv(capsys, "--like", "sglang serve --model llama-3.1-8b")
