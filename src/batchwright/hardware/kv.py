"""How many KV blocks fit beside the weights.

    blocks = (memory * gpu_memory_utilization - weights - reserved) / (block_size * bytes per token)

per GPU, as vLLM counts them at start-up.  With tensor parallelism weights are split over `tp`
GPUs, KV heads too, until there is one head per GPU; from there on they are copied.  A pipeline
splits the layers, with their KV; the fullest stage says how many blocks there are.
`reserved` is an estimate: vLLM measures it.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from batchwright.errors import LimitError
from batchwright.hardware.gpu import GIB, Gpu
from batchwright.hardware.kv_bytes import kv_bytes_per_token
from batchwright.hardware.model import Model
from batchwright.hardware.split import Split, check_split, splits, weight_bytes

# CUDA context, kernels' workspaces and CUDA graphs.  Chosen so that llama-3.1-8b on an RTX 4090
# (vLLM 0.19, 2048 batched tokens, 256 requests, utilization 0.9) has the 2588 blocks measured there,
# to within 1 %; one measured point, so expect some hundred MiB either way on other GPUs.
RUNTIME_BYTES: Final = 640 << 20
UTILIZATION: Final = 0.92  # of the GPU memory, vLLM 0.32's default
LOGIT_BYTES: Final = 2 + 4 + 4  # the head's output, its float32 copy, and the probabilities


def reserved_bytes(model: Model, tp: int, max_num_batched_tokens: int, max_num_seqs: int) -> int:
    """Bytes per GPU that an engine keeps for itself: activations of the largest step, and runtime.

    Activations per token: residual and hidden state, the doubled inner width of the widest
    feed-forward network and its product, in 16 bits; logits of `max_num_seqs` rows.
    """
    inner = model.intermediate if model.moe_layers < model.layers else 0
    inner = max(inner, model.active_experts * model.moe_intermediate + model.shared_intermediate)
    copies = model.active_experts if model.moe_layers else 1  # every expert's output, before they are summed
    per_token = 2 * ((1 + copies) * model.hidden + 3 * inner // tp)
    logits = max_num_seqs * model.vocab * LOGIT_BYTES
    return max_num_batched_tokens * per_token + logits + RUNTIME_BYTES


def num_kv_blocks(
    gpu: Gpu,
    model: Model,
    tp: int = 1,
    *,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    gpu_memory_utilization: float = UTILIZATION,
    block_size: int = 16,
    max_num_batched_tokens: int = 2048,
    max_num_seqs: int = 256,
) -> int:
    """KV blocks that requests can use, as `Limits.num_kv_blocks` counts them (without vLLM's null block).

    Of one of the `dp` ranks, each of which has as many; the limits too are those of one rank.
    Raises LimitError if the model does not fit.  Source of the default utilization: vLLM 0.32.
    """
    check_split(model, tp, pp, dp, ep)
    if not 0 < gpu_memory_utilization <= 1:
        raise LimitError(f"gpu_memory_utilization is {gpu_memory_utilization}, but must be in (0, 1]")
    for name, value in (
        ("block_size", block_size),
        ("max_num_batched_tokens", max_num_batched_tokens),
        ("max_num_seqs", max_num_seqs),
    ):
        if value < 1:
            raise LimitError(f"{name} is {value}, but must be at least 1")
    usable = ceil(gpu.memory_bytes * gpu_memory_utilization)
    reserved = reserved_bytes(model, tp, max_num_batched_tokens, max_num_seqs)
    free = usable - weight_bytes(model, tp, pp, dp, ep) - reserved
    blocks = free // (block_size * kv_bytes_per_token(model, tp, pp)) - 1
    if blocks < 1:
        raise LimitError(_why_not(gpu, model, Split(tp, pp, dp, ep), usable, reserved))
    return blocks


def _why_not(gpu: Gpu, model: Model, split: Split, usable: int, reserved: int) -> str:
    where = f"tp {split.tp}"
    where += f", pp {split.pp}" if split.pp > 1 else ""
    where += f", dp {split.dp}" if split.dp > 1 else ""
    return (
        f"{model.name} on {where} of {gpu.name} does not fit: "
        f"weights {weight_bytes(model, *split) / GIB:.1f} GiB and "
        f"{reserved / GIB:.1f} GiB for the engine leave no KV block in {usable / GIB:.1f} GiB a GPU; "
        f"{_remedy(model, split, usable, reserved)}"
    )


def _remedy(model: Model, split: Split, usable: int, reserved: int) -> str:
    for larger in range(split.tp + 1, model.heads + 1):
        weights = weight_bytes(model, *split._replace(tp=larger))
        if splits(model, larger) and weights + reserved < usable:
            return f"raise tp to {larger} or choose a GPU with more memory"
    return "choose a GPU with more memory or lower max_num_batched_tokens"
