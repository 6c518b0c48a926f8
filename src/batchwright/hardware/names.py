"""Models by the names that hubs give them.

A name of the hub is the model's own with an organisation before it and words in it that do not change the
shape: `meta-llama/Meta-Llama-3.1-8B-Instruct`.  Words that name a format, as in
`Qwen/Qwen2-72B-Instruct-GPTQ-Int4`, say how its weights are stored.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from batchwright.hardware.model import Model
from batchwright.hardware.models import MODELS
from batchwright.hardware.quantization import METHODS, Quantization

# Words after which the shape is the same: how a model was trained on, and who says so.
IDLE: Final = {
    "meta", "instruct", "chat", "it", "pt", "hf", "base", "bf16", "preview", "2407", "2501", "quantized",
    "dynamic",
}  # fmt: skip
OTHER_NAMES: Final = {
    "mistral-7b-v0.3": "mistral-7b",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "mixtral-8x22b-v0.1": "mixtral-8x22b",
    "phi-3-mini-4k": "phi-3-mini",
    "phi-3-medium-4k": "phi-3-medium",
    "qwen3-4b-thinking-2507": "qwen3-4b-2507",
    "qwen3-30b-a3b-thinking-2507": "qwen3-30b-a3b-2507",
    "qwen3-235b-a22b-thinking-2507": "qwen3-235b-a22b-2507",
    "deepseek-v3-0324": "deepseek-v3",
    "deepseek-v2-lite-chat": "deepseek-v2-lite",
    "deepseek-r1-0528": "deepseek-r1",
    "deepseek-r1-distill-llama-8b": "llama-3.1-8b",
    "deepseek-r1-distill-llama-70b": "llama-3.3-70b",
}
GPTQ_INT8: Final = Quantization(method="gptq", weight_bits=8, group_size=128, scale_bits=16 + 8)
FORMATS: Final = {  # words of a name, in order
    "gptq-int8": GPTQ_INT8,
    "gptq-int4": METHODS["gptq"],
    "awq-int4": METHODS["awq"],
    "bnb-4bit": METHODS["bitsandbytes"],
    "fp8-kv": METHODS["fp8"],
    **{word: METHODS[word] for word in ("awq", "gptq", "fp8", "nvfp4", "w4a16", "w8a16", "w8a8")},
}


def model_of(name: str) -> Model | None:
    """The built-in model that a hub calls so, stored as the name says; None: there is none."""
    words = _words(name)
    found, stored = MODELS.get(_own("-".join(words))), None
    if found is None:
        words, stored = _without_format(words)
        found = MODELS.get(_own("-".join(words)))
    if found is None or stored is None:
        return found
    return replace(found, name=f"{found.name}-{stored.method}", quantization=stored)


def key_of(name: str) -> str:
    """The name without what says nothing of the shape, to search the known ones for."""
    return "-".join(_words(name))


def _own(key: str) -> str:
    return OTHER_NAMES.get(key, key)


def _words(name: str) -> list[str]:
    """The words that may say something; a dot parts them only before a format, as in quantized.w8a8."""
    own = re.sub(r"\.(?=w\d)", "-", name.rstrip("/").rsplit("/", 1)[-1].lower())
    return [word for word in re.split(r"[-_ ]+", own) if word and word not in IDLE]


def _without_format(words: list[str]) -> tuple[list[str], Quantization | None]:
    text = "-".join(words)
    for ending, stored in FORMATS.items():
        if text.endswith(f"-{ending}"):
            return text.removesuffix(f"-{ending}").split("-"), stored
    return words, None
