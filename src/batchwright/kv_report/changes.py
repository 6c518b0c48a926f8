"""What each flag would change, the others staying as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from batchwright.errors import BatchwrightError
from batchwright.hardware.batch_limits import UNCHUNKED
from batchwright.hardware.gpu import GIB
from batchwright.kv_report.asked import Asked
from batchwright.kv_report.plan import Plan, plan

SMALL_STEP = 2048
LARGE_STEP = 8192
KEPT_FREE = GIB  # of the memory, when kv_cache_memory_bytes takes what is left


@dataclass(frozen=True, kw_only=True)
class Change:
    """One flag `flag` from `before` to `after`, as it is typed.

    plan     what comes of it; None: it is refused
    refused  why, or ""
    """

    flag: str
    before: str
    after: str
    plan: Plan | None
    refused: str


def changes(made: Plan) -> list[Change]:
    """One for each flag that can be changed, in the order of vLLM's documentation of memory."""
    return [_change(made.asked, *each) for each in _asked(made)]


def _change(asked: Asked, flag: str, before: str, after: str, values: dict[str, Any]) -> Change:
    found, why = None, ""
    try:
        found = plan(replace(asked, **values))
    except BatchwrightError as error:
        why = str(error)
    return Change(flag=flag, before=before, after=after, plan=found, refused=why)


def _asked(made: Plan) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Flag, value, other value, and the fields of `Asked` that make it."""
    if made.asked.num_gpu_blocks_override is not None:
        return
    if made.asked.kv_cache_memory_bytes is None:
        yield from _of_memory(made)
        yield from _of_steps(made)
    yield from _of_length(made)
    yield from _of_precision(made)
    yield from _of_split(made)


def _of_memory(made: Plan) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    share = made.memory.usable / made.gpu.memory_bytes
    other = 0.95 if share < 0.945 else 0.9
    yield "gpu-memory-utilization", f"{share:.2f}", str(other), {"gpu_memory_utilization": other}
    if made.engine.release >= (0, 11):
        rest = made.gpu.memory_bytes - made.memory.usable - KEPT_FREE + made.memory.available
        if rest > made.memory.available:
            yield "kv-cache-memory-bytes", "rest", str(rest), {"kv_cache_memory_bytes": rest}
    if not made.asked.enforce_eager:
        yield "enforce-eager", "off", "on", {"enforce_eager": True}


def _of_steps(made: Plan) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    seqs, tokens = made.limits.max_num_seqs, made.limits.max_num_batched_tokens
    if not made.engine.is_v1:
        other = not made.limits.is_chunked
        yield "enable-chunked-prefill", _word(not other), _word(other), {"enable_chunked_prefill": other}
    if made.limits.is_chunked:
        step = SMALL_STEP if tokens > SMALL_STEP else LARGE_STEP
        yield "max-num-batched-tokens", str(tokens), str(step), {"max_num_batched_tokens": step}
    if seqs >= 4:
        yield "max-num-seqs", str(seqs), str(seqs // 4), {"max_num_seqs": seqs // 4}


def _of_length(made: Plan) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    longest = made.max_model_len
    if longest > 1:
        yield "max-model-len", str(longest), str(longest // 2), {"max_model_len": longest // 2}
    if not made.engine.is_v1 and longest <= UNCHUNKED < made.model.max_position_embeddings:
        yield "max-model-len", str(longest), str(UNCHUNKED + 1), {"max_model_len": UNCHUNKED + 1}


def _of_precision(made: Plan) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    model = made.model
    if model.kv_element_bytes > 1:
        yield "kv-cache-dtype", made.asked.kv_cache_dtype, "fp8", {"kv_cache_dtype": "fp8"}
    if model.quantization is None:
        yield "quantization", "none", "fp8", {"quantization": "fp8"}


def _of_split(made: Plan) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    tp = made.split.tp
    yield "tensor-parallel-size", str(tp), str(2 * tp), {"tp": 2 * tp}


def _word(is_on: bool) -> str:
    return "on" if is_on else "off"
