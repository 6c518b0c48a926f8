"""What meta.json of a bench folder says of the server, under vLLM's names and ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from batchwright.imported.arrays import scalars

Value = str | int | float | bool
_ARGUMENTS: Final = {
    "model": "model", "tensor_parallel_size": "tp", "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "enable_expert_parallel": "enable_expert_parallel", "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens", "max_model_len": "max_model_len", "dtype": "dtype",
    "kv_cache_dtype": "kv_cache_dtype", "quantization": "quantization",
}  # fmt: skip
_SCHEDULER: Final = (
    "max_num_seqs", "max_num_batched_tokens", "async_scheduling", "enable_chunked_prefill", "policy",
    "long_prefill_token_threshold", "scheduler_reserve_full_isl",
)  # fmt: skip
_CACHE: Final = ("num_gpu_blocks", "block_size", "gpu_memory_utilization", "enable_prefix_caching")
_DEFAULT: Final = "auto"


def about(meta: Mapping[str, Any]) -> dict[str, Value]:
    """What was resolved wins over what was asked for; what is null, or `auto`, is left out."""
    found = scalars(dict(_facts(meta)))
    return {key: value for key, value in found.items() if value != _DEFAULT}


def _facts(meta: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "engine", "vllm"
    yield "engine_version", meta.get("vllm_version")
    yield "gpu", _part(meta, "hardware").get("device_name")
    asked = _part(meta, "engine_kwargs")
    for theirs, ours in _ARGUMENTS.items():
        yield ours, asked.get(theirs)
    resolved = _part(meta, "resolved_config")
    yield "max_model_len", _part(resolved, "model_config").get("max_model_len", asked.get("max_model_len"))
    for name in _SCHEDULER:
        yield name, _part(resolved, "scheduler_config").get(name, asked.get(name))
    for name in _CACHE:
        yield name, _part(meta, "kv_cache").get(name, _part(resolved, "cache_config").get(name))


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = whole.get(name)
    return found if isinstance(found, dict) else {}
