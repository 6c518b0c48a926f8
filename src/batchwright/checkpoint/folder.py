"""The tokenizer and configuration that a GGUF file holds, as a Hugging Face folder.

    tokenizer.json, tokenizer_config.json, special_tokens_map.json   for clients, and for us
    config.json, generation_config.json                             lengths, and what ends a sequence

Two kinds of vocabulary are known: byte-level BPE (`gpt2` in GGUF's words), cut by the patterns that its
`pre` names, and SentencePiece BPE (`llama`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from batchwright.checkpoint.gguf import Gguf
from batchwright.checkpoint.needs import need
from batchwright.checkpoint.pieces import SPACE
from batchwright.checkpoint.tokenizer import Tokenizer
from batchwright.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Fast

Keys = Mapping[str, Any]

_WORDS: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_ENDS: Final = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"
# How each kind of byte-level vocabulary cuts a text before it merges, one pattern after the other.
# Source: tokenizer.json of the models, and llama.cpp's table by `tokenizer.ggml.pre`.
PATTERNS: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "jais", "trillion", "granite-docling"), (_WORDS,)),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        (r"\p{N}", _WORDS),
    ),
    **dict.fromkeys(("qwen2", "stablelm2", "hunyuan"), (rf"{_ENDS}|{_WORD}|\p{{N}}|{_REST}",)),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "dbrx", "smaug-bpe"), (rf"{_ENDS}|{_WORD}|\p{{N}}{{1,3}}|{_REST}",)
    ),
}
_WHOLE_WORDS: Final = ("llama-bpe", "llama3")  # a word that is in the vocabulary is not merged up to

_CONTROL: Final = 3  # GGUF's types of tokens
_USER_DEFINED: Final = 4


def write_tokenizer(gguf: Gguf, folder: Path) -> None:
    """Write what `gguf` says into `folder`.  Raises InputError if its vocabulary is of another kind."""
    need("tokenizers")
    try:
        _write_all(gguf, folder)
    except (KeyError, IndexError, ValueError) as error:
        raise _unknown(f"an incomplete vocabulary ({error})") from None


def _write_all(gguf: Gguf, folder: Path) -> None:
    keys = gguf.keys
    named, ids = _named_tokens(keys), _ids(keys)
    _tokenizer(keys).save(str(folder / "tokenizer.json"))
    _write(folder / "special_tokens_map.json", named)
    _write(folder / "tokenizer_config.json", {**_tokenizer_config(keys), **named})
    _write(folder / "config.json", _model_config(gguf))
    _write(folder / "generation_config.json", ids)
    eos = sorted(Tokenizer(folder).eos_ids)  # now with what ends an assistant's turn
    if len(eos) > 1:
        _write(folder / "generation_config.json", {**ids, "eos_token_id": eos})


def _tokenizer(keys: Keys) -> Fast:
    kind = keys.get("tokenizer.ggml.model")
    if kind == "gpt2":
        fast = _byte_level(keys)
    elif kind == "llama":
        fast = _sentencepiece(keys)
    else:
        raise _unknown(f"a {kind!r} vocabulary")
    _add_tokens(fast, keys)
    return fast


def _unknown(what: str) -> InputError:
    return InputError(
        f"the GGUF file has {what}, whose tokenizer.json cannot be made; put the GGUF into a folder with the "
        "model's own tokenizer.json and tokenizer_config.json, and give that folder"
    )


def _byte_level(keys: Keys) -> Fast:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    pre = keys.get("tokenizer.ggml.pre", "none named")
    if pre not in PATTERNS:
        raise _unknown(f"byte-level BPE of the kind {pre!r}")
    vocab, merges = _vocab(keys), [tuple(merge.split(" ", 1)) for merge in keys["tokenizer.ggml.merges"]]
    if not all(first in vocab and second in vocab and first + second in vocab for first, second in merges):
        raise ValueError("a merge of tokens that it does not have")
    fast = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=pre in _WHOLE_WORDS))
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in PATTERNS[pre]]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.pre_tokenizer = pre_tokenizers.Sequence([*cuts, letters])
    fast.decoder = decoders.ByteLevel()
    return fast


def _sentencepiece(keys: Keys) -> Fast:
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocab = _vocab(keys)
    scores = dict(zip(keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.scores"], strict=True))
    unknown = keys["tokenizer.ggml.tokens"][keys.get("tokenizer.ggml.unknown_token_id", 0)]
    merges = _merges(vocab, scores)
    fast = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    prefixed = keys.get("tokenizer.ggml.add_space_prefix", True)
    spaces = normalizers.Replace(" ", SPACE)
    fast.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefixed else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    fast.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefixed else steps)
    return fast


def _merges(vocab: Mapping[str, int], scores: Mapping[str, float]) -> list[tuple[str, str]]:
    """Every way to make a token of two others, best score first: SentencePiece has no list of merges."""
    found = [
        (-scores[token], id, at, token)
        for token, id in vocab.items()
        for at in range(1, len(token))
        if token[:at] in vocab and token[at:] in vocab
    ]
    return [(token[:at], token[at:]) for _, _, at, token in sorted(found)]


def _vocab(keys: Keys) -> dict[str, int]:
    return {token: id for id, token in enumerate(keys["tokenizer.ggml.tokens"])}


def _add_tokens(fast: Fast, keys: Keys) -> None:
    """Tokens that are found in a text before it is cut, and BOS and EOS where the model wants them."""
    from tokenizers import AddedToken, processors

    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    for kind, special in ((_CONTROL, True), (_USER_DEFINED, False)):
        found = [token for token, type in zip(tokens, types, strict=True) if type == kind]
        fast.add_tokens([AddedToken(token, special=special, normalized=False) for token in found])
    around = list(_around(keys))
    if around != ["$A"]:
        pieces = [(piece, fast.token_to_id(piece)) for piece in around if piece != "$A"]
        fast.post_processor = processors.TemplateProcessing(
            single=around, pair=[*around, "$B"], special_tokens=pieces
        )


def _around(keys: Keys) -> Iterator[str]:
    """A text with what the model wants before and behind it.  Source: llama.cpp's defaults."""
    named = _named_tokens(keys)
    if keys.get("tokenizer.ggml.add_bos_token", keys["tokenizer.ggml.model"] == "llama"):
        yield named["bos_token"]
    yield "$A"
    if keys.get("tokenizer.ggml.add_eos_token", False):
        yield named["eos_token"]


