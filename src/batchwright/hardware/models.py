"""Decoder models by name.

Source: the models' public config.json; counts of parameters are exact, norms and biases included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from batchwright.hardware.model import Latent, Model
from batchwright.hardware.quantization import METHODS, Quantization

SIGLIP: Final = 416_866_032  # parameters of the vision tower of Gemma 3; its projection has more
FP8_BLOCKS: Final = Quantization(
    method="fp8", weight_bits=8, group_size=128 * 128, scale_bits=32, arithmetic="fp8"
)


def _model(
    name: str,
    hub: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    intermediate: int,
    vocab: int,
    longest: int,
    **more: Any,
) -> Model:
    """A model with the eight sizes that all have; `hub`: whose config.json."""
    return Model(
        name=name, layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head_dim,
        intermediate=intermediate, vocab=vocab, max_position_embeddings=longest,
        source=f"config.json of {hub}", **more,
    )  # fmt: skip


def _experts(layers: int, experts: int, active: int, width: int, shared: int = 0) -> dict[str, int]:
    return {
        "moe_layers": layers, "experts": experts, "active_experts": active, "moe_intermediate": width,
        "shared_intermediate": shared,
    }  # fmt: skip


def _gemma(hidden: int, window: int, window_layers: int) -> dict[str, Any]:
    """Four norms a layer, and an output head that is the embedding."""
    return {
        "tied_embeddings": True, "more_per_layer": 2 * hidden, "window": window,
        "window_layers": window_layers,
    }  # fmt: skip


def _gemma3(hidden: int, window: int, window_layers: int) -> dict[str, Any]:
    side = SIGLIP + 1152 * (hidden + 1)
    return {**_gemma(hidden, window, window_layers), "qk_norm": True, "side_parameters": side}


def _gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    """Biases everywhere, and an attention sink per head."""
    width = 2880
    return {
        **_experts(layers, experts, 4, width), "qkv_bias": True, "more_per_layer": width + 64,
        "more_per_moe_layer": experts * (1 + 3 * width), "window": 128, "window_layers": layers // 2,
        "quantization": METHODS["mxfp4"],
    }  # fmt: skip


def _deepseek(query_rank: int, dense: int, layers: int, routed: dict[str, int]) -> dict[str, Any]:
    latent = Latent(kv_rank=512, rope_dim=64, nope_dim=128, value_dim=128, query_rank=query_rank)
    return {**routed, "moe_layers": layers - dense, "latent": latent, "shared_gate": False}


_BIAS: Final = {"qkv_bias": True}
_NORM: Final = {"qk_norm": True}
_TIED: Final = {"tied_embeddings": True}
_V3: Final = _deepseek(1536, 3, 61, _experts(61, 256, 8, 2048, 2048)) | {
    "more_per_moe_layer": 256, "quantization": FP8_BLOCKS,
}  # fmt: skip

_ALL: Final = (
    _model("llama-2-7b", "meta-llama/Llama-2-7b-hf", 32, 4096, 32, 32, 128, 11008, 32000, 4096),
    _model("llama-2-13b", "meta-llama/Llama-2-13b-hf", 40, 5120, 40, 40, 128, 13824, 32000, 4096),
    _model("llama-2-70b", "meta-llama/Llama-2-70b-hf", 80, 8192, 64, 8, 128, 28672, 32000, 4096),
    _model("llama-3-8b", "meta-llama/Meta-Llama-3-8B", 32, 4096, 32, 8, 128, 14336, 128256, 8192),
    _model("llama-3-70b", "meta-llama/Meta-Llama-3-70B", 80, 8192, 64, 8, 128, 28672, 128256, 8192),
    _model("llama-3.1-8b", "meta-llama/Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 131072),
    _model("llama-3.1-70b", "meta-llama/Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, 131072),
    _model("llama-3.1-405b", "meta-llama/Llama-3.1-405B", 126, 16384, 128, 8, 128, 53248, 128256, 131072),
    _model("llama-3.2-1b", "meta-llama/Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, 131072, **_TIED),
    _model("llama-3.2-3b", "meta-llama/Llama-3.2-3B", 28, 3072, 24, 8, 128, 8192, 128256, 131072, **_TIED),
    _model("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct", 80, 8192, 64, 8, 128, 28672, 128256, 131072),
    _model("mistral-7b-v0.1", "mistralai/Mistral-7B-v0.1", 32, 4096, 32, 8, 128, 14336, 32000, 32768,
           window=4096, window_layers=32),
    _model("mistral-7b-v0.2", "mistralai/Mistral-7B-Instruct-v0.2", 32, 4096, 32, 8, 128, 14336, 32000,
           32768),
    _model("mistral-7b", "mistralai/Mistral-7B-v0.3", 32, 4096, 32, 8, 128, 14336, 32768, 32768),
    _model("mistral-nemo", "mistralai/Mistral-Nemo-Instruct-2407", 40, 5120, 32, 8, 128, 14336, 131072,
           131072),
    _model("mistral-small-24b", "mistralai/Mistral-Small-24B-Instruct-2501", 40, 5120, 32, 8, 128, 32768,
           131072, 32768),
    _model("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1", 32, 4096, 32, 8, 128, 14336, 32000, 32768,
           **_experts(32, 8, 2, 14336)),
    _model("mixtral-8x22b", "mistralai/Mixtral-8x22B-v0.1", 56, 6144, 48, 8, 128, 16384, 32000, 65536,
           **_experts(56, 8, 2, 16384)),
    _model("qwen2-7b", "Qwen/Qwen2-7B-Instruct", 28, 3584, 28, 4, 128, 18944, 152064, 32768, **_BIAS),
    _model("qwen2-72b", "Qwen/Qwen2-72B-Instruct", 80, 8192, 64, 8, 128, 29568, 152064, 32768, **_BIAS),
    _model("qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct", 24, 896, 14, 2, 64, 4864, 151936, 32768,
           **_BIAS, **_TIED),
    _model("qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct", 28, 1536, 12, 2, 128, 8960, 151936, 32768,
           **_BIAS, **_TIED),
    _model("qwen2.5-3b", "Qwen/Qwen2.5-3B-Instruct", 36, 2048, 16, 2, 128, 11008, 151936, 32768,
           **_BIAS, **_TIED),
    _model("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct", 28, 3584, 28, 4, 128, 18944, 152064, 32768, **_BIAS),
    _model("qwen2.5-14b", "Qwen/Qwen2.5-14B-Instruct", 48, 5120, 40, 8, 128, 13824, 152064, 32768, **_BIAS),
    _model("qwen2.5-32b", "Qwen/Qwen2.5-32B-Instruct", 64, 5120, 40, 8, 128, 27648, 152064, 32768, **_BIAS),
    _model("qwen2.5-72b", "Qwen/Qwen2.5-72B-Instruct", 80, 8192, 64, 8, 128, 29568, 152064, 32768, **_BIAS),
    _model("qwq-32b", "Qwen/QwQ-32B", 64, 5120, 40, 8, 128, 27648, 152064, 40960, **_BIAS),
    _model("qwen3-0.6b", "Qwen/Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, 40960, **_NORM, **_TIED),
    _model("qwen3-1.7b", "Qwen/Qwen3-1.7B", 28, 2048, 16, 8, 128, 6144, 151936, 40960, **_NORM, **_TIED),
    _model("qwen3-4b", "Qwen/Qwen3-4B", 36, 2560, 32, 8, 128, 9728, 151936, 40960, **_NORM, **_TIED),
    _model("qwen3-4b-2507", "Qwen/Qwen3-4B-Instruct-2507", 36, 2560, 32, 8, 128, 9728, 151936, 262144,
           **_NORM, **_TIED),
    _model("qwen3-8b", "Qwen/Qwen3-8B", 36, 4096, 32, 8, 128, 12288, 151936, 40960, **_NORM),
    _model("qwen3-14b", "Qwen/Qwen3-14B", 40, 5120, 40, 8, 128, 17408, 151936, 40960, **_NORM),
    _model("qwen3-32b", "Qwen/Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, 40960, **_NORM),
    _model("qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 6144, 151936, 40960,
           **_NORM, **_experts(48, 128, 8, 768)),
    _model("qwen3-30b-a3b-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507", 48, 2048, 32, 4, 128, 6144, 151936,
           262144,
           **_NORM, **_experts(48, 128, 8, 768)),
    _model("qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", 94, 4096, 64, 4, 128, 12288, 151936, 40960,
           **_NORM, **_experts(94, 128, 8, 1536)),
    _model("qwen3-235b-a22b-2507", "Qwen/Qwen3-235B-A22B-Instruct-2507", 94, 4096, 64, 4, 128, 12288, 151936,
           262144, **_NORM, **_experts(94, 128, 8, 1536)),
    _model("deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite", 27, 2048, 16, 1, 192, 10944, 102400, 163840,
           **_deepseek(0, 1, 27, _experts(27, 64, 6, 1408, 2816))),
    _model("deepseek-v2", "deepseek-ai/DeepSeek-V2", 60, 5120, 128, 1, 192, 12288, 102400, 163840,
           **_deepseek(1536, 1, 60, _experts(60, 160, 6, 1536, 3072))),
    _model("deepseek-v3", "deepseek-ai/DeepSeek-V3", 61, 7168, 128, 1, 192, 18432, 129280, 163840, **_V3),
    _model("deepseek-r1", "deepseek-ai/DeepSeek-R1", 61, 7168, 128, 1, 192, 18432, 129280, 163840, **_V3),
    _model("gpt-oss-20b", "openai/gpt-oss-20b", 24, 2880, 64, 8, 64, 2880, 201088, 131072, **_gpt_oss(24,
           32)),
    _model("gpt-oss-120b", "openai/gpt-oss-120b", 36, 2880, 64, 8, 64, 2880, 201088, 131072,
           **_gpt_oss(36, 128)),
    _model("gemma-2-2b", "google/gemma-2-2b", 26, 2304, 8, 4, 256, 9216, 256000, 8192, **_gemma(2304,
           4096, 13)),
    _model("gemma-2-9b", "google/gemma-2-9b", 42, 3584, 16, 8, 256, 14336, 256000, 8192,
           **_gemma(3584, 4096, 21)),
    _model("gemma-2-27b", "google/gemma-2-27b", 46, 4608, 32, 16, 128, 36864, 256000, 8192,
           **_gemma(4608, 4096, 23)),
    _model("gemma-3-1b", "google/gemma-3-1b-pt", 26, 1152, 4, 1, 256, 6912, 262144, 32768,
           **_gemma(1152, 512, 22), **_NORM),
    _model("gemma-3-4b", "google/gemma-3-4b-pt", 34, 2560, 8, 4, 256, 10240, 262208, 131072,
           **_gemma3(2560, 1024, 29)),
    _model("gemma-3-12b", "google/gemma-3-12b-pt", 48, 3840, 16, 8, 256, 15360, 262208, 131072,
           **_gemma3(3840, 1024, 40)),
    _model("gemma-3-27b", "google/gemma-3-27b-pt", 62, 5376, 32, 16, 128, 21504, 262208, 131072,
           **_gemma3(5376, 1024, 52)),
    _model("phi-3-mini", "microsoft/Phi-3-mini-4k-instruct", 32, 3072, 32, 32, 96, 8192, 32064, 4096,
           window=2047, window_layers=32),
    _model("phi-3-mini-128k", "microsoft/Phi-3-mini-128k-instruct", 32, 3072, 32, 32, 96, 8192, 32064,
           131072),
    _model("phi-3-medium", "microsoft/Phi-3-medium-4k-instruct", 40, 5120, 40, 10, 128, 17920, 32064, 4096,
           window=2047, window_layers=40),
    _model("phi-4", "microsoft/phi-4", 40, 5120, 40, 10, 128, 17920, 100352, 16384),
    _model("phi-3.5-moe", "microsoft/Phi-3.5-MoE-instruct", 32, 4096, 32, 8, 128, 6400, 32064, 131072,
           **_experts(32, 16, 2, 6400), **_BIAS, more_per_layer=3 * 4096, more=4096 + 32064),
)  # fmt: skip

MODELS: Final[Mapping[str, Model]] = {model.name: model for model in _ALL}
