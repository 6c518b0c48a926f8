"""What one GPU holds when vLLM counts its KV blocks.

    available = memory gpu_memory_utilization - weights - rotary table - profile run - runtime
                - communication - CUDA graphs           (a CPU: no profile run, no graphs)
    blocks    = available / (block_size bytes per token)

`kv_cache_memory_bytes` replaces `available`.  The rotary table has max_position_embeddings rows of
`head_dim`.  Communication: 0.42 GiB where NVSwitch joins the GPUs of tensor parallelism (H100,
tp 2: 0.55 GiB of non-torch memory instead of 0.13), 0.15 elsewhere (0.20 on A10 and RTX 3090).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from batchwright.errors import LimitError
from batchwright.hardware.engine import Engine, find_engine
from batchwright.hardware.gpu import Gpu
from batchwright.hardware.graph_memory import graph_bytes
from batchwright.hardware.kv import kv_bytes_per_token
from batchwright.hardware.model import Model
from batchwright.hardware.profile_run import ProfileRun, profile_run
from batchwright.hardware.split import Split, check_split, weight_bytes

SWITCHED_BYTES: Final = 430 << 20
PCIE_BYTES: Final = 150 << 20
ALONE: Final = Split(1, 1, 1, False)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """What counts KV blocks, beside GPU and model.  Limits are those of one data-parallel rank.

    gpu_memory_utilization  None: the default of the version
    kv_cache_memory_bytes   None: what is left of the memory
    enforce_eager           no CUDA graphs
    is_chunked              may a prompt take several steps?

    Raises InputError on an unknown version, LimitError on a value that cannot be.
    """

    engine: Engine | str | None = None
    split: Split = ALONE
    gpu_memory_utilization: float | None = None
    block_size: int = 16
    max_num_batched_tokens: int = 2048
    max_num_seqs: int = 256
    is_chunked: bool = True
    enforce_eager: bool = False
    kv_cache_memory_bytes: int | None = None
    version: Engine = field(init=False)
    share: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", find_engine(self.engine))
        given = self.gpu_memory_utilization
        object.__setattr__(self, "share", self.version.gpu_memory_utilization if given is None else given)
        if not 0 < self.share <= 1:
            raise LimitError(f"gpu_memory_utilization is {self.share}, but must be in (0, 1]")
        for name in ("block_size", "max_num_batched_tokens", "max_num_seqs", "kv_cache_memory_bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise LimitError(f"{name} is {value}, but must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes per GPU; of a pipeline, on the fullest.

    usable         that vLLM may take, by gpu_memory_utilization
    available      for the KV cache; less than 0: the model does not fit
    per_token      of KV
    is_v1          one of the blocks is a null block, which holds nothing
    """

    usable: int
    weights: int
    rotary: int
    run: ProfileRun
    runtime: int
    communication: int
    graphs: int
    available: int
    per_token: int
    block_size: int
    is_v1: bool

    @property
    def engine_bytes(self) -> int:
        """All but weights and KV cache."""
        return self.rotary + self.run.peak + self.runtime + self.communication + self.graphs

    @property
    def num_gpu_blocks(self) -> int:
        """As vLLM prints them; 0 if there is no room."""
        return max(self.available // (self.block_size * self.per_token), 0)

    @property
    def blocks(self) -> int:
        """Those that requests can use."""
        return max(self.num_gpu_blocks - self.is_v1, 0)

    @property
    def tokens(self) -> int:
        """That requests can hold, all together."""
        return self.blocks * self.block_size


def memory(gpu: Gpu, model: Model, serving: Serving) -> Memory:
    """Raises LimitError if the model cannot be split so."""
    split, engine = serving.split, serving.version
    check_split(model, *split)
    has_graphs = engine.subtracts_graphs and not serving.enforce_eager and not gpu.is_cpu
    found = Memory(
        usable=ceil(gpu.memory_bytes * serving.share),
        weights=weight_bytes(model, *split),
        rotary=_rotary(model),
        run=ProfileRun(0, 0) if gpu.is_cpu else _profile_run(model, serving),
        runtime=engine.runtime_bytes,
        communication=_communication(gpu, split),
        graphs=graph_bytes(serving.max_num_seqs) if has_graphs else 0,
        available=0,
        per_token=kv_bytes_per_token(model, split.tp, split.pp),
        block_size=serving.block_size,
        is_v1=engine.is_v1,
    )
    left = found.usable - found.weights - found.engine_bytes
    given = serving.kv_cache_memory_bytes
    return replace(found, available=left if given is None else given)


def _profile_run(model: Model, serving: Serving) -> ProfileRun:
    tokens, seqs = serving.max_num_batched_tokens, serving.max_num_seqs
    return profile_run(serving.version, model, serving.split.tp, tokens, seqs, serving.is_chunked)


def _rotary(model: Model) -> int:
    width = model.head_dim if model.latent is None else model.latent.rope_dim
    return model.max_position_embeddings * width * model.dtype_bytes


def _communication(gpu: Gpu, split: Split) -> int:
    if split.tp * split.pp == 1:
        return 0
    return SWITCHED_BYTES if gpu.switched and split.tp > 1 else PCIE_BYTES