def _named_tokens(keys: Keys) -> dict[str, str]:
    tokens = keys["tokenizer.ggml.tokens"]
    names = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    ids = {name: keys.get(f"tokenizer.ggml.{word}_token_id") for name, word in names.items()}
    return {f"{name}_token": tokens[id] for name, id in ids.items() if id is not None}


def _ids(keys: Keys) -> dict[str, Any]:
    names = {"bos": "bos", "eos": "eos", "pad": "padding"}
    ids = {f"{name}_token_id": keys.get(f"tokenizer.ggml.{word}_token_id") for name, word in names.items()}
    return {name: id for name, id in ids.items() if id is not None}


def _tokenizer_config(keys: Keys) -> dict[str, Any]:
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": _of_model(keys, "context_length"),
        "chat_template": keys.get("tokenizer.chat_template"),
    }
    return {name: value for name, value in config.items() if value is not None}


# Hugging Face's key -> GGUF's, behind the architecture.
_CONFIG: Final = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "num_attention_heads": "attention.head_count",
    "num_hidden_layers": "block_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "rope_theta": "rope.freq_base",
}
_CLASSES: Final = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}


def _model_config(gguf: Gguf) -> dict[str, Any]:
    keys = gguf.keys
    kind = keys["general.architecture"]
    config = {name: _of_model(keys, key) for name, key in _CONFIG.items()}
    return {
        "model_type": kind,
        **({"architectures": [_CLASSES[kind]]} if kind in _CLASSES else {}),
        **{name: value for name, value in config.items() if value is not None},
        "vocab_size": len(keys["tokenizer.ggml.tokens"]),
        "torch_dtype": "bfloat16",  # what engines compute in; a GGUF does not say what it was made of
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        **_ids(keys),
    }


def _of_model(keys: Keys, key: str) -> Any:
    return keys.get(f"{keys['general.architecture']}.{key}")


def _write(file: Path, keys: Mapping[str, Any]) -> None:
    file.write_text(json.dumps(keys, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
