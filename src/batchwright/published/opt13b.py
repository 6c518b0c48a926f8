"""Step times and KV memory of OPT-13B on one A100-40GB, under the vLLM of 2023.

    step = 0                                              if nobody decodes
         + m (a + b * KV tokens read + c * decodes)       a, b, c for up to 94 decodes, and from 95 on
         + m a' + b' * prompt tokens + c' * sum of squares of the chunks     if there are prompts

Prompts and decodes ran in steps of their own, so a step with both costs both.  The coefficients
are measured, on an A100 with 80 GB: OPT-13B, tensor parallelism 1, `profiler-a100-80g.vllm.json` of
the simulator of DistServe (Zhong et al., OSDI 2024; Apache-2.0).  What reads memory is slower on
the card with 40 GB by m, the ratio of bandwidths, 2039 to 1555 GB/s (NVIDIA's data sheet).

KV cache: 12 GB in 800 KB a token, 15.7 thousand tokens (Kwon et al., SOSP 2023, table 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.limits import Limits
from batchwright.step import Step

KV_TOKENS: Final = 15_700
BLOCK_SIZE: Final = 16
MAX_MODEL_LEN: Final = 2048  # OPT's positions
SEATS: Final = 1024  # more than memory ever allows

FEW: Final = (23.475041008414784e-3, 0.000592934466077393e-3, 0.060726861260369455e-3)
MANY: Final = (20.206356173691958e-3, 0.0004907727036234946e-3, 0.1200031385587413e-3)
MANY_FROM: Final = 95  # decodes
PROMPT: Final = (22.052204789310185e-3, 0.14050923870128956e-3, 8.076584822611088e-9)


@dataclass(frozen=True)
class Opt13b:
    """Seconds of a step.  `memory`: how much slower memory is than on the card that was measured."""

    memory: float = 2039 / 1555

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        rows = step.num_decodes + step.padded_rows
        each = 0.0
        if rows > 0:
            base, read, row = MANY if rows >= MANY_FROM else FEW
            mean_context = step.context_tokens + rows * (steps - 1) / 2
            each += self.memory * (base + read * mean_context + row * rows)
        if step.prefill_tokens > 0:
            base, token, square = PROMPT
            squares = 2 * step.prefill_attention  # of whole prompts: a chunk has t * t / 2
            each += self.memory * base + token * step.prefill_tokens + square * squares
        return steps * each


def limits(kv_tokens: int = KV_TOKENS) -> Limits:
    """Of that server."""
    return Limits(
        max_num_seqs=SEATS,
        max_num_batched_tokens=8192,
        max_model_len=MAX_MODEL_LEN,
        block_size=BLOCK_SIZE,
        num_kv_blocks=kv_tokens // BLOCK_SIZE,
    )
