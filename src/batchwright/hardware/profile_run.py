"""What the profile run of vLLM takes: one forward pass of the largest step, then its sampling.

    forward     tokens x bytes of dtype x max(attention, feed-forward)
        attention      3 hidden + (2 heads + 2 kv_heads) head_dim / tp
        feed-forward   3 hidden + 3 intermediate / tp       residual, input and output; gate and up, product
        experts        3 hidden + active (max(2 inner / tp, hidden) + inner / tp), and the shared expert
        latent         3 hidden + heads (2 head_dim + nope_dim + value_dim) / tp + the latent vector
    sampling    rows x vocabulary x bytes of one logit, beside the hidden states of all tokens

The forward pass is over when sampling starts, so the greater of the two counts.  Rows are the requests
of a step.  One logit takes 14 bytes: 2 of the head, 4 as float32, 4 as probability and 4 of random
numbers.  Where top-p sorts, 38: 2 and 4, sorted values 4 and indices 8, and the sort's own 20.  In chunks
V0 counts the forward pass alone: its logs show 0.06 GiB for 512 tokens and 0.22 for 2048 of llama-3.1-8b.

Source: vLLM, `v1/worker/gpu_model_runner.py` and `v1/sample`; checked on the peaks that logs print.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.hardware.engine import Engine
from batchwright.hardware.model import Model

SORTED: Final = 38  # bytes per logit
SAMPLED: Final = 14
MASK_ROWS: Final = 128  # rows of float32 that the kernel of top-k and top-p keeps: one per multiprocessor


@dataclass(frozen=True)
class ProfileRun:
    """Bytes per GPU, at the peak of each part."""

    forward: int
    sampling: int

    @property
    def peak(self) -> int:
        return max(self.forward, self.sampling)

    @property
    def is_bound_by_sampling(self) -> bool:
        """Do fewer requests, and not fewer tokens, lower the peak?"""
        return self.sampling > self.forward


def profile_run(
    engine: Engine, model: Model, tp: int, tokens: int, seqs: int, is_chunked: bool = True
) -> ProfileRun:
    """Of `tokens` tokens and `seqs` requests in one step.  `is_chunked`: may be prompts in parts?"""
    rows = min(seqs, tokens) if engine.is_v1 or not is_chunked else 0
    kept = tokens * model.hidden * model.dtype_bytes
    return ProfileRun(tokens * token_bytes(model, tp), kept + rows_bytes(engine, model, rows))


def token_bytes(model: Model, tp: int) -> int:
    """Bytes of one token in the widest layer."""
    widest = max(_attention(model, tp), _dense(model, tp), _experts(model, tp))
    return model.dtype_bytes * (3 * model.hidden + widest)


def _attention(model: Model, tp: int) -> int:
    queries = model.heads * model.head_dim // tp
    if model.latent is not None:
        made = model.heads * (model.latent.nope_dim + model.latent.value_dim) // tp
        return 2 * queries + made + model.latent.width
    return 2 * queries + 2 * max(model.kv_heads // tp, 1) * model.head_dim


def _dense(model: Model, tp: int) -> int:
    return 3 * model.intermediate // tp if model.moe_layers < model.layers else 0


def _experts(model: Model, tp: int) -> int:
    inner = model.moe_intermediate // tp
    each = max(2 * inner, model.hidden) + inner
    return model.active_experts * each + 3 * model.shared_intermediate // tp


def rows_bytes(engine: Engine, model: Model, rows: int) -> int:
    """Bytes that sampling for so many requests takes; every rank has all of the vocabulary."""
    if engine.sorts_logits:
        return rows * model.vocab * SORTED
    return (rows * SAMPLED + min(rows, MASK_ROWS) * 4) * model.vocab
