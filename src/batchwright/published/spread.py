"""The gain of continuous over static batching against the spread of outputs and the batch size.

    many requests, constant step, prompts free:  gain = E[M_B] / E[o] - 1

A static batch lasts as long as its longest output, a seat of a continuous batch only as long as
its own.  The simulated column has `BATCHES` static batches, so its closed form is that of a finite
number of requests (see `theory.gain`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchwright.article.serve import serve
from batchwright.cost import Constant
from batchwright.interval import Interval, t_interval
from batchwright.limits import Limits
from batchwright.policies import Orca, Static
from batchwright.theory.gain import gain_at_once, saturated_gain
from batchwright.theory.lengths import Law, draw
from batchwright.workload import Workload

BATCHES: Final = 40
STEP: Final = 0.025  # seconds; it cancels out


@dataclass(frozen=True, kw_only=True)
class SpreadRow:
    """Gains as shares: for many requests, and for 40 batches in closed form and simulated."""

    law: str
    batch: int
    many: float
    closed_form: float
    simulated: Interval


def gain_by_spread(laws: Mapping[str, Law], batches: Iterable[int], seeds: int = 10) -> list[SpreadRow]:
    """One row per named law and batch size."""
    sizes = tuple(batches)
    return [spread_row(name, law, size, seeds) for name, law in laws.items() for size in sizes]


def spread_row(name: str, law: Law, batch: int, seeds: int) -> SpreadRow:
    """40 batches of `batch` requests with outputs of `law`, all there at the start."""
    count = BATCHES * batch
    gains = [simulated_gain(law, batch, count, seed) for seed in range(seeds)]
    return SpreadRow(
        law=name,
        batch=batch,
        many=saturated_gain(law, batch),
        closed_form=gain_at_once(law, count, batch),
        simulated=t_interval(gains),
    )


def simulated_gain(law: Law, batch: int, requests: int, seed: int) -> float:
    """Continuous (Orca's rule) over static (without padding) for the same requests."""
    outputs = draw(law, requests, np.random.Generator(np.random.PCG64(seed)))
    load = Workload.from_columns(np.zeros(requests), np.ones(requests, np.int64), outputs)
    limits = Limits(max_num_seqs=batch)
    static, continuous = (
        serve(load, policy, Constant(STEP), limits) for policy in (Static(batch, padded=False), Orca(batch))
    )
    return static / continuous - 1
