"""A model from its Hugging Face config.json.

Only decoders whose cost this package can state are read; everything else is refused by name.
Where Hugging Face derives a missing key from the others, so do we: `head_dim` is
`hidden_size / num_attention_heads` (not for Qwen3), `num_key_value_heads` of a Llama is
`num_attention_heads`; `tie_word_embeddings` is false where it is missing, but for Gemma.
"""

from __future__ import annotations

import os
import reprlib
from pathlib import Path
from typing import Final

from batchwright.errors import InputError, nearest
from batchwright.hardware.config_families import DEFAULTS, FAMILIES
from batchwright.hardware.config_keys import Keys, read_keys
from batchwright.hardware.config_windows import windows
from batchwright.hardware.model import Model
from batchwright.hardware.models import MODELS
from batchwright.hardware.names import key_of, model_of
from batchwright.hardware.quantization import Quantization
from batchwright.hardware.stored import UnknownFormat, stored

READ: Final = tuple(FAMILIES)
OWN_HEAD_DIM: Final = ("qwen3", "qwen3_moe", "gpt_oss", "gemma2", "gemma3", "gemma3_text")  # never derived


def find_model(model: Model | str | os.PathLike[str]) -> Model:
    """The model itself, the built-in one of that name, or the one that a config.json describes.

    A name may be a hub's, such as `Qwen/Qwen2-72B-Instruct-GPTQ-Int4`; a path names the file or the
    folder that holds it.  Raises InputError on another name.
    """
    if isinstance(model, Model):
        return model
    name = os.fspath(model)
    if name.lower() in MODELS:
        return MODELS[name.lower()]
    if Path(name).exists() or name.endswith(".json"):
        return read_model(name)
    found = model_of(name)
    if found is None:
        raise InputError(f"{name!r} is neither a config.json nor a known model{_hint(key_of(name))}")
    return found


def _hint(name: str) -> str:
    """The nearest name; they are too many to list."""
    near = nearest(name, MODELS)
    return near if near.startswith("; did") else "; batchwright models lists those that are known"


def read_model(path: str | os.PathLike[str]) -> Model:
    """The model that a config.json, or the folder that holds one, describes.

    Raises InputError that names the file and the missing or impossible key.
    """
    keys = read_keys(Path(path))
    kind = _kind(keys)
    if kind == "gemma3":
        keys = keys.within("text_config").with_defaults(DEFAULTS["gemma3_text"])
    keys = keys.with_defaults(DEFAULTS.get(kind, {}))
    try:
        return _model(keys, kind)
    except InputError as error:
        if str(error).startswith(str(keys.file)):
            raise
        raise InputError(f"{keys.file}: {error}") from None


def _model(keys: Keys, kind: str) -> Model:
    heads = keys.size("num_attention_heads")
    own = FAMILIES[kind](keys)
    return Model(
        **{
            "name": _name(keys),
            "layers": keys.size("num_hidden_layers"),
            "hidden": keys.size("hidden_size"),
            "heads": heads,
            "intermediate": keys.size("intermediate_size"),
            "vocab": keys.size("vocab_size"),
            "max_position_embeddings": keys.size("max_position_embeddings"),
            "tied_embeddings": keys.flag("tie_word_embeddings", False),
            "dtype": _dtype(keys),
            "quantization": _quantization(keys),
            "from_file": True,
            "source": str(keys.file),
            **({} if "latent" in own else _heads(keys, kind, heads)),
            **windows(keys, kind),
            **own,
        }
    )


def _kind(keys: Keys) -> str:
    kind = keys.keys.get("model_type")
    if kind is None:
        keys.refuse("model_type", "is missing; give a model's config.json")
    if kind not in READ:
        keys.refuse("model_type", f"{kind!r} is not a decoder priced here{nearest(str(kind), READ)}")
    return str(kind)


def _name(keys: Keys) -> str:
    """The last part of the model's own name, else of the folder's."""
    own = keys.keys.get("_name_or_path")
    if isinstance(own, str) and own:
        return own.rstrip("/").rsplit("/", 1)[-1]
    return keys.file.resolve().parent.name or keys.file.name


def _heads(keys: Keys, kind: str, heads: int) -> dict[str, int]:
    kv_heads = keys.size("num_key_value_heads", heads if kind == "llama" else None)
    return {"kv_heads": kv_heads, "head_dim": _head_dim(keys, kind, heads)}


def _head_dim(keys: Keys, kind: str, heads: int) -> int:
    if keys.keys.get("head_dim") is not None or kind in OWN_HEAD_DIM:
        return keys.size("head_dim")
    hidden = keys.size("hidden_size")
    if hidden % heads:
        keys.refuse("num_attention_heads", f"{heads} does not divide hidden_size {hidden}; add head_dim")
    return hidden // heads


def _dtype(keys: Keys) -> str:
    key = "dtype" if "dtype" in keys.keys else "torch_dtype"  # the newer files say dtype
    dtype = keys.keys.get(key)
    if dtype not in ("bfloat16", "float16"):
        found = "is missing" if dtype is None else f"is {dtype!r}"
        keys.refuse(key, f"{found}; state bfloat16 or float16, as engines serve it")
    return str(dtype)


def _quantization(keys: Keys) -> Quantization | None:
    config = keys.keys.get("quantization_config")
    if config is None:
        return None
    try:
        return stored(config)
    except UnknownFormat as why:
        keys.refuse("quantization_config", f"{reprlib.repr(config)} is not priced here; {why}")
