"""A model from its Hugging Face config.json.

Only decoders whose cost this package can state are read: full attention with grouped
queries and a gated feed-forward network or experts.  Everything else is refused by name.
Where Hugging Face derives a missing key from the others, so do we: `head_dim` is
`hidden_size / num_attention_heads` (not for Qwen3), `num_key_value_heads` of a Llama is
`num_attention_heads`; `tie_word_embeddings` is false where it is missing.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final, NoReturn

from batchwright.errors import InputError, nearest
from batchwright.hardware.models import MODELS, Model

READ: Final = ("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe")


def find_model(model: Model | str | os.PathLike[str]) -> Model:
    """The model itself, the built-in one of that name, or the one that a config.json describes.

    A path names the file or the folder that holds it.  Raises InputError on another name.
    """
    if isinstance(model, Model):
        return model
    name = os.fspath(model)
    if name.lower() in MODELS:
        return MODELS[name.lower()]
    if Path(name).exists() or name.endswith(".json"):
        return read_model(name)
    raise InputError(f"{name!r} is neither a config.json nor a known model{nearest(name.lower(), MODELS)}")


def read_model(path: str | os.PathLike[str]) -> Model:
    """The model that a config.json, or the folder that holds one, describes.

    Raises InputError that names the file and the missing or impossible key.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); give a model's config.json") from None
    except ValueError as error:  # of JSON and of UTF-8 alike
        raise InputError(f"{file}: is not JSON ({error}); give a model's config.json") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}: is not a JSON object; give a model's config.json")
    return _Config(file, config).model()


class _Config:
    """The keys of one file, read with errors that name file and key."""

    def __init__(self, file: Path, keys: dict[str, Any]) -> None:
        self.file = file
        self.keys = keys

    def model(self) -> Model:
        kind = self.kind()
        self.refuse_windows(kind)
        self.refuse_other_dtypes()
        heads = self.size("num_attention_heads")
        layers = self.size("num_hidden_layers")
        try:
            return Model(
                name=self.name(),
                layers=layers,
                hidden=self.size("hidden_size"),
                heads=heads,
                kv_heads=self.size("num_key_value_heads", heads if kind == "llama" else None),
                head_dim=self.head_dim(kind, heads),
                intermediate=self.size("intermediate_size"),
                vocab=self.size("vocab_size"),
                max_position_embeddings=self.size("max_position_embeddings"),
                tied_embeddings=self.flag("tie_word_embeddings", False),
                qkv_bias=self.flag("attention_bias", kind in ("qwen2", "qwen2_moe")),
                qk_norm=kind.startswith("qwen3"),
                weight_bits=self.weight_bits(),
                source=str(self.file),
                **self.experts(kind, layers),
            )
        except InputError as error:
            if str(error).startswith(str(self.file)):
                raise
            raise InputError(f"{self.file}: {error}") from None

    def kind(self) -> str:
        kind = self.keys.get("model_type")
        if kind is None:
            self.refuse("model_type", "is missing; give a model's config.json")
        if kind not in READ:
            self.refuse("model_type", f"{kind!r} is not a decoder priced here{nearest(str(kind), READ)}")
        return str(kind)

    def name(self) -> str:
        """The last part of the model's own name, else of the folder's."""
        own = self.keys.get("_name_or_path")
        if isinstance(own, str) and own:
            return own.rstrip("/").rsplit("/", 1)[-1]
        return self.file.resolve().parent.name or self.file.name

    def head_dim(self, kind: str, heads: int) -> int:
        if self.keys.get("head_dim") is not None or kind.startswith("qwen3"):
            return self.size("head_dim")
        hidden = self.size("hidden_size")
        if hidden % heads:
            self.refuse("num_attention_heads", f"{heads} does not divide hidden_size {hidden}; add head_dim")
        return hidden // heads

    def experts(self, kind: str, layers: int) -> dict[str, int]:
        """What a mixture of experts adds to the shape."""
        if kind == "mixtral":
            return {
                "moe_layers": layers,
                "experts": self.size("num_local_experts"),
                "active_experts": self.size("num_experts_per_tok"),
                "moe_intermediate": self.size("intermediate_size"),
            }
        if not kind.endswith("_moe"):
            return {}
        return {
            "moe_layers": self.moe_layers(layers),
            "experts": self.size("num_experts"),
            "active_experts": self.size("num_experts_per_tok"),
            "moe_intermediate": self.size("moe_intermediate_size"),
            "shared_intermediate": self.size("shared_expert_intermediate_size") if kind == "qwen2_moe" else 0,
        }

    def moe_layers(self, layers: int) -> int:
        """Every `decoder_sparse_step`-th layer has experts, but for those in `mlp_only_layers`."""
        step = self.size("decoder_sparse_step", 1)
        dense = self.keys.get("mlp_only_layers") or []
        if not isinstance(dense, list):
            self.refuse("mlp_only_layers", f"is {dense!r}, but must be a list of layers")
        return sum((layer + 1) % step == 0 and layer not in dense for layer in range(layers))

    def weight_bits(self) -> int:
        """16, or what `quantization_config` says: fp8, AWQ or GPTQ."""
        quantization = self.keys.get("quantization_config")
        if quantization is None:
            return 16
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        if method == "fp8":
            return 8
        if method in ("awq", "gptq") and quantization.get("bits") in (4, 8):
            return int(quantization["bits"])
        known = "give fp8, or awq or gptq in 4 or 8 bits"
        self.refuse("quantization_config", f"{quantization!r} is not priced here; {known}")

    def refuse_windows(self, kind: str) -> None:
        """Qwen files keep the width of a window that `use_sliding_window` turns off."""
        if self.keys.get("sliding_window") is None:
            return
        if not self.flag("use_sliding_window", not kind.startswith("qwen")):
            return
        window = self.size("sliding_window")
        if window < self.size("max_position_embeddings"):
            self.refuse("sliding_window", f"{window} is not priced here; null prices full attention")

    def refuse_other_dtypes(self) -> None:
        key = "dtype" if "dtype" in self.keys else "torch_dtype"  # the newer files say dtype
        dtype = self.keys.get(key)
        if dtype not in ("bfloat16", "float16"):
            found = "is missing" if dtype is None else f"is {dtype!r}"
            self.refuse(key, f"{found}; state bfloat16 or float16, as engines serve it")

    def size(self, key: str, default: int | None = None) -> int:
        value = self.keys.get(key)
        if value is None:
            value = default
        if value is None:
            self.refuse(key, "is missing")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(key, f"is {value!r}, but must be a whole number of at least 1")
        return int(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self.keys.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"is {value!r}, but must be true or false")
        return bool(value)

    def refuse(self, key: str, why: str) -> NoReturn:
        raise InputError(f"{self.file}: {key} {why}")
