"""The first line: does it start, and if so, what is it worth?"""

from __future__ import annotations

from typing import Final

from batchwright.figures import count
from batchwright.hardware.gpu import GIB
from batchwright.kv_report.plan import Plan

TINY: Final = 0.2  # of what the engine may use
THIN: Final = 4  # a seat with less than 1 / THIN of max_model_len is none


def verdict(made: Plan) -> str:
    """One line."""
    if not made.starts:
        return _start(made)
    said = [_tiny(made)] if is_tiny(made) else []
    said += [_fiction(made)] if is_fiction(made) else []
    return "; ".join(said) if said else _fits(made)


def is_tiny(made: Plan) -> bool:
    """Is most of the memory taken by what is no KV cache?"""
    return made.tokens * made.memory.per_token < TINY * made.memory.usable


def is_fiction(made: Plan) -> bool:
    """Is `max_num_seqs` given, and leaves every request a fraction of `max_model_len`?"""
    if made.asked.max_num_seqs is None or made.limits.max_num_seqs < 2:
        return False
    return made.tokens / made.limits.max_num_seqs < made.max_model_len / THIN


def _start(made: Plan) -> str:
    return (
        f"does not start: {count(made.num_gpu_blocks)} KV blocks ({count(made.tokens)} tokens) hold "
        f"{made.concurrency(made.max_model_len):.2f} sequences of max_model_len {made.max_model_len}"
    )


def _tiny(made: Plan) -> str:
    found, gpus = made.memory, made.num_gpus
    share = found.usable / made.gpu.memory_bytes
    times = f" x {gpus}" if gpus > 1 else ""
    return (
        f"KV pool is tiny ({share:.4g} x {made.gpu.memory_bytes / GIB:.1f} GiB{times} minus "
        f"{found.weights * gpus / GIB:.0f} GiB weights and {found.engine_bytes * gpus / GIB:.1f} GiB for the "
        f"engine): {count(made.tokens)} tokens"
    )


def _fiction(made: Plan) -> str:
    seqs = made.limits.max_num_seqs
    return (
        f"max-num-seqs {seqs} is fiction here: {count(made.tokens)} KV tokens are {made.tokens // seqs} for "
        f"each, or {made.concurrency(made.max_model_len):.1f} requests of max_model_len {made.max_model_len}"
    )


def _fits(made: Plan) -> str:
    return (
        f"starts with {count(made.blocks)} KV blocks ({count(made.tokens)} tokens): "
        f"{made.concurrency(made.max_model_len):.2f} requests of max_model_len {made.max_model_len} at once"
    )
