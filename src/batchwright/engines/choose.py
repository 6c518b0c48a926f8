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


@dataclass(frozen=True, kw_only=True)
class Loading:
    """What an engine is loaded with.  Lengths in tokens.

    ir, gguf         the model's files, of which an engine needs one
    threads          that compute a step
    num_kv_blocks    None: enough for `max_num_seqs` sequences of `max_model_len`
    kv_cache_dtype   as the engine names it; None: its default
    cost             what a step of the mock engine takes
    vocab_size       of its token ids
    """

    ir: Path | None = None
    gguf: Path | None = None
    threads: int = 1
    max_num_seqs: int
    max_model_len: int
    num_kv_blocks: int | None = None
    kv_cache_dtype: str | None = None
    cost: CostModel = MOCK_COST
    vocab_size: int = 32000

    def blocks_of(self, block_size: int) -> int:
        """KV blocks of so many tokens."""
        whole = -(-self.max_model_len // block_size) * self.max_num_seqs
        return whole if self.num_kv_blocks is None else self.num_kv_blocks


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
    if loading.kv_cache_dtype is not None:
        raise InputError(
            f"kv_cache_dtype is {loading.kv_cache_dtype!r}, but the mock engine has no KV; leave it out"
        )
    size = 16
    engine = Mock(
        loading.cost,
        num_kv_blocks=loading.blocks_of(size),
        block_size=size,
        max_model_len=loading.max_model_len,
        vocab_size=loading.vocab_size,
    )
    return Loaded(engine, "mock (no model; a step takes what a cost says)")


ENGINES: Final[dict[str, Callable[[Loading], Loaded]]] = {"mock": _mock}
