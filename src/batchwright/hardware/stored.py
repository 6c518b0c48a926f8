"""How a checkpoint stores its weights: `quantization_config` of a config.json.

Source: Transformers' quantisation configurations, and compressed-tensors' `config_groups`.
"""

from __future__ import annotations

from typing import Any, Final

from batchwright.hardware.quantization import METHODS, Quantization

KNOWN: Final = "give fp8, mxfp4, bitsandbytes, modelopt, compressed-tensors, or awq or gptq in 4 or 8 bits"
_ALIKE: Final = {"fp8": "fp8", "fbgemm_fp8": "fbgemm_fp8", "mxfp4": "mxfp4"}
_MODELOPT: Final = {"FP8": "modelopt", "NVFP4": "modelopt_fp4"}


class UnknownFormat(ValueError):
    """The weights are stored in a way that is not priced here; the text says which is."""


def stored(config: object) -> Quantization:
    """The format of a `quantization_config`.  Raises UnknownFormat."""
    method = config.get("quant_method") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(method, str):
        raise UnknownFormat(KNOWN)
    if method in ("awq", "gptq"):
        return _grouped(method, config)
    if method == "compressed-tensors":
        return _compressed(config)
    if method == "bitsandbytes":
        return METHODS[method] if config.get("load_in_4bit") else Quantization(method=method, weight_bits=8)
    name = _MODELOPT.get(str(config.get("quant_algo"))) if method == "modelopt" else _ALIKE.get(method)
    if name is None:
        raise UnknownFormat(KNOWN)
    block = config.get("weight_block_size")
    return METHODS[name] if block is None else _blocks(name, block)


def _grouped(method: str, config: dict[str, Any]) -> Quantization:
    """AWQ and GPTQ: a 16-bit scale and a zero point of the weight's bits per group."""
    bits = config.get("bits", config.get("w_bit"))
    group = config.get("group_size", config.get("q_group_size", 128))
    if bits not in (4, 8) or not isinstance(group, int):
        raise UnknownFormat(KNOWN)
    return Quantization(method=method, weight_bits=bits, group_size=max(group, 0), scale_bits=16 + bits)


def _blocks(method: str, block: object) -> Quantization:
    """A 32-bit scale per block of so many rows and columns."""
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)):
        raise UnknownFormat(f"weight_block_size {block!r} is not two whole numbers")
    return Quantization(
        method=method, weight_bits=8, group_size=block[0] * block[1], scale_bits=32, arithmetic="fp8"
    )


def _compressed(config: dict[str, Any]) -> Quantization:
    groups = config.get("config_groups")
    found = [_scheme(each) for each in groups.values()] if isinstance(groups, dict) else []
    if not found or any(each != found[0] for each in found):
        raise UnknownFormat("config_groups must be there, and of one format")
    return found[0]


def _scheme(group: object) -> Quantization:
    """One of `config_groups`: weights, and activations if they are quantised too."""
    weights = group.get("weights") if isinstance(group, dict) else None
    if not isinstance(group, dict) or not isinstance(weights, dict) or weights.get("num_bits") not in (4, 8):
        raise UnknownFormat("weights of config_groups must have 4 or 8 bits")
    bits, size = weights["num_bits"], weights.get("group_size")
    size = size if isinstance(size, int) and size > 0 else 0
    is_float = weights.get("type") == "float"
    acts = group.get("input_activations")
    arithmetic = "16-bit"
    if isinstance(acts, dict) and acts.get("num_bits") == bits:
        arithmetic = f"fp{bits}" if is_float else "int8"
    scale = 8 if is_float and bits == 4 else 16
    return Quantization(
        method="compressed-tensors", weight_bits=bits, group_size=size, scale_bits=scale if size else 0,
        arithmetic=arithmetic,
    )  # fmt: skip
