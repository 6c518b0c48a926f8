"""The flags that choose an engine, and the engine that they choose."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from batchwright.checkpoint import Checkpoint
    from batchwright.engines.choose import Loaded, Loading

ENGINE: Final = "Engine"
EngineName = Annotated[str, Option("--engine", help="openvino, llamacpp or mock", rich_help_panel=ENGINE)]
Threads = Annotated[
    int | None,
    Option(
        help="that compute a step; default: one fewer than the CPUs, or 1 for --exact on openvino",
        rich_help_panel=ENGINE,
    ),
]
KvCacheDtype = Annotated[
    str | None, Option(help="as the engine names it; default: the engine's", rich_help_panel=ENGINE)
]
Exact = Annotated[
    bool,
    Option(
        "--exact",
        help="a request's tokens do not depend on what else is in the batch; slower",
        rich_help_panel=ENGINE,
    ),
]
Weights = Annotated[
    str | None,
    Option(help="llamacpp: q4_0, q8_0, f16 or bf16; default: the file's own", rich_help_panel=ENGINE),
]
MockCost = Annotated[
    str | None,
    Option(help="step time of the mock engine: 'linear(base=0.006, prefill=3e-4)'", rich_help_panel=ENGINE),
]
LIBRARY: Final = "LLAMA_CPP_LIB"  # environment variable: file of the libllama
DEFAULT_WEIGHTS: Final = "q4_0"  # of the default model under llama.cpp, which batches its Q4_1 badly
FLOATS: Final = (0, 1, 32)  # llama.cpp's `llama_ftype` of f32, f16 and bf16


@dataclass(frozen=True, kw_only=True)
class EngineFlags:
    """What the user asks for; `threads`: None is the default."""

    engine: str
    path: Path | None
    cache: Path
    threads: int | None
    kv_cache_dtype: str | None
    exact: bool
    weights: str | None
    mock_cost: str | None


@dataclass(frozen=True, kw_only=True)
class ReadyEngine:
    """What an engine will be loaded with.

    checkpoint   None for the mock engine, which has no model
    weights      that llama.cpp gets, made in `weights_dir`; None: the file's own
    library      file of the libllama; None: the one that is installed
    """

    flags: EngineFlags
    checkpoint: Checkpoint | None
    threads: int
    weights: str | None = None
    weights_dir: Path | None = None
    library: Path | None = None

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

    def load(
        self, max_num_seqs: int, max_model_len: int, num_kv_blocks: int | None, copies: int = 1
    ) -> Loaded:
        """The engine, with so much room; the mock engine on a virtual clock.  Raises BatchwrightError.

        `copies`: as much KV so many times.
        """
        from batchwright.engines.choose import load_engine

        room = self.loading(max_num_seqs, max_model_len, num_kv_blocks)
        return load_engine(self.flags.engine, replace(room, is_real=False, copies=copies))

    def loading(self, max_num_seqs: int, max_model_len: int, num_kv_blocks: int | None) -> Loading:
        """What the engine is loaded with, for so much room.  Raises BatchwrightError."""
        from batchwright.cost_text import cost
        from batchwright.engines.choose import MOCK_COST, Loading

        found, flags = self.checkpoint, self.flags
        return Loading(
            ir=None if found is None else found.ir,
            gguf=None if found is None else found.gguf,
            threads=self.threads,
            max_num_seqs=max_num_seqs,
            max_model_len=max_model_len,
            num_kv_blocks=num_kv_blocks,
            kv_cache_dtype=flags.kv_cache_dtype,
            exact=flags.exact,
            weights=self.weights,
            weights_dir=self.weights_dir,
            library=self.library,
            cost=MOCK_COST if flags.mock_cost is None else cost(flags.mock_cost),
        )


def ready(flags: EngineFlags) -> ReadyEngine:
    """Find the model, and check the flags.  Raises InputError."""
    _check(flags)
    threads = _threads(flags)
    if flags.engine == "mock":
        return ReadyEngine(flags=flags, checkpoint=None, threads=threads)
    from batchwright.checkpoint import find

    found = find(flags.path, flags.engine, flags.cache)
    if flags.engine == "openvino":
        return ReadyEngine(flags=flags, checkpoint=found, threads=threads)
    from batchwright.checkpoint.places import locate

    assert found.gguf is not None, "llama.cpp needs a GGUF"
    return ReadyEngine(
        flags=flags,
        checkpoint=found,
        threads=threads,
        weights=_weights(flags, found.gguf),
        weights_dir=locate(flags.path, flags.cache).cached / "weights",
        library=_library(),
    )


def _check(flags: EngineFlags) -> None:
    from batchwright.engines.choose import ENGINES
    from batchwright.errors import InputError, nearest

    if flags.engine not in ENGINES:
        raise InputError(f"--engine is {flags.engine!r}{nearest(flags.engine, ENGINES)}")
    if flags.threads is not None and flags.threads < 1:
        raise InputError(f"--threads is {flags.threads}, but must be at least 1")
    if flags.engine == "mock" and flags.path is not None:
        raise InputError("--path is given, but the mock engine has no model; leave it out")
    if flags.engine != "mock" and flags.mock_cost is not None:
        raise InputError(f"--mock-cost is given, but {flags.engine} has times of its own; leave it out")
    if flags.engine != "llamacpp" and flags.weights is not None:
        raise InputError(
            f"--weights is {flags.weights!r}, but only llamacpp takes other formats of weights; leave it out"
        )


def _threads(flags: EngineFlags) -> int:
    """How many compute a step; OpenVINO is exact with one alone.  Raises InputError."""
    from batchwright.errors import InputError

    if flags.engine != "openvino" or not flags.exact:
        return flags.threads or max((os.cpu_count() or 2) - 1, 1)
    if flags.threads is not None and flags.threads > 1:
        raise InputError(
            f"--threads is {flags.threads}, but openvino is exact with one thread only; "
            "give --threads 1, or leave --exact out"
        )
    return 1


def _weights(flags: EngineFlags, gguf: Path) -> str | None:
    """The format that `gguf` is requantised to; None: it is taken as it is.  Raises InputError."""
    from batchwright.checkpoint.gguf import read_gguf
    from batchwright.engines.llamacpp import FILE_TYPES
    from batchwright.errors import InputError, nearest

    asked = DEFAULT_WEIGHTS if flags.weights is None and flags.path is None else flags.weights
    if asked is not None and asked not in FILE_TYPES:
        raise InputError(f"--weights is {asked!r}{nearest(asked, FILE_TYPES)}")
    if not flags.exact:
        return asked
    kind = FILE_TYPES[asked] if asked else read_gguf(gguf).keys.get("general.file_type")
    if kind in FLOATS:
        raise InputError(
            "--exact with llamacpp needs quantised weights, but these are floats; give --weights q8_0"
        )
    return asked


def _library() -> Path | None:
    """The libllama that the user names.  Raises InputError."""
    from batchwright.errors import InputError

    given = os.environ.get(LIBRARY)
    if not given:
        return None
    if not Path(given).is_file():
        raise InputError(
            f"{LIBRARY} is {given!r}, which is no file; name the file of a libllama, or unset it"
        )
    return Path(given)
