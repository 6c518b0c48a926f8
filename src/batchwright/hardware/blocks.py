"""How many KV blocks fit beside the weights, as vLLM counts them at start-up.

Per GPU.  With tensor parallelism weights are split over `tp` GPUs, KV heads too, until there is one
head per GPU; from there on they are copied.  A pipeline splits the layers, with their KV; the fullest
stage says how many blocks there are.  What is taken off the memory, and by which version: see `memory`.
"""

from __future__ import annotations

from dataclasses import replace

from batchwright.errors import LimitError
from batchwright.hardware.engine import Engine
from batchwright.hardware.gpu import GIB, Gpu
from batchwright.hardware.memory import Memory, Serving, memory
from batchwright.hardware.model import Model
from batchwright.hardware.split import Split, splits


def num_kv_blocks(
    gpu: Gpu,
    model: Model,
    tp: int = 1,
    *,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    engine: Engine | str | None = None,
    gpu_memory_utilization: float | None = None,
    block_size: int = 16,
    max_num_batched_tokens: int = 2048,
    max_num_seqs: int = 256,
) -> int:
    """KV blocks that requests can use, as `Limits.num_kv_blocks` counts them (without vLLM's null block).

    Of one of the `dp` ranks, each of which has as many; the limits too are those of one rank.
    `engine`: such as `vllm@0.19`; None: the latest version.  Raises LimitError if the model does not fit.
    """
    split = Split(tp, pp, dp, ep)
    serving = Serving(
        engine=engine,
        split=split,
        gpu_memory_utilization=gpu_memory_utilization,
        block_size=block_size,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
    )
    found = memory(gpu, model, serving)
    if found.blocks < 1:
        raise LimitError(why_not(gpu, model, serving, found))
    return found.blocks


def why_not(gpu: Gpu, model: Model, serving: Serving, found: Memory) -> str:
    """Why there is no block for a request, and what would help."""
    split = serving.split
    where = f"tp {split.tp}"
    where += f", pp {split.pp}" if split.pp > 1 else ""
    where += f", dp {split.dp}" if split.dp > 1 else ""
    return (
        f"{model.name} on {where} of {gpu.name} does not fit: "
        f"weights {found.weights / GIB:.1f} GiB and "
        f"{found.engine_bytes / GIB:.1f} GiB for the engine leave no KV block in "
        f"{found.usable / GIB:.1f} GiB a GPU; {_remedy(gpu, model, serving)}"
    )


def _remedy(gpu: Gpu, model: Model, serving: Serving) -> str:
    for larger in range(serving.split.tp + 1, model.heads + 1):
        wider = replace(serving, split=serving.split._replace(tp=larger))
        if splits(model, larger) and memory(gpu, model, wider).blocks >= 1:
            return f"raise tp to {larger} or choose a GPU with more memory"
    return "choose a GPU with more memory or lower max_num_batched_tokens"
