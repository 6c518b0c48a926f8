"""The gain against the cap on outputs: Anyscale, "How continuous batching enables 23x throughput".

1000 prompts of 512 tokens, all there at the start; outputs exponential of mean 128, cut at the
cap; OPT-13B on one A100-40GB.  Static batches are those of the blog post: 16, 12, 8 and 4 for caps of
32, 128, 512 and 1536 (June 2023).
It finds static and continuous about equal at a cap of 32, and more apart with every cap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from batchwright.article.serve import serve
from batchwright.contract import Begins
from batchwright.limits import Limits
from batchwright.policies import Orca, Static, Vllm
from batchwright.published.opt13b import Opt13b, limits
from batchwright.published.reserve import Reserving
from batchwright.theory.lengths import draw, geometric
from batchwright.workload import Workload

STATIC_BATCHES: Final = {32: 16, 128: 12, 512: 8, 1536: 4}  # by cap
PROMPT: Final = 512
MEAN_OUTPUT: Final = 128


@dataclass(frozen=True, kw_only=True)
class CapRow:
    """Prompt + output tokens/s of static, and gains over it as shares.

    same_seats  continuous with as many seats as a static batch has
    reserving   as many as memory holds if each reserves prompt and cap
    paged       as many as memory holds if blocks are taken as they are needed
    """

    cap: int
    static_batch: int
    static_throughput: float
    same_seats: float
    reserving: float
    paged: float


def gain_by_cap(requests: int = 1000, seed: int = 0) -> list[CapRow]:
    """One row per cap."""
    return [_row(cap, batch, requests, seed) for cap, batch in STATIC_BATCHES.items()]


def _row(cap: int, batch: int, requests: int, seed: int) -> CapRow:
    outputs = draw(geometric(MEAN_OUTPUT, cap), requests, np.random.Generator(np.random.PCG64(seed)))
    prompts = np.full(requests, PROMPT)
    load = Workload.from_columns(np.zeros(requests), prompts, outputs, max_tokens=cap, name=f"cap {cap}")
    small = replace(limits(), num_kv_blocks=None)  # whose seats bind, not its memory
    static = _seconds(load, Static(batch, padded=False), small)
    return CapRow(
        cap=cap,
        static_batch=batch,
        static_throughput=float(prompts.sum() + outputs.sum()) / static,
        same_seats=static / _seconds(load, Orca(batch), small) - 1,
        reserving=static / _seconds(load, Reserving(buddy=False), limits()) - 1,
        paged=static / _seconds(load, Vllm(async_scheduling=False), limits()) - 1,
    )


def _seconds(load: Workload, policy: Begins, server: Limits) -> float:
    return serve(load, policy, Opt13b(), server)
