"""What a step can be described by, and where a model that was measured in a range is asked beyond it.

A range names the least and the greatest value of some features:

    tokens           prompt tokens, decodes and padded rows
    num_decodes      decodes and padded rows
    context_tokens   KV tokens that they read
    mean_context     KV tokens that one of them reads
    sampled_rows     rows that yield a token
    num_chunks       requests with prompt tokens
    mean_chunk       prompt tokens of one of them
    mean_past        KV tokens that one of them starts from

A mean over nothing is left out.  Those that a run has a column of have its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from batchwright.step import Step

Range = Mapping[str, tuple[float, float]]

FEATURES: Final = (
    "tokens", "num_decodes", "context_tokens", "mean_context", "sampled_rows", "num_chunks", "mean_chunk",
    "mean_past",
)  # fmt: skip


def features(step: Step) -> dict[str, float]:
    """The features of a step, in the order of `FEATURES`."""
    rows = step.num_decodes + step.padded_rows
    found: dict[str, float] = {"tokens": float(step.prefill_tokens + rows), "num_decodes": float(rows)}
    found["context_tokens"] = float(step.context_tokens)
    if rows:
        found["mean_context"] = step.context_tokens / rows
    found["sampled_rows"] = float(step.sampled_rows)
    found["num_chunks"] = float(step.num_chunks)
    if step.num_chunks:
        found["mean_chunk"] = (step.prefill_tokens - step.draft_tokens) / step.num_chunks
        found["mean_past"] = step.past_tokens / step.num_chunks
    return found


def outside(step: Step, within: Range) -> list[str]:
    """The features of `step` that lie outside the range; a feature that it does not name cannot."""
    return [
        name
        for name, value in features(step).items()
        if name in within and not within[name][0] <= value <= within[name][1]
    ]
