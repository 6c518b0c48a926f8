"""How many KV blocks fit beside the weights.

    blocks = (memory * gpu_memory_utilization - weights - reserved) / (block_size * bytes per token)

per GPU, as vLLM counts them at start-up.  With tensor parallelism weights are split over `tp`
GPUs, KV heads too, until there is one head per GPU; from there on they are copied.
`reserved` is an estimate: vLLM measures it.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from batchwright.errors import LimitError
from batchwright.hardware.gpus import GIB, Gpu
from batchwright.hardware.models import Model

# CUDA context, kernels' workspaces and CUDA graphs.  Chosen so that llama-3.1-8b on an RTX 4090
# (vLLM 0.19, 2048 batched tokens, 256 requests, utilization 0.9) has the 2588 blocks measured there,
# to within 1 %; one measured point, so expect some hundred MiB either way on other GPUs.
RUNTIME_BYTES: Final = 640 << 20
UTILIZATION: Final = 0.92  # of the GPU memory, vLLM 0.32's default
LOGIT_BYTES: Final = 2 + 4 + 4  # the head's output, its float32 copy, and the probabilities


def kv_bytes_per_token(model: Model, tp: int = 1) -> int:
    """Bytes of keys and values that one token leaves on each GPU, in 16 bits."""
    return 2 * model.layers * max(model.kv_heads // tp, 1) * model.head_dim * 2


def check_tp(model: Model, tp: int) -> None:
    """Raises LimitError if the model cannot be split over `tp` GPUs."""
    if not isinstance(tp, int) or isinstance(tp, bool) or tp < 1:
        raise LimitError(f"tp is {tp!r}, but must be a whole number of at least 1")
    if not _splits(model, tp):
        choices = ", ".join(str(n) for n in range(1, model.heads + 1) if _splits(model, n))
        raise LimitError(
            f"tp {tp} cannot split the {model.heads} heads and {model.kv_heads} KV heads "
            f"of {model.name}; choose one of {choices}"
        )


def _splits(model: Model, tp: int) -> bool:
    return model.heads % tp == 0 and (model.kv_heads % tp == 0 or tp % model.kv_heads == 0)


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
    gpu_memory_utilization: float = UTILIZATION,
    block_size: int = 16,
    max_num_batched_tokens: int = 2048,
    max_num_seqs: int = 256,
) -> int:
    """KV blocks that requests can use, as `Limits.num_kv_blocks` counts them (without vLLM's null block).

    Raises LimitError if the model does not fit.  Source of the default utilization: vLLM 0.32.
    """
    check_tp(model, tp)
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
    free = usable - model.weight_bytes // tp - reserved
    blocks = free // (block_size * kv_bytes_per_token(model, tp)) - 1
    if blocks < 1:
        raise LimitError(_why_not(gpu, model, tp, usable, reserved))
    return blocks


def _why_not(gpu: Gpu, model: Model, tp: int, usable: int, reserved: int) -> str:
    weights = model.weight_bytes // tp
    return (
        f"{model.name} on tp {tp} of {gpu.name} does not fit: weights {weights / GIB:.1f} GiB and "
        f"{reserved / GIB:.1f} GiB for the engine leave no KV block in {usable / GIB:.1f} GiB a GPU; "
        f"{_remedy(model, tp, usable, reserved)}"
    )


def _remedy(model: Model, tp: int, usable: int, reserved: int) -> str:
    for larger in range(tp + 1, model.heads + 1):
        if _splits(model, larger) and model.weight_bytes // larger + reserved < usable:
            return f"raise tp to {larger} or choose a GPU with more memory"
    return "choose a GPU with more memory or lower max_num_batched_tokens"
