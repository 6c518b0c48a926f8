"""Engines by name, and what they are loaded with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchwright.cost import CostModel, Linear
from batchwright.engines.engine import Engine
from batchwright.engines.mock import Mock
from batchwright.errors import InputError, nearest

MOCK_COST: Final = Linear(
    base=0.006, prefill=0.0004, decode=0.001, context=3e-6
)  # as of a small model on a CPU
OPENVINO_BLOCK: Final = 32  # tokens of a KV block, on a CPU
MOCK_VOCAB: Final = 32000  # token ids of the mock engine


@dataclass(frozen=True, kw_only=True)
class Loading:
    """What an engine is loaded with.  Lengths in tokens.

    ir, gguf         the model's files, of which an engine needs one
    threads          that compute a step
    num_kv_blocks    None: enough for `max_num_seqs` sequences of `max_model_len`
    kv_cache_dtype   as the engine names it; None: its default
    exact            the tokens of a sequence do not depend on what else is in the batch
    weights          that llama.cpp gets, in a file of their own in `weights_dir`; None: those of `gguf`
    library          file of the libllama; None: that of an installed package, or the system's
    cost             what a step of the mock engine takes,
    is_real          on a real clock; if not, on a virtual one
    most_kv_tokens   that many tokens of KV at most, if `num_kv_blocks` is None, but one whole sequence
    vocab_size       of the mock engine's token ids
    copies           so many times that KV, for what is computed beside a run
    """

    ir: Path | None = None
    gguf: Path | None = None
    threads: int = 1
    max_num_seqs: int
    max_model_len: int
    num_kv_blocks: int | None = None
    kv_cache_dtype: str | None = None
    exact: bool = False  # the mock engine always is
    weights: str | None = None
    weights_dir: Path | None = None
    library: Path | None = None
    cost: CostModel = MOCK_COST
    is_real: bool = True
    most_kv_tokens: int | None = None
    vocab_size: int = MOCK_VOCAB
    copies: int = 1

    def blocks_of(self, block_size: int) -> int:
        """KV blocks of so many tokens."""
        return self.copies * self._blocks_of_one(block_size)

    def _blocks_of_one(self, block_size: int) -> int:
        if self.num_kv_blocks is not None:
            return self.num_kv_blocks
        longest = -(-self.max_model_len // block_size)
        whole = longest * self.max_num_seqs
        most = self.most_kv_tokens
        return whole if most is None else min(whole, max(most // block_size, longest))


@dataclass(frozen=True)
class Loaded:
    """An engine, and what it is in a few words, for people: version, precision of the KV cache..."""

    engine: Engine
    words: str


def load_engine(name: str, loading: Loading) -> Loaded:
    """The engine called `name`.  Raises InputError, EngineError or LimitError."""
    if name not in ENGINES:
        raise InputError(f"there is no engine {name!r}{nearest(name, ENGINES)}")
    return ENGINES[name](loading)


def _mock(loading: Loading) -> Loaded:
    _refuse(loading.kv_cache_dtype, "kv_cache_dtype", "the mock engine has no KV")
    size = 16
    engine = Mock(
        loading.cost,
        num_kv_blocks=loading.blocks_of(size),
        block_size=size,
        max_model_len=loading.max_model_len,
        vocab_size=loading.vocab_size,
        is_real=loading.is_real,
    )
    return Loaded(engine, f"mock, {'real' if loading.is_real else 'virtual'} clock")


def _openvino(loading: Loading) -> Loaded:
    from batchwright.engines.openvino import OpenVino

    assert loading.ir is not None, "OpenVINO needs an IR"
    precision = loading.kv_cache_dtype or ("f16" if loading.exact else "u8")
    engine = OpenVino.load(
        loading.ir,
        threads=loading.threads,
        num_kv_blocks=loading.blocks_of(OPENVINO_BLOCK),
        max_model_len=loading.max_model_len,
        kv_cache_precision=precision,
        exact=loading.exact,
    )
    words = f"openvino {engine.versions['openvino']}, {engine.precision}, KV cache {precision}"
    return Loaded(engine, words + _exact(loading))


def _llamacpp(loading: Loading) -> Loaded:
    from batchwright.engines.llamacpp import LlamaCpp, requantized

    assert loading.gguf is not None, "llama.cpp needs a GGUF"
    _refuse(loading.kv_cache_dtype, "kv_cache_dtype", "llama.cpp's KV cache is f16")
    if loading.copies > 1:
        raise InputError("--calibration meanwhile needs KV blocks, but llama.cpp has slots; take openvino")
    _refuse(loading.num_kv_blocks, "num_kv_blocks", "llama.cpp has slots of max_model_len tokens")
    gguf, weights, threads, library = loading.gguf, loading.weights, loading.threads, loading.library
    if weights is not None:
        gguf = requantized(gguf, weights, folder=loading.weights_dir, threads=threads, library=library)
    engine = LlamaCpp.load(
        gguf,
        max_num_seqs=loading.max_num_seqs,
        max_model_len=loading.max_model_len,
        threads=threads,
        exact=loading.exact,
        library=library,
    )
    words = f"llama.cpp ({engine.library.name}), weights {weights or 'of the file'}, KV cache f16"
    return Loaded(engine, words + _exact(loading))


def _exact(loading: Loading) -> str:
    return ", exact" if loading.exact else ""


def _refuse(given: object, name: str, why: str) -> None:
    """Raises InputError if what the engine cannot choose is given."""
    if given is not None:
        raise InputError(f"{name} is {given!r}, but {why}; leave it out")


ENGINES: Final[dict[str, Callable[[Loading], Loaded]]] = {
    "openvino": _openvino,
    "llamacpp": _llamacpp,
    "mock": _mock,
}
