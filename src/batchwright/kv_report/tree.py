"""`batchwright kv` for programs."""

from __future__ import annotations

from typing import Any, Final

from batchwright.kv_report.advice import advice
from batchwright.kv_report.changes import Change
from batchwright.kv_report.plan import Plan
from batchwright.kv_report.verdict import verdict
from batchwright.kv_report.words import notes

SCHEMA_VERSION: Final = 1


def tree(made: Plan, others: list[Change]) -> dict[str, Any]:
    """The keys that docs/kv.md describes; bytes are those of one GPU."""
    found = made.memory
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": verdict(made),
        "engine": str(made.engine),
        "gpu": made.gpu.name,
        "model": made.model.name,
        "split": made.split._asdict(),
        "limits": {
            "max_model_len": made.max_model_len,
            "max_num_seqs": made.limits.max_num_seqs,
            "max_num_batched_tokens": made.limits.max_num_batched_tokens,
            "enable_chunked_prefill": made.limits.is_chunked,
        },
        "memory": {
            "total_bytes": made.gpu.memory_bytes,
            "gpu_memory_utilization": found.usable / made.gpu.memory_bytes,
            "usable_bytes": found.usable,
            "weight_bytes": found.weights,
            "rotary_bytes": found.rotary,
            "activation_peak_bytes": found.run.peak,
            "forward_bytes": found.run.forward,
            "sampling_bytes": found.run.sampling,
            "runtime_bytes": found.runtime,
            "communication_bytes": found.communication,
            "graph_bytes": found.graphs,
            "kv_cache_bytes": found.available,
        },
        **_blocks(made),
        "changes": [_change(other) for other in others],
        "notes": [*notes(made), *advice(made, others)],
    }


def _blocks(made: Plan) -> dict[str, Any]:
    return {
        "kv_bytes_per_token": made.memory.per_token,
        "block_size": made.memory.block_size,
        "num_gpu_blocks": made.num_gpu_blocks,
        "usable_blocks": made.blocks,
        "kv_tokens": made.tokens,
        "starts": made.starts,
        "concurrency": {str(length): made.concurrency(length) for length in made.lengths},
    }


def _change(other: Change) -> dict[str, Any]:
    found = None if other.plan is None else _blocks(other.plan)
    return {
        "flag": other.flag,
        "from": other.before,
        "to": other.after,
        "refused": other.refused or None,
        "outcome": found,
    }
