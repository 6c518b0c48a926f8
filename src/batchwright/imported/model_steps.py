"""A CSV of steps that were timed inside vLLM's engine: the model apart from scheduler and update.

    trial,budget,cap,prefill_tokens,prefill_seqs,decode_seqs,decode_ctx_sum,prefill_attn_pairs,
    model_ms,schedule_ms,update_ms,t_start,waiting

Milliseconds but for `t_start`, which is in seconds.  A prompt token attends to itself and all before it, so
`prefill_attn_pairs` counts tokens (past + (tokens + 1) / 2); ours is without the half of each token.
`decode_ctx_sum` counts the token that each decode computes; ours is what was there before it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from batchwright.imported.numbers_table import columns, titles_of
from batchwright.imported.result import Imported
from batchwright.imported.source import Source
from batchwright.imported.step_log import step_findings

FORM: Final = "steps timed inside vLLM's engine, CSV"
TITLES: Final = (
    "prefill_tokens", "prefill_seqs", "decode_seqs", "decode_ctx_sum", "prefill_attn_pairs", "model_ms",
    "schedule_ms", "update_ms", "t_start",
)  # fmt: skip
CONVENTIONS: Final = (
    "a step lasts for schedule_ms + model_ms + update_ms; the parts are model_s, schedule_s and update_s",
    "prefill_attention is prefill_attn_pairs - prefill_tokens / 2; context_tokens is decode_ctx_sum "
    "- decode_seqs",
)


def matches(source: Source) -> bool:
    return titles_of(source) >= set(TITLES)


def read(source: Source) -> Imported:
    """Raises InputError on a row that is cut, or is no step."""
    optional = sorted(titles_of(source) & {"trial", "waiting"})
    found = columns(source, (*TITLES, *optional), "a CSV of vLLM's steps")
    parts = {f"{name}_s": found[f"{name}_ms"] / 1000 for name in ("model", "schedule", "update")}
    start = found["t_start"].astype(np.float64)
    steps = {
        "start_s": start,
        "end_s": start + sum(parts.values()),
        "prefill_tokens": found["prefill_tokens"],
        "num_chunks": found["prefill_seqs"],
        "num_decodes": found["decode_seqs"],
        "context_tokens": found["decode_ctx_sum"] - found["decode_seqs"],
        "prefill_attention": found["prefill_attn_pairs"] - found["prefill_tokens"] / 2,
        **parts,
        **{name: found[name] for name in optional},
    }
    return Imported(
        file=source.name,
        form=FORM,
        conventions=CONVENTIONS,
        findings=tuple(step_findings(steps)),
        about={"engine": "vllm"},
        steps=steps,
        totals={"num_steps": float(len(start)), "step_seconds_s": float((steps["end_s"] - start).sum())},
    )
