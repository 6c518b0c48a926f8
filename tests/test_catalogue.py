"""`batchwright gpus` and `models`, and the flags that say in which numbers a model is served."""

from __future__ import annotations

import json

import pytest

from batchwright.cli.app import run
from batchwright.cost import Hosted, Roofline
from batchwright.errors import InputError
from batchwright.hardware import GPUS, MODELS
from batchwright.scenario.build import prepare
from batchwright.scenario.text import read

FLAGS = {"dtype": "float16", "quantization": "fp8", "kv_cache_dtype": "fp8"}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(list(words)) == 0
    return capsys.readouterr().out


def prepared(**keys: object):
    return prepare(read("chat", {"requests": 20, "policies": "vllm", **keys}, ()))


def device(**keys: object) -> Roofline:
    cost = prepared(**keys).cost
    assert isinstance(cost, Hosted) and isinstance(cost.cost, Roofline)
    return cost.cost


def test_every_gpu_and_model_is_printed_once_in_each_table(capsys):
    for command, known in (("gpus", GPUS), ("models", MODELS)):
        names = [line.split()[0] for line in printed(capsys, command).splitlines() if line.startswith(" ")]
        for name in known:
            assert names.count(name) == 2


def test_json_has_the_figures_of_each(capsys):
    gpus = json.loads(printed(capsys, "gpus", "--json"))["gpus"]
    assert list(gpus) == list(GPUS)
    assert gpus["T4"]["has_bfloat16"] is False and gpus["A30"]["flops_fp8_per_s"] is None
    models = json.loads(printed(capsys, "models", "--json"))["models"]
    assert list(models) == list(MODELS)
    for name, figures in models.items():
        assert figures["num_parameters"] == MODELS[name].parameters
        assert (figures["window_tokens"] is None) == (MODELS[name].window_layers == 0)


def test_chosen_names_are_shown_in_the_order_given(capsys):
    found = json.loads(printed(capsys, "models", "phi-4", "Qwen/Qwen2.5-7B-Instruct-AWQ", "--json"))
    assert list(found["models"]) == ["phi-4", "qwen2.5-7b-awq"]
    assert found["models"]["qwen2.5-7b-awq"]["stored_in"] == "awq"
    with pytest.raises(InputError, match="unknown GPU 'H101'"):
        run(["gpus", "H101"])


def test_the_flags_reach_the_cost_and_are_said():
    found = prepared(gpu="H200", model="qwen3-30b-a3b", **FLAGS)
    assert found.cost == Hosted(Roofline("H200", "qwen3-30b-a3b", **FLAGS))
    assert "1 x H200, float16, fp8, KV in fp8" in found.cost_name


def test_half_the_bytes_leave_room_for_more_blocks():
    weights_in, cache_in = {"quantization": "fp8"}, {"kv_cache_dtype": "fp8"}
    plain, weights, cache, both = (
        prepared(gpu="L40S", **flags).limits.num_kv_blocks
        for flags in ({}, weights_in, cache_in, weights_in | cache_in)
    )
    assert plain < weights < cache < both and cache == pytest.approx(2 * plain, abs=3)


def test_data_parallel_ranks_serve_quantised_experts_with_latent_attention():
    found = device(
        gpu="H200", model="deepseek-v3", tp=4, dp=2, enable_expert_parallel=True, kv_cache_dtype="fp8_e4m3"
    )
    assert (found.tp, found.dp, found.ep) == (4, 2, True)
    assert found.kv_bytes_per_token == 61 * 576


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"dtype": "bfloat8"}, "dtype is 'bfloat8'"),
        ({"quantization": "awk"}, "quantization is 'awk'; did you mean 'awq'"),
        ({"kv_cache_dtype": "int8"}, "kv_cache_dtype is 'int8'"),
        ({"cost": "constant(0.02)", "quantization": "fp8"}, "together with --quantization"),
        ({"cost": "constant(0.02)", "kv_cache_dtype": "fp8"}, "together with --kv-cache-dtype"),
        ({"gpu": "T4", "model": "llama-3.2-1b", "dtype": "bfloat16"}, "T4 has none"),
    ],
)
def test_a_flag_that_cannot_be_is_one_line(keys, said):
    with pytest.raises(InputError, match=said) as caught:
        prepared(**keys)
    assert "\n" not in str(caught.value)


def test_a_cpu_has_the_limits_of_vllms_cpu_back_end():
    found = prepared(gpu="CPU", model="llama-3.2-1b").limits
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (128, 2048)


def exported(tmp_path, *words: str) -> str:
    script = tmp_path / "serve.sh"
    line = ["export", "chat", "--requests", "5", "--format", "command", "-o", str(script), "--force", *words]
    assert run(line) == 0
    return script.read_text(encoding="utf-8")


def test_an_exported_server_is_started_in_the_same_numbers(tmp_path):
    text = exported(tmp_path, "--quantization", "fp8", "--kv-cache-dtype", "fp8", "--dtype", "float16")
    for flag in ("--quantization fp8", "--kv-cache-dtype fp8", "--dtype float16"):
        assert flag in text


def test_an_exported_server_of_another_checkpoint_must_be_named(tmp_path):
    with pytest.raises(InputError, match="name it with --serve-model"):
        exported(tmp_path, "--quantization", "awq")
    text = exported(tmp_path, "--quantization", "awq", "--serve-model", "org/model-AWQ")
    assert "vllm serve org/model-AWQ" in text and "--quantization" not in text
