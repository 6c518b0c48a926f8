"""Pasted commands of servers: every flag is accounted for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.errors import BatchwrightError, InputError
from batchwright.scenario.like import KEYS
from batchwright.server_command import ServerCommand, read
from batchwright.server_command.command import APART, IDLE, UNKNOWN, USED
from batchwright.server_command.engine_rules import RULES
from batchwright.server_command.flags import table_of

pytestmark = pytest.mark.pure
SERVE = "vllm serve llama-3.1-8b"


def of(text: str) -> ServerCommand:
    return read(text, KEYS)


def how(text: str) -> dict[str, str]:
    return {use.flag: use.how for use in of(text).uses}


# --- shells ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve llama-3.1-8b --max-num-seqs 64 -tp 2",
        "vllm serve --max-num-seqs=64 --tensor-parallel-size=2 llama-3.1-8b",
        "vllm serve llama-3.1-8b --max_num_seqs 64 --tensor_parallel_size 2",
        "vllm serve llama-3.1-8b --max-num-se 64 --tensor-p 2",
        "  $ vllm serve llama-3.1-8b \\\n    --max-num-seqs 64 \\  \n    -tp 2\n",
        "# the server\nvllm serve 'llama-3.1-8b' --max-num-seqs \"64\" -tp 2 > log.txt 2>&1 &",
        "CUDA_VISIBLE_DEVICES=0,1 nohup /opt/venv/bin/vllm serve llama-3.1-8b --max-num-seqs 64 -tp "
        "2 | tee log",
        "python3 -m vllm.entrypoints.openai.api_server --model llama-3.1-8b --max-num-seqs 64 -tp 2",
        "docker run --gpus all -v ~/.cache:/root/.cache -p 8000:8000 --ipc=host vllm/vllm-openai:latest "
        "--model llama-3.1-8b --max-num-seqs 64 -tp 2",
        "sudo docker run --rm --name vllm -e HF_TOKEN=x docker.io/vllm/vllm-openai vllm serve llama-3.1-8b "
        "--max-num-seqs 64 -tp 2 && echo done",
    ],
)
def test_one_server_can_be_written_in_many_ways(text: str) -> None:
    found = of(text)
    assert found.keys == {"model": "llama-3.1-8b", "max_num_seqs": 64, "tp": 2}
    assert found.policy == "vllm@0.32" and all(use.how == USED for use in found.uses)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "--like is empty"),
        ("ls -l", "--like 'ls -l' starts no server that is known"),
        ("vllm bench serve --model m", "starts no server"),
        ("vllm serve 'm --max-num-seqs 64", "--like has no closing quotation"),
        (f"{SERVE} other", "'other' belongs to no flag"),
        (f"{SERVE} --max-num-seqs", "--max-num-seqs has no value"),
        (f"{SERVE} --max-num-seqs --port 1", "--max-num-seqs has no value"),
        (f"{SERVE} --max-num-seqs many", "--max-num-seqs is 'many', not a whole number"),
        (f"{SERVE} --max-num-seqs $SEQS", r"--max-num-seqs is \$SEQS, a variable of a shell"),
        (f"{SERVE} --gpu-memory-utilization nan", "not a finite number"),
        (f"{SERVE} --scheduling-policy lifo", "policy 'lifo' is not known"),
        ("vllm@0.19 serve m --watermark 0.1", "vllm@0.19 has no flag watermark"),
        ("vllm@new serve m", "'new' is no version"),
        (
            "docker run -p 1:1 vllm/vllm-openai python -m sglang.launch_server",
            "starts sglang in an image of vllm",
        ),
        ("vllm serve " + "x" * 70_000, "over 65536"),
    ],
)
def test_what_cannot_be_is_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        of(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60), st.integers(0, 60))
def test_any_text_is_read_or_refused_in_one_line(noise: str, place: int) -> None:
    text = f"{SERVE} --max-num-seqs 64 --speculative-config '{{}}' -O3"
    try:
        of(text[:place] + noise + text[place:])
    except BatchwrightError as error:
        assert str(error).count("\n") <= noise.count("\n") and len(str(error)) < 400


# --- flags ----------------------------------------------------------------------------------


def test_flags_are_used_not_modelled_of_no_matter_or_unknown() -> None:
    assert how(
        f"{SERVE} --max-num-seqs 64 --enable-lora --port 8000 --served-model-name a b "
        "--max-num-sequences-total 3"
    ) == {
        "llama-3.1-8b": USED, "--max-num-seqs": USED, "--enable-lora": APART, "--port": IDLE,
        "--served-model-name": IDLE, "--max-num-sequences-total": UNKNOWN,
    }  # fmt: skip
    lines = list(of(f"{SERVE} --max-num-sequences 3 --enable-lora --port 1").lines())
    assert "--like: --max-num-sequences is unknown; did you mean 'max-num-seqs'?" in lines
    assert "--like: --enable-lora is not modelled (LoRA)" in lines
    assert "--like: --port is of no matter to batching" in lines


def test_a_file_of_flags_is_not_read_and_that_is_said() -> None:
    assert any(
        "the flags in my.yaml are not seen" in line for line in of("vllm serve --config my.yaml").lines()
    )


@pytest.mark.parametrize(
    ("flags", "keys"),
    [
        ("--max-model-len 32k", {"max_model_len": 32_000}),
        ("--max-model-len 32K", {"max_model_len": 32_768}),
        ("--max-model-len 25.6k", {"max_model_len": 25_600}),
        ("--max-model-len auto", {}),
        ("--max-model-len -1", {}),
        ("--kv-cache-dtype auto", {}),
        ("--kv-cache-dtype fp8", {"kv_cache_dtype": "fp8"}),
        ("--no-enable-prefix-caching", {"enable_prefix_caching": False}),
        ("--enable-prefix-caching False", {"enable_prefix_caching": False}),
        ("--enable-expert-parallel", {"enable_expert_parallel": True}),
        ("--max-num-seqs 8 --max-num-seqs 16", {"max_num_seqs": 16}),
        ("--num-gpu-blocks-override 500 --gpu-memory-utilization 0.8", {"num_gpu_blocks_override": 500}),
    ],
)
def test_a_value_is_read_as_vllm_reads_it(flags: str, keys: dict[str, Any]) -> None:
    found = dict(of(f"{SERVE} {flags}").keys)
    assert found.pop("model") == "llama-3.1-8b" and found == keys


@pytest.mark.parametrize(
    ("flags", "policy"),
    [
        ("--no-async-scheduling", "vllm@0.32(async_scheduling=false)"),
        ("--scheduling-policy priority", "vllm@0.32(policy=priority)"),
        ("--long-prefill-token-threshold 512", "vllm@0.32(long_prefill_token_threshold=512)"),
        ("--watermark 0.01 --policy-x", "vllm@0.32(watermark=0.01)"),
        ("--no-scheduler-reserve-full-isl", "vllm@0.32(scheduler_reserve_full_isl=false)"),
        ("--speculative-config '{\"num_speculative_tokens\": 3}' -O3 -cc.mode=none", "vllm@0.32"),
    ],
)  # fmt: skip
def test_flags_of_the_scheduler_become_those_of_the_policy(flags: str, policy: str) -> None:
    assert of(f"{SERVE} {flags}").policy == policy


@pytest.mark.parametrize(
    ("command", "policy"),
    [
        ("vllm serve m", "vllm@0.32"),
        ("vllm@0.19 serve m", "vllm@0.19"),
        ("docker run vllm/vllm-openai:v0.19.0 --model m", "vllm@0.19"),
        ("docker run vllm/vllm-openai:v0.30.1 --model m", "vllm@0.32"),
        ("docker run vllm/vllm-openai:v0.11.0 --model m", "vllm@0.19(async_scheduling=false)"),
        ("docker run vllm/vllm-openai:v0.6.6 --model m", "vllm_v0"),
        ("docker run vllm/vllm-openai:v0.6.6 --model m --enable-chunked-prefill", "sarathi"),
        ("VLLM_USE_V1=0 vllm serve m --max-num-seqs 8", "vllm_v0"),
        (
            "docker run lmsysorg/sglang:v0.4.6.post1-cu124 python3 -m sglang.launch_server --model m",
            "sglang@0.4",
        ),
        ("sglang serve --model-path m --schedule-policy lpm", "sglang@0.5(schedule_policy=lpm)"),
        ("docker run ghcr.io/huggingface/text-generation-inference:2.4 --model-id m", "tgi@2"),
        ("docker run ghcr.io/huggingface/text-generation-inference:3.3.4 --model-id m", "tgi@3"),
        ("trtllm-serve m --enable_chunked_prefill", "tensorrt_llm(enable_chunked_context=true)"),
        ("trtllm-serve serve m", "tensorrt_llm"),
    ],
)
def test_engine_and_version_name_the_policy(command: str, policy: str) -> None:
    assert of(command).policy == policy


def test_sglang_counts_in_tokens_and_pages() -> None:
    found = of(
        "python -m sglang.launch_server --model m --max-total-tokens 1000 --page-size 16 "
        "--max-running-requests 9"
    )
    assert found.keys == {
        "model": "m", "block_size": 16, "num_gpu_blocks_override": 63, "max_num_seqs": 9,
    }  # fmt: skip
    assert of("sglang serve --model m --disable-radix-cache").keys["enable_prefix_caching"] is False
    assert of("sglang serve --model m").keys["block_size"] == 1


def test_tgi_takes_its_flags_from_variables_too() -> None:
    found = of(
        "docker run -e MODEL_ID=m -e NUM_SHARD=4 -e MAX_WAITING_TOKENS=7 -e HF_TOKEN=secret "
        "ghcr.io/huggingface/text-generation-inference:3.0 --max-total-tokens 4096"
    )
    assert found.keys == {"model": "m", "tp": 4, "max_model_len": 4096}
    assert found.policy == "tgi@3(max_waiting_tokens=7)"
    assert not any("secret" in line for line in found.lines())


def test_every_rule_is_about_a_flag_that_the_engine_has() -> None:
    for engine, rules in RULES.items():
        known = table_of(engine).names
        apart = table_of(engine).not_modelled
        own = {*rules.keys, *rules.policy, *rules.both, *apart, *rules.files} - {"prefill-chunking", "model"}
        assert own <= known, (engine, sorted(own - known))
        assert not {*rules.keys, *rules.policy} & apart.keys()


def test_every_flag_of_every_engine_has_one_kind() -> None:
    for engine in RULES:
        table = table_of(engine)
        assert not table.switches & table.values and not table.lists & (table.switches | table.values)
        assert set(table.aliases.values()) <= table.names and not set(table.aliases) & table.names
