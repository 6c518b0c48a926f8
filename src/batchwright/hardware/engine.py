"""vLLM by version, as far as versions count KV blocks differently.

    0.6  V0: a prompt is one step, so the profile run has max_model_len tokens (2048 at least); over
         32,768 chunks are on, of 512 tokens
    0.7  V0: chunks of 2048; the CUDA context is no longer counted
    0.8  V1: chunks always, a null block, prefix caching; the context is counted again
    0.9  the context is not counted; the A100 has the small defaults
    0.17 top-k and top-p without a sort
    0.21 0.92 of the memory instead of 0.9, less an estimate of the CUDA graphs
    0.28 16,384 tokens a step from 160 GiB on

Source: vLLM's own code at 0.8.5, 0.9.2, 0.10.2, 0.15.1, 0.17.0, 0.19.0, 0.21.0, 0.23.0, 0.25.0,
0.28.0 and 0.32.0 (`engine/arg_utils.py`, `config/cache.py`, `envs.py`, `v1/worker`, `v1/sample`);
0.6 and 0.7 by what their logs print.  A change is dated by the first of these that has it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from batchwright.errors import InputError

FIRST: Final = (0, 6)
LAST: Final = (0, 32)
V1: Final = (0, 8)
UTILIZATION: Final = 0.92  # of the GPU memory: the default of the latest
_TEXT: Final = re.compile(r"vllm(?:@v?(\d+)\.(\d+)(?:\.\w+)*)?")

# What the worker holds besides tensors when it counts, in bytes: CUDA context (until 0.6 and in 0.8),
# kernels, workspaces.  Measured, and given by logs as non-torch memory: 0.35 GiB (0.6, RTX 3090), 0.01 to
# 0.16 (0.7), 0.02 to 0.14 (0.10, 0.11).  From 0.17 on: so that llama-3.1-8b has the 2588 blocks that 0.19
# counted on an RTX 4090; other logs leave 0.2 to 1.1 GiB.
_RUNTIME: Final = (
    ((0, 17), 640 << 20),
    ((0, 9), 128 << 20),
    ((0, 8), 400 << 20),
    ((0, 7), 96 << 20),
    (FIRST, 360 << 20),
)


@dataclass(frozen=True)
class Engine:
    """One version of vLLM, such as Engine(0, 19).

    Raises InputError on a version that is not described here.
    """

    major: int
    minor: int

    def __post_init__(self) -> None:
        if not FIRST <= self.release <= LAST:
            raise InputError(
                f"vllm@{self.major}.{self.minor} is not described; give a version from "
                f"{FIRST[0]}.{FIRST[1]} to {LAST[0]}.{LAST[1]}"
            )

    def __str__(self) -> str:
        return f"vllm@{self.major}.{self.minor}"

    @property
    def release(self) -> tuple[int, int]:
        return self.major, self.minor

    @property
    def is_v1(self) -> bool:
        """Are prompts always chunked, and is one block a null block?"""
        return self.release >= V1

    @property
    def gpu_memory_utilization(self) -> float:
        """The default."""
        return UTILIZATION if self.release >= (0, 21) else 0.9

    @property
    def subtracts_graphs(self) -> bool:
        """Is an estimate of the CUDA graphs taken off the KV cache?"""
        return self.release >= (0, 21)

    @property
    def sorts_logits(self) -> bool:
        """Does sampling by top-p sort all logits?  Not if FlashInfer is installed beside 0.8 to 0.10."""
        return self.release < (0, 17)

    @property
    def runtime_bytes(self) -> int:
        """Bytes per GPU of context, kernels and workspaces; see `_RUNTIME`."""
        return next(size for since, size in _RUNTIME if self.release >= since)


def find_engine(engine: Engine | str | None) -> Engine:
    """The engine itself, or the one of a text such as `vllm@0.19`; None and `vllm`: the latest.

    Raises InputError on another text, or a version that is not described.
    """
    if isinstance(engine, Engine):
        return engine
    found = _TEXT.fullmatch(engine or "vllm")
    if found is None:
        raise InputError(
            f"engine {engine!r} is not of the form vllm@0.19; KV blocks are counted as vLLM does"
        )
    return Engine(int(found[1]), int(found[2])) if found[1] else Engine(*LAST)
