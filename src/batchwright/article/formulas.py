"""The article's workload and its two formulas, as it writes them.

    static      sum over batches of 32 of max(output) * 25 ms
    continuous  max(output) * 25 ms * max(n / 32, 1)

The second charges the longest output to every n / 32 "waves", so nobody ever takes the seat of one
who has left: it is static batching with a fractional last batch.  Hence

    static / continuous = sum of the batches' maxima / (maximum * n / 32) <= ceil(n/32) / (n/32)
"""

from __future__ import annotations

from math import ceil
from typing import Final

from batchwright.article.claims import BATCH, REQUESTS, STEP
from batchwright.workload import Workload
from batchwright.workload.columns import Ints
from batchwright.workload.generated import article

FIRST_SEED: Final = 1000


def load(seed: int, requests: int = REQUESTS) -> Workload:
    """The article's workload, the built-in load `article`: all at the start, uniform lengths."""
    return article(n=requests, seed=seed)


def loads(count: int, requests: int = REQUESTS) -> list[Workload]:
    """The workloads of seeds 1000, 1001...: apart from those that one looks at by hand."""
    return [load(FIRST_SEED + i, requests) for i in range(count)]


def static_seconds(output: Ints) -> float:
    """The article's formula for static batching."""
    return sum(int(output[i : i + BATCH].max()) for i in range(0, len(output), BATCH)) * STEP


def continuous_seconds(output: Ints) -> float:
    """The article's formula for continuous batching."""
    return int(output.max()) * STEP * max(len(output) / BATCH, 1)


def greatest_gain(requests: int) -> float:
    """The most that the two formulas can show for so many requests, whatever the outputs; a share."""
    return ceil(requests / BATCH) / max(requests / BATCH, 1) - 1
