"""What limits leave open, settled once for all policies, from the cost and the loads.

    num_kv_blocks   what the memory of the cost's GPUs holds, if it names any; else memory is not modelled
    max_model_len   the longest prompt + `max_tokens` of the loads, at most what the cost's model allows
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from batchwright.cost import CostModel, memory_of
from batchwright.errors import LimitError
from batchwright.hardware import batch_limits, find_engine
from batchwright.limits import Limits
from batchwright.workload import Workload

SMALL_BATCH: Final = (256, 2048)  # vLLM's defaults below 70 GiB


def settle(
    limits: Limits, cost: CostModel, loads: Workload | Iterable[Workload], engine: str | None = None
) -> Limits:
    """Fill in what `limits` leaves open; `loads` are made one at a time, and only if they are needed.

    `engine`: the version of vLLM that counts KV blocks, such as `vllm@0.19`; None: the latest.

    Raises LimitError if `max_model_len` is over what the model allows, or does not fit the blocks.
    """
    if limits.num_kv_blocks is None:
        limits = replace(limits, num_kv_blocks=kv_blocks(limits, cost, engine))
    if limits.max_model_len is not None:
        check_model_len(limits.max_model_len, longest_model_len(cost))
        return limits
    needed = needed_model_len((loads,) if isinstance(loads, Workload) else loads)
    return replace(limits, max_model_len=allowed_model_len(needed, cost))


def needed_model_len(loads: Iterable[Workload]) -> int:
    """The longest prompt + `max_tokens` of the loads, in tokens."""
    return max(int((load.prompt + load.max_tokens).max()) for load in loads)


def allowed_model_len(needed: int, cost: CostModel) -> int:
    """`needed`, or the most that the model of `cost` allows."""
    most = longest_model_len(cost)
    return needed if most is None else min(needed, most)


def longest_model_len(cost: CostModel) -> int | None:
    """`max_position_embeddings` of the model of `cost`; None if it has none."""
    device = memory_of(cost)
    return None if device is None else device.model.max_position_embeddings


def check_model_len(given: int, most: int | None) -> None:
    """Raises LimitError if `max_model_len` is over what the model allows."""
    if most is not None and given > most:
        raise LimitError(
            f"max_model_len {given} is over max_position_embeddings {most} of the model; lower it"
        )


def kv_blocks(limits: Limits, cost: CostModel, engine: str | None = None) -> int | None:
    """KV blocks of the GPUs of `cost`, all its data-parallel ranks together; None if it has none."""
    device = memory_of(cost)
    if device is None:
        return None
    return device.num_kv_blocks_of_round(
        None, limits.block_size, limits.max_num_batched_tokens, limits.max_num_seqs, engine
    )


def engine_blocks(
    flags: Limits, cost: CostModel, gpu_memory_utilization: float, engine: str | None
) -> int | None:
    """KV blocks that one engine counts under its own flags: of one data-parallel rank."""
    device = memory_of(cost)
    if device is None:
        return None
    return device.num_kv_blocks(
        gpu_memory_utilization, flags.block_size, flags.max_num_batched_tokens, flags.max_num_seqs, engine
    )


def usual_batch(cost: CostModel, engine: str | None = None) -> tuple[int, int]:
    """vLLM's defaults on the GPUs of `cost`, for a server: `max_num_seqs` and `max_num_batched_tokens`."""
    device = memory_of(cost)
    if device is None:
        return SMALL_BATCH
    found = batch_limits(
        find_engine(engine),
        device.gpu,
        device.model.max_position_embeddings,
        ranks=device.tp * device.pp,
    )
    return found.max_num_seqs, found.max_num_batched_tokens
