"""A model as the flags of an engine serve it: `--dtype`, `--quantization`, `--kv-cache-dtype`.

Source: vLLM 0.32, `ModelConfig._verify_quantization` and `_get_and_verify_dtype`, `CacheConfig.cache_dtype`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from batchwright.errors import InputError, nearest
from batchwright.hardware.gpu import Gpu
from batchwright.hardware.model import DTYPE_BYTES, KV_BYTES, Model
from batchwright.hardware.quantization import METHODS, ONLINE, Quantization, agree

ALIASES: Final = {"half": "float16", "float": "float32"}  # of vLLM
DTYPES: Final = ("auto", *DTYPE_BYTES, *ALIASES)
KV_DTYPES: Final = ("auto", *KV_BYTES)


def served(
    model: Model,
    gpu: Gpu,
    dtype: str = "auto",
    quantization: str | None = None,
    kv_cache_dtype: str = "auto",
) -> Model:
    """The model as it is served on that GPU.

    `quantization` of a built-in model in 16 bits stands for its checkpoint in that format; of one that a
    config.json describes it must be what the file says, or what engines make while they load.
    Raises InputError on an unknown name, and on what the engine would refuse.
    """
    if (dtype, quantization, kv_cache_dtype) != ("auto", None, "auto"):
        kind = _dtype(model, gpu, dtype)
        model = replace(
            model,
            dtype=kind,
            quantization=_quantization(model, quantization, kind),
            kv_cache_dtype=_kv_dtype(model, quantization, kv_cache_dtype),
        )
    gpu.rate(model.plain_arithmetic)
    return model


def _dtype(model: Model, gpu: Gpu, asked: str) -> str:
    if asked not in DTYPES:
        raise InputError(f"dtype is {asked!r}{nearest(asked, DTYPES)}")
    if asked == "auto":
        return model.dtype
    if asked == "bfloat16" and not gpu.has_bfloat16:
        raise InputError(f"dtype is bfloat16, but {gpu.name} has none; give float16")
    return ALIASES.get(asked, asked)


def _quantization(model: Model, asked: str | None, dtype: str) -> Quantization | None:
    stored = model.quantization
    found = stored if asked is None else _asked(model, asked)
    if found is not None and dtype == "float32":
        raise InputError(
            f"dtype is float32, but {model.name} in {found.method} is served in 16 bits; leave it out"
        )
    return found


def _asked(model: Model, asked: str) -> Quantization:
    """What `--quantization` comes to for this model."""
    stored = model.quantization
    if stored is not None:
        if not agree(stored.method, asked):
            raise InputError(
                f"quantization is {asked!r}, but {model.name} is stored in {stored.method} ({model.source}); "
                "leave it out"
            )
        return stored
    if asked not in METHODS:
        raise InputError(f"quantization is {asked!r}{nearest(asked, METHODS)}")
    if model.from_file and asked not in ONLINE:
        raise InputError(
            f"quantization is {asked!r}, but the weights of {model.source} are not stored so; "
            f"give the config.json of a checkpoint that is, or one of {', '.join(ONLINE)}"
        )
    if METHODS[asked].experts_only and not model.moe_layers:
        raise InputError(f"quantization {asked!r} is of experts, and {model.name} has none; give another")
    return METHODS[asked]


def _kv_dtype(model: Model, quantization: str | None, asked: str) -> str:
    if asked not in KV_DTYPES:
        raise InputError(f"kv_cache_dtype is {asked!r}{nearest(asked, KV_DTYPES)}")
    is_fp8 = model.quantization is not None and model.quantization.method == "fp8"
    if asked == "fp8_e5m2" and is_fp8:
        raise InputError(
            f"kv_cache_dtype is fp8_e5m2, but {model.name} is stored in fp8, which allows only fp8_e4m3; "
            "give that"
        )
    return model.kv_cache_dtype if asked == "auto" else asked
