"""KV blocks by `max_model_len`, where it decides the size of the profile run."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from batchwright.errors import LimitError
from batchwright.hardware.batch_limits import UNCHUNKED
from batchwright.kv_report.plan import Plan, plan

TRIED: Final = (8192, 16384, UNCHUNKED, UNCHUNKED + 1)


def by_length(made: Plan) -> list[tuple[int, int]]:
    """`max_model_len` and KV blocks, 0 where the model does not fit."""
    longest = made.model.max_position_embeddings
    tried = sorted({*TRIED, made.max_model_len})
    return [(length, _blocks(made, length)) for length in tried if length <= longest]


def longest_start(made: Plan) -> int:
    """The greatest `max_model_len` that starts, below one that does not; 0: none does."""
    starts, fails = 0, made.max_model_len
    while fails - starts > 1:
        middle = (starts + fails) // 2
        if _starts(made, middle):
            starts = middle
        else:
            fails = middle
    return starts


def _starts(made: Plan, length: int) -> bool:
    try:
        return plan(replace(made.asked, max_model_len=length)).starts
    except LimitError:
        return False


def _blocks(made: Plan, length: int) -> int:
    try:
        return plan(replace(made.asked, max_model_len=length)).num_gpu_blocks
    except LimitError:
        return 0
