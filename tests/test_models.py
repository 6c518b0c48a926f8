"""Models by name and by config.json: families, names of the hub, and the numbers in which they are served."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.cost import Roofline
from batchwright.cost_text import cost
from batchwright.errors import InputError
from batchwright.hardware import (
    GPUS,
    METHODS,
    MODELS,
    Model,
    Quantization,
    find_gpu,
    find_model,
    kv_bytes,
    kv_bytes_per_token,
    read_model,
    served,
    weight_bytes,
    window_kv_bytes_per_token,
)
from batchwright.hardware.quantization import ONLINE, STORED

GIB = 1 << 30
H100, T4 = GPUS["H100-SXM"], GPUS["T4"]

# What the published config.json of each says of its shape.
CONFIGS: dict[str, dict[str, Any]] = {
    "mistral-7b-v0.1": {
        "model_type": "mistral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000,
        "max_position_embeddings": 32768, "sliding_window": 4096, "tie_word_embeddings": False,
    },
    "deepseek-v2-lite": {
        "model_type": "deepseek_v2", "num_hidden_layers": 27, "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 16, "intermediate_size": 10944, "vocab_size": 102400,
        "max_position_embeddings": 163840, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "topk_method": "greedy", "attention_bias": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280,
        "max_position_embeddings": 163840, "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 3, "moe_layer_freq": 1,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "topk_method": "noaux_tc",
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"},
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
        "max_position_embeddings": 131072, "sliding_window": 128, "num_local_experts": 32,
        "num_experts_per_tok": 4, "attention_bias": True, "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    },
    "gemma-2-9b": {
        "model_type": "gemma2", "num_hidden_layers": 42, "hidden_size": 3584, "num_attention_heads": 16,
        "num_key_value_heads": 8, "head_dim": 256, "intermediate_size": 14336, "vocab_size": 256000,
        "max_position_embeddings": 8192, "sliding_window": 4096,
    },
    "gemma-3-4b": {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "sliding_window": 1024,
        },
        "vision_config": {
            "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "num_hidden_layers": 27,
            "patch_size": 14,
        },
    },
    "phi-3-mini": {
        "model_type": "phi3", "num_hidden_layers": 32, "hidden_size": 3072, "num_attention_heads": 32,
        "num_key_value_heads": 32, "intermediate_size": 8192, "vocab_size": 32064,
        "max_position_embeddings": 4096, "sliding_window": 2047, "partial_rotary_factor": 1.0,
    },
    "phi-4": {
        "model_type": "phi3", "num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 10, "intermediate_size": 17920, "vocab_size": 100352,
        "max_position_embeddings": 16384, "sliding_window": None,
    },
    "phi-3.5-moe": {
        "model_type": "phimoe", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 6400, "vocab_size": 32064,
        "max_position_embeddings": 131072, "sliding_window": 131072, "num_local_experts": 16,
        "num_experts_per_tok": 2, "attention_bias": True, "lm_head_bias": True,
    },
}  # fmt: skip


def write(folder: Path, config: dict[str, Any]) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps({"torch_dtype": "bfloat16", **config}), encoding="utf-8")
    return file


def bare(model: Model) -> Model:
    """The model without what only says where it comes from."""
    return replace(model, name="m", source="test", from_file=False)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_config_and_the_built_in_model_are_the_same(tmp_path, name):
    assert bare(read_model(write(tmp_path, CONFIGS[name]))) == bare(MODELS[name])


def test_a_gpt_oss_config_without_a_dtype_or_a_list_of_layers_alternates(tmp_path):
    config = {key: value for key, value in CONFIGS["gpt-oss-20b"].items() if key != "layer_types"}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    assert bare(read_model(file)) == bare(MODELS["gpt-oss-20b"])


def test_weights_take_what_the_checkpoints_take():
    published = {"gpt-oss-20b": 12.8, "gpt-oss-120b": 60.8}  # GiB, model card of gpt-oss
    for name, size in published.items():
        assert MODELS[name].weight_bytes / GIB == pytest.approx(size, abs=0.05)
    fp8 = MODELS["deepseek-v3"]  # one byte a weight, but for tables, norms and routers
    assert fp8.weight_bytes == pytest.approx(fp8.parameters + fp8.embedding_parameters * 2, rel=2e-3)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_is_an_ordinary_value(name):
    model = MODELS[name]
    assert pickle.loads(pickle.dumps(model)) == model and hash(model) == hash(replace(model))


# KV


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("llama-2-7b", 32 * 2 * 32 * 128),  # all heads
        ("llama-3.1-8b", 32 * 2 * 8 * 128),  # grouped queries
        ("gemma-3-1b", 26 * 2 * 1 * 256),  # one head for all queries
        ("deepseek-v3", 61 * (512 + 64)),  # a latent vector
    ],
)
def test_a_token_leaves_so_many_numbers(name, numbers):
    assert kv_bytes_per_token(MODELS[name]) == 2 * numbers


@given(st.sampled_from([1, 2, 4, 8, 16]))
def test_every_gpu_holds_a_latent_vector_whole(tp):
    model = MODELS["deepseek-v3"]
    assert kv_bytes_per_token(model, tp) == kv_bytes_per_token(model)


@given(st.sampled_from(["gpt-oss-20b", "gemma-3-4b", "mistral-7b-v0.1"]), st.integers(1, 200_000))
def test_layers_with_a_window_keep_no_more_than_it(name, tokens):
    model = MODELS[name]
    layer = kv_bytes_per_token(model) // model.layers
    full, narrow = model.layers - model.window_layers, model.window_layers
    assert kv_bytes(model, tokens) == layer * (full * tokens + narrow * min(tokens, model.window))
    assert window_kv_bytes_per_token(model) == layer * narrow


def test_projections_to_latents_lie_whole_on_every_gpu():
    model = MODELS["deepseek-v3"]
    down = 61 * 7168 * (1536 + 576)
    assert model.copied_parameters * 61 == down
    more = weight_bytes(model, 8) - model.weight_bytes / 8
    assert more == pytest.approx(down * 7 / 8, rel=1e-3)


# names


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("Qwen/QwQ-32B", "qwq-32b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b-2507"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_names_of_the_hub_are_found(name, found):
    assert find_model(name) is MODELS[found]


@pytest.mark.parametrize(
    ("name", "base", "bits", "arithmetic"),
    [
        ("Qwen/Qwen2-72B-Instruct-GPTQ-Int4", "qwen2-72b", 4, "16-bit"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "qwen2.5-7b", 8, "16-bit"),
        ("Qwen/Qwen2.5-32B-Instruct-AWQ", "qwen2.5-32b", 4, "16-bit"),
        ("Qwen/QwQ-32B-FP8-Dynamic", "qwq-32b", 8, "fp8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama-3.1-8b", 8, "int8"),
    ],
)
def test_a_format_in_the_name_says_how_weights_are_stored(name, base, bits, arithmetic):
    model = find_model(name)
    assert model.quantization is not None
    assert (model.quantization.weight_bits, model.quantization.arithmetic) == (bits, arithmetic)
    assert replace(model, name=base, quantization=None) == MODELS[base]


@given(st.sampled_from(sorted(MODELS)), st.sampled_from(["", "org/"]), st.booleans())
def test_a_name_with_an_organisation_in_any_case_is_that_model(name, organisation, is_upper):
    asked = organisation + (name.upper() if is_upper else name)
    assert find_model(asked) is MODELS[name]


@pytest.mark.parametrize("name", ["Qwen/Qwen9-8B", "meta-llama/Llama-3.1", "-awq", "awq"])
def test_another_name_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=r"neither a config\.json nor a known model") as caught:
        find_model(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H100", "H100-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIE"),
        ("A100-SXM4-80GB", "A100-80G-SXM"),
        ("NVIDIA A100-SXM4-40GB", "A100-40G"),
        ("NVIDIA A100 80GB PCIe", "A100-80G-PCIE"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("rtx4090", "RTX-4090"),
        ("RTXPRO6000", "RTX-PRO-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X", "MI300X"),
        ("cpu", "CPU"),
    ],
)
def test_gpus_are_found_as_drivers_and_people_call_them(name, found):
    assert find_gpu(name) is GPUS[found]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("A100", "may be several; give one of A100-80G-SXM, A100-80G-PCIE, A100-40G, A100-40G-PCIE$"),
        ("a100-80gb", "may be several; give one of A100-80G-SXM, A100-80G-PCIE$"),
        ("NVIDIA GeForce RTX 4090 D", "unknown GPU"),
        ("NVIDIA", "unknown GPU"),
        ("", "unknown GPU"),
    ],
)
def test_a_name_of_several_gpus_or_of_none_is_refused(name, said):
    with pytest.raises(InputError, match=said):
        find_gpu(name)


def test_every_gpu_is_found_under_its_name_without_hyphens():
    for name, gpu in GPUS.items():
        assert find_gpu(name.replace("-", "")) is find_gpu(name.lower()) is gpu


# windows in config.json


@pytest.mark.parametrize(
    ("change", "layers"),
    [
        ({"model_type": "mistral"}, 6),
        ({"model_type": "mistral", "sliding_window": 4096}, 0),  # as long as the longest sequence
        ({"model_type": "qwen2", "use_sliding_window": False}, 0),
        ({"model_type": "qwen2"}, 0),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 4}, 2),
        ({"model_type": "gemma2", "head_dim": 32}, 3),
        ({"model_type": "gemma3_text", "head_dim": 32}, 5),
        ({"model_type": "gemma3_text", "head_dim": 32, "sliding_window_pattern": 2}, 3),
        ({"model_type": "mistral", "layer_types": ["sliding_attention"] * 2 + ["full_attention"] * 4}, 2),
    ],
)
def test_the_family_says_which_layers_have_the_window(tmp_path, change, layers):
    config = {
        "num_hidden_layers": 6, "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2,
        "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 4096, "sliding_window": 512,
    }  # fmt: skip
    model = read_model(write(tmp_path, config | change))
    assert (model.window_layers, model.window) == (layers, 512 if layers else 0)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "layer_types has 'linear_attention'"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"] * 3}, "layer_types lists 3 layers of 24"),
        ("gemma-3-4b", {"text_config": None}, "text_config is missing"),
        ("gpt-oss-20b", {"num_hidden_layers": 10**24}, "num_hidden_layers is 10{24}, but must"),
        ("phi-4", {"hidden_size": 10**24}, "hidden_size is 10{24}, but must be at most 1000000000"),
        ("gemma-3-4b", {"text_config": [1]}, "text_config is \\[1\\]"),
        ("deepseek-v3", {"kv_lora_rank": None}, "kv_lora_rank is missing"),
        ("deepseek-v3", {"attention_bias": True}, "attention_bias true is not priced here"),
        ("deepseek-v3", {"moe_layer_freq": 2}, "moe_layer_freq 2 is not priced here"),
        ("phi-4", {"quantization_config": {"quant_method": "fp8", "weight_block_size": 3}}, "weight_block"),
    ],
)
def test_what_is_not_priced_is_named_with_its_file(tmp_path, name, change, said):
    file = write(tmp_path, CONFIGS[name] | change)
    with pytest.raises(InputError, match=said) as caught:
        read_model(file)
    assert str(caught.value).startswith(str(file)) and "\n" not in str(caught.value)


# quantisation


@pytest.mark.parametrize(
    ("config", "bits", "arithmetic"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4 + 20 / 64, "16-bit"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8, "16-bit"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4 + 20 / 128, "16-bit"),
        ({"quant_method": "fp8"}, 8, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8 + 32 / 128**2, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4 + 8 / 64, "16-bit"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8, "16-bit"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5, "fp4"),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
                "weights": {"num_bits": 8, "type": "int", "strategy": "channel"},
                "input_activations": {"num_bits": 8, "type": "int"}}}}, 8, "int8",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
                "weights": {"num_bits": 8, "type": "float"},
                "input_activations": {"num_bits": 8, "type": "float"}}}}, 8, "fp8",
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {
                "weights": {"num_bits": 4, "type": "int", "group_size": 128}, "input_activations": None}}},
            4 + 16 / 128, "16-bit",
        ),
    ],
)  # fmt: skip
def test_the_file_says_how_its_weights_are_stored(tmp_path, config, bits, arithmetic):
    model = read_model(write(tmp_path, CONFIGS["phi-4"] | {"quantization_config": config}))
    assert model.quantization is not None and model.quantization.arithmetic == arithmetic
    matrices = model.core_matrices
    assert model.weight_bytes == pytest.approx(2 * (model.parameters - matrices) + matrices * bits / 8, abs=1)


@pytest.mark.parametrize(
    "config",
    [
        {"quant_method": "compressed-tensors", "config_groups": {}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 3}}}},
        {"quant_method": "compressed-tensors", "config_groups": {
            "a": {"weights": {"num_bits": 8}}, "b": {"weights": {"num_bits": 4}}}},
        {"quant_method": "gptq", "bits": 3},
        {"quant_method": ["fp8"]},
        {"bits": 4},
    ],
)  # fmt: skip
def test_another_format_is_refused(tmp_path, config):
    with pytest.raises(InputError, match=r"quantization_config .* is not priced here"):
        read_model(write(tmp_path, CONFIGS["phi-4"] | {"quantization_config": config}))


@given(st.sampled_from(sorted(METHODS)), st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b"]))
def test_a_method_changes_only_the_matrices_of_the_layers(method, name):
    plain, format = MODELS[name], METHODS[method]
    if format.experts_only and not plain.moe_layers:
        return
    model = served(plain, H100, quantization=method)
    routed = plain.moe_layers * plain.experts * plain.expert_parameters
    matrices = routed + (0 if format.experts_only else plain.core_matrices)
    bits = format.weight_bits + (format.scale_bits / format.group_size if format.group_size else 0)
    assert model.weight_bytes == pytest.approx(plain.weight_bytes - matrices * (2 - bits / 8), rel=1e-9)
    assert model.parameters == plain.parameters


def test_what_is_as_it_comes_is_the_model_itself():
    for model in MODELS.values():
        assert served(model, H100) is model


@pytest.mark.parametrize("asked", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_an_fp8_cache_takes_half(asked):
    model = served(MODELS["llama-3.1-8b"], H100, kv_cache_dtype=asked)
    assert kv_bytes_per_token(model) == 65536


def test_float32_doubles_weights_and_cache_and_slows_arithmetic():
    plain, model = MODELS["llama-3.1-8b"], served(MODELS["llama-3.1-8b"], H100, dtype="float32")
    assert model.weight_bytes == 2 * plain.weight_bytes
    assert kv_bytes_per_token(model) == 2 * kv_bytes_per_token(plain)
    assert kv_bytes_per_token(served(plain, H100, dtype="float", kv_cache_dtype="bfloat16")) == 131072
    full, half = Roofline(H100, plain, dtype="float32"), Roofline(H100, plain)
    assert full.critical_tokens == pytest.approx(half.critical_tokens * 67 / 989 * 2, rel=1e-6)


@pytest.mark.parametrize(
    ("gpu", "model", "flags", "said"),
    [
        (H100, "llama-3.1-8b", {"dtype": "int8"}, "dtype is 'int8'"),
        (H100, "llama-3.1-8b", {"quantization": "fp9"}, "quantization is 'fp9'; did you mean 'fp8'"),
        (H100, "llama-3.1-8b", {"quantization": "mxfp4"}, "is of experts, and llama-3.1-8b has none"),
        (H100, "llama-3.1-8b", {"kv_cache_dtype": "fp4"}, "kv_cache_dtype is 'fp4'"),
        (H100, "deepseek-v3", {"quantization": "awq"}, "stored in fp8"),
        (H100, "gpt-oss-20b", {"quantization": "fp8"}, "stored in mxfp4"),
        (H100, "deepseek-v3", {"kv_cache_dtype": "fp8_e5m2"}, "give fp8_e4m3|allows only fp8_e4m3"),
        (H100, "deepseek-v3", {"dtype": "float32"}, "is served in 16 bits"),
        (T4, "llama-3.2-1b", {"dtype": "bfloat16"}, "T4 has none; give float16"),
        (replace(H100, fp32_flops=None), "llama-3.2-1b", {"dtype": "float32"}, "fp32_flops is not known"),
    ],
)  # fmt: skip
def test_what_an_engine_refuses_is_refused(gpu, model, flags, said):
    with pytest.raises(InputError, match=said) as caught:
        served(MODELS[model], gpu, **flags)
    assert "\n" not in str(caught.value)


def test_a_method_that_is_the_kernel_of_the_stored_one_is_accepted():
    stored = served(MODELS["llama-3.1-8b"], H100, quantization="awq")
    assert served(stored, H100, quantization="awq_marlin") == stored


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_file_of_plain_weights_takes_only_what_is_made_while_loading(tmp_path, method):
    model = read_model(write(tmp_path, CONFIGS["phi-3.5-moe"]))
    if method in ONLINE:
        assert served(model, H100, quantization=method).quantization == METHODS[method]
        return
    assert method in STORED
    with pytest.raises(InputError, match="are not stored so"):
        served(model, H100, quantization=method)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"weight_bits": 5}, "weight_bits is 5"),
        ({"group_size": -1}, "group_size is -1"),
        ({"arithmetic": "int4"}, "arithmetic is 'int4'"),
    ],
)
def test_an_impossible_format_is_refused(values, said):
    with pytest.raises(InputError, match=said):
        Quantization(**({"method": "m", "weight_bits": 8} | values))


def test_fp8_weights_compute_in_fp8_only_where_the_gpu_can():
    def critical(gpu: str, quantization: str | None = None) -> float:
        return Roofline(gpu, "llama-3.1-8b", quantization=quantization).critical_tokens

    assert critical("L4", "fp8") == pytest.approx(critical("L4"), rel=0.01)  # half the bytes, twice the rate
    assert critical("A30", "fp8") == pytest.approx(critical("A30") / 2, rel=0.01)


def test_the_text_form_has_the_flags():
    text = 'roofline("H200", "qwen3-30b-a3b", dtype="float16", quantization="fp8", kv_cache_dtype="fp8")'
    model = cost(text)
    expected = Roofline("H200", "qwen3-30b-a3b", dtype="float16", quantization="fp8", kv_cache_dtype="fp8")
    assert model == expected and pickle.loads(pickle.dumps(model)) == model
    assert expected.model == served(MODELS["qwen3-30b-a3b"], GPUS["H200"], "float16", "fp8", "fp8")
