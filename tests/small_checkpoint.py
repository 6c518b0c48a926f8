"""GGUF files that are small, and made here: a vocabulary, a chat template, and weights if wanted."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

TEXT = """The quick brown fox jumps over the lazy dog. It's 12 o'clock; we'll see, won't we?
def fox(x):\n    return x + 1
日本語の文章。世界 世界 🎉🎉
naïve café, ÜBER straße, привет мир.  Two  spaces."""
SPECIAL = ["<|end|>", "<|start|>", "<|tool|>"]
CHATML = (
    "{% for message in messages %}{{ '<|start|>' + message['role'] + '\n' + message['content'] + "
    "'<|end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
Array = npt.NDArray[np.float16] | npt.NDArray[np.float32]


@cache
def trained() -> tuple[list[str], list[str]]:
    """Tokens and merges of a byte-level BPE of a few hundred tokens."""
    fast = Tokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=SPECIAL, initial_alphabet=letters, show_progress=False
    )
    fast.train_from_iterator([TEXT] * 3, trainer)
    model = json.loads(fast.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    return tokens, [" ".join(merge) for merge in model["merges"]]


def byte_level_keys(**changed: Any) -> dict[str, Any]:
    """What a GGUF of a small Llama says of itself; `changed`: by the last part of their names."""
    tokens, merges = trained()
    keys: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": 256,
        "llama.embedding_length": 64,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": 32,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "general.file_type": 1,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in SPECIAL else 1 for token in tokens],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }
    return {key: changed.get(key.rpartition(".")[2], value) for key, value in keys.items()}


def sentencepiece_keys(**changed: Any) -> dict[str, Any]:
    """The same with a vocabulary of whole letters, and bytes for all else."""
    words = ["\u2581", "\u2581the", "\u2581fox", "\u2581t", "\u2581f", "th", "he", "ox", *"thefoxazq12.,"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    sizes = [float(-len(tokens))] * 259 + [float(-at) for at in range(len(words))]
    keys = byte_level_keys(
        model="llama", tokens=tokens, token_type=[2, 3, 3, *[6] * 256, *[1] * len(words)], eos_token_id=2
    )
    del keys["tokenizer.ggml.pre"], keys["tokenizer.ggml.merges"], keys["tokenizer.ggml.add_bos_token"]
    keys |= {"tokenizer.ggml.scores": sizes, "tokenizer.ggml.unknown_token_id": 0}
    return {key: changed.get(key.rpartition(".")[2], value) for key, value in keys.items()}


def weights() -> dict[str, Array]:
    """Random weights for `byte_level_keys`: matrices in half precision, norms in single."""
    rng = np.random.default_rng(1)
    shapes = {
        "token_embd.weight": (len(trained()[0]), 64), "output_norm.weight": (64,),
        "blk.0.attn_norm.weight": (64,), "blk.0.ffn_norm.weight": (64,),
        "blk.0.attn_q.weight": (64, 64), "blk.0.attn_k.weight": (32, 64), "blk.0.attn_v.weight": (32, 64),
        "blk.0.attn_output.weight": (64, 64), "blk.0.ffn_gate.weight": (64, 64),
        "blk.0.ffn_up.weight": (64, 64), "blk.0.ffn_down.weight": (64, 64),
    }  # fmt: skip
    types = {1: np.float32, 2: np.float16}
    return {name: rng.normal(size=shape).astype(types[len(shape)]) for name, shape in shapes.items()}


def write_gguf(file: Path, keys: Mapping[str, Any], tensors: Mapping[str, Array] | None = None) -> Path:
    """A GGUF file of version 3."""
    tensors = tensors or {}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(_text(key) + _value(value) for key, value in keys.items())
    data = b""
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head += _text(name) + struct.pack(
            f"<I{len(shape)}QIQ", len(shape), *shape, tensor.dtype == np.float16, len(data)
        )
        data += _padded(tensor.tobytes())
    file.write_bytes(_padded(head) + data)
    return file


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 32)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        kind, _ = _plain(value[0])
        kind = 5 if kind == 4 else kind  # llama.cpp wants the types of tokens with a sign
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(_plain(entry)[1] for entry in value)
    kind, data = _plain(value)
    return struct.pack("<I", kind) + data


def _plain(value: Any) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    return 8, _text(value)
