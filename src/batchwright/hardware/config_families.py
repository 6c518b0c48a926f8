"""What each family of models adds to the sizes that all have in their config.json.

One function per family, which names its own parameters: biases, norms, sinks, experts, latent attention.
Source: the modelling files of Transformers, whose defaults stand in for keys that a file leaves out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from batchwright.hardware.config_keys import Keys
from batchwright.hardware.model import Latent

Fields = dict[str, Any]

DEFAULTS: Final[dict[str, Fields]] = {
    "gemma2": {"tie_word_embeddings": True, "sliding_window": 4096},
    "gemma3_text": {
        "tie_word_embeddings": True, "sliding_window": 4096, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
    },
    "gpt_oss": {"dtype": "bfloat16"},
}  # fmt: skip


def llama(keys: Keys) -> Fields:
    """Biases of all four attention matrices, or none; and of the three others."""
    hidden, more = keys.size("hidden_size"), 0
    if has_bias := keys.flag("attention_bias", False):
        more += hidden
    if keys.flag("mlp_bias", False):
        more += 2 * keys.size("intermediate_size") + hidden
    return {"qkv_bias": has_bias, "more_per_layer": more}


def mistral(keys: Keys) -> Fields:
    return {}


def mixtral(keys: Keys) -> Fields:
    return {
        "moe_layers": keys.size("num_hidden_layers"),
        "experts": keys.size("num_local_experts"),
        "active_experts": keys.size("num_experts_per_tok"),
        "moe_intermediate": keys.size("intermediate_size"),
    }


def qwen2(keys: Keys) -> Fields:
    return {"qkv_bias": True}


def qwen2_moe(keys: Keys) -> Fields:
    shared = keys.size("shared_expert_intermediate_size")
    return {"qkv_bias": True, "shared_intermediate": shared, **_sparse(keys)}


def qwen3(keys: Keys) -> Fields:
    return {**llama(keys), "qk_norm": True}


def qwen3_moe(keys: Keys) -> Fields:
    return {**qwen3(keys), **_sparse(keys)}


def _sparse(keys: Keys) -> Fields:
    """Every `decoder_sparse_step`-th layer has experts, but for those in `mlp_only_layers`."""
    step, dense = keys.size("decoder_sparse_step", 1), keys.items("mlp_only_layers")
    layers = range(keys.size("num_hidden_layers"))
    return {
        "moe_layers": sum((layer + 1) % step == 0 and layer not in dense for layer in layers),
        "experts": keys.size("num_experts"),
        "active_experts": keys.size("num_experts_per_tok"),
        "moe_intermediate": keys.size("moe_intermediate_size"),
    }


def deepseek(keys: Keys) -> Fields:
    """Latent attention; experts after the first dense layers, some of them for every token.

    Layers that only predict further tokens (`num_nextn_predict_layers`) are not counted.
    """
    if keys.flag("attention_bias", False):
        keys.refuse("attention_bias", "true is not priced here; false is")
    if keys.size("moe_layer_freq", 1) != 1:
        keys.refuse("moe_layer_freq", f"{keys.keys['moe_layer_freq']} is not priced here; 1 is")
    latent = Latent(
        kv_rank=keys.size("kv_lora_rank"),
        rope_dim=keys.size("qk_rope_head_dim"),
        nope_dim=keys.size("qk_nope_head_dim"),
        value_dim=keys.size("v_head_dim"),
        query_rank=keys.size_or_none("q_lora_rank"),
    )
    fields: Fields = {"latent": latent, "kv_heads": 1, "head_dim": latent.nope_dim + latent.rope_dim}
    experts = keys.size_or_none("n_routed_experts")
    return {**fields, **_routed(keys, experts)} if experts else fields


def _routed(keys: Keys, experts: int) -> Fields:
    width = keys.size("moe_intermediate_size")
    corrects = keys.keys.get("topk_method") == "noaux_tc"  # a bias per expert balances the load
    return {
        "moe_layers": max(keys.size("num_hidden_layers") - keys.size_or_none("first_k_dense_replace"), 0),
        "experts": experts,
        "active_experts": keys.size("num_experts_per_tok"),
        "moe_intermediate": width,
        "shared_intermediate": width * keys.size_or_none("n_shared_experts"),
        "shared_gate": False,
        "more_per_moe_layer": experts if corrects else 0,
    }


def gpt_oss(keys: Keys) -> Fields:
    """Biases of all matrices, and an attention sink per head."""
    experts, width = keys.size("num_local_experts"), keys.size("intermediate_size")
    hidden, heads = keys.size("hidden_size"), keys.size("num_attention_heads")
    has_bias = keys.flag("attention_bias", True)
    return {
        **mixtral(keys),
        "qkv_bias": has_bias,
        "more_per_layer": heads + (hidden if has_bias else 0),
        "more_per_moe_layer": experts + experts * (2 * width + hidden),
    }


def gemma2(keys: Keys) -> Fields:
    """Four norms a layer."""
    return {"more_per_layer": 2 * keys.size("hidden_size")}


def gemma3_text(keys: Keys) -> Fields:
    return {**gemma2(keys), "qk_norm": True}


def gemma3(keys: Keys) -> Fields:
    """Beside the text model a SigLIP vision tower, which lies in memory."""
    return {**gemma3_text(keys), "side_parameters": _siglip(keys.within("vision_config"), keys)}


def _siglip(vision: Keys, text: Keys) -> int:
    """Its parameters, and those of the projection to the text model."""
    width = vision.size("hidden_size", 1152)
    inner, layers = vision.size("intermediate_size", 4304), vision.size("num_hidden_layers", 27)
    patch, image = vision.size("patch_size", 14), vision.size("image_size", 896)
    layer = 4 * width * (width + 1) + 2 * width * inner + inner + width + 4 * width
    embedding = 3 * patch * patch * width + width + (image // patch) ** 2 * width
    return layers * layer + embedding + 2 * width + width * text.size("hidden_size") + width


def phi3(keys: Keys) -> Fields:
    """Its matrices of queries, keys and values lie in one, as do those of the network: no more, no fewer."""
    return {}


def phimoe(keys: Keys) -> Fields:
    """Norms and, if it says so, attention and output head have biases."""
    hidden, has_bias = keys.size("hidden_size"), keys.flag("attention_bias", False)
    head = keys.size("vocab_size") if keys.flag("lm_head_bias", False) else 0
    return {
        **mixtral(keys),
        "qkv_bias": has_bias,
        "more_per_layer": 2 * hidden + (hidden if has_bias else 0),
        "more": hidden + head,
    }


FAMILIES: Final[dict[str, Callable[[Keys], Fields]]] = {
    "llama": llama,
    "mistral": mistral,
    "mixtral": mixtral,
    "qwen2": qwen2,
    "qwen2_moe": qwen2_moe,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "gpt_oss": gpt_oss,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3_text": gemma3_text,
    "phi3": phi3,
    "phimoe": phimoe,
}
