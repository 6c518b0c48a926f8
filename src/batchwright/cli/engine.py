"""The flags that choose an engine, and the engine that they choose."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from batchwright.checkpoint import Checkpoint
    from batchwright.engines.choose import Loaded

ENGINE: Final = "Engine"
EngineName = Annotated[str, Option("--engine", help="openvino, llamacpp or mock", rich_help_panel=ENGINE)]
Threads = Annotated[
    int | None, Option(help="that compute a step; default: one fewer than the CPUs", rich_help_panel=ENGINE)
]
KvCacheDtype = Annotated[
    str | None, Option(help="as the engine names it; default: the engine's", rich_help_panel=ENGINE)
]
MockCost = Annotated[
    str | None,
    Option(help="step time of the mock engine: 'linear(base=0.006, prefill=3e-4)'", rich_help_panel=ENGINE),
]


@dataclass(frozen=True, kw_only=True)
class EngineFlags:
    """What the user asks for; `threads`: None is one fewer than the CPUs."""

    engine: str
    path: Path | None
    cache: Path
    threads: int | None
    kv_cache_dtype: str | None
    mock_cost: str | None


@dataclass(frozen=True, kw_only=True)
class ReadyEngine:
    """What an engine will be loaded with.  `checkpoint`: None for the mock engine, which has no model."""

    flags: EngineFlags
    checkpoint: Checkpoint | None
    threads: int

    @property
    def longest(self) -> int | None:
        """Tokens of the longest sequence that the model allows; None: as many as you like."""
        return None if self.checkpoint is None else self.checkpoint.max_model_len

    @property
    def model(self) -> str:
        """What clients call it."""
        return "mock" if self.checkpoint is None else self.checkpoint.name

    def plain_ids(self) -> npt.NDArray[np.int64]:
        """Token ids that stand for text."""
        import numpy as np

        from batchwright.checkpoint import Tokenizer
        from batchwright.engines.choose import MOCK_VOCAB

        if self.checkpoint is None:
            return np.arange(MOCK_VOCAB, dtype=np.int64)
        return Tokenizer(self.checkpoint.tokenizer_dir).plain_ids

    def load(self, max_num_seqs: int, max_model_len: int, num_kv_blocks: int | None) -> Loaded:
        """The engine, with so much room; the mock engine on a virtual clock.  Raises BatchwrightError."""
        from batchwright.cost_text import cost
        from batchwright.engines.choose import MOCK_COST, Loading, load_engine

        found, given = self.checkpoint, self.flags.mock_cost
        return load_engine(
            self.flags.engine,
            Loading(
                ir=None if found is None else found.ir,
                gguf=None if found is None else found.gguf,
                threads=self.threads,
                max_num_seqs=max_num_seqs,
                max_model_len=max_model_len,
                num_kv_blocks=num_kv_blocks,
                kv_cache_dtype=self.flags.kv_cache_dtype,
                cost=MOCK_COST if given is None else cost(given),
                is_real=False,
            ),
        )


def ready(flags: EngineFlags) -> ReadyEngine:
    """Find the model, and check the flags.  Raises InputError."""
    from batchwright.engines.choose import ENGINES
    from batchwright.errors import InputError, nearest

    if flags.engine not in ENGINES:
        raise InputError(f"--engine is {flags.engine!r}{nearest(flags.engine, ENGINES)}")
    if flags.threads is not None and flags.threads < 1:
        raise InputError(f"--threads is {flags.threads}, but must be at least 1")
    threads = flags.threads or max((os.cpu_count() or 2) - 1, 1)
    if flags.engine == "mock":
        if flags.path is not None:
            raise InputError("--path is given, but the mock engine has no model; leave it out")
        return ReadyEngine(flags=flags, checkpoint=None, threads=threads)
    if flags.mock_cost is not None:
        raise InputError(f"--mock-cost is given, but {flags.engine} has times of its own; leave it out")
    from batchwright.checkpoint import find

    return ReadyEngine(flags=flags, checkpoint=find(flags.path, flags.engine, flags.cache), threads=threads)
