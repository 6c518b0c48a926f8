"""The formulas beside the simulation for other numbers of requests: where the fraction shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.article import formulas
from batchwright.article.serve import closed_form_gain, over_seeds, simulated_gains
from batchwright.interval import Interval, t_interval

COUNTS: Final = (32, 64, 96, 100, 128, 256, 1000)
FORMULAS: Final = 20  # seeds of the formulas for one of the simulation: they cost next to nothing


@dataclass(frozen=True, kw_only=True)
class CountRow:
    """Continuous over static for `requests`, as shares.

    `formula`: by the article's two formulas, which cannot show more than `bound`.
    `simulated`: step by step, with its `closed_form`.
    """

    requests: int
    formula: Interval
    bound: float
    simulated: Interval
    closed_form: float


def count_row(requests: int, seeds: int) -> CountRow:
    """For `requests`, over `seeds` simulated workloads."""
    outputs = [load.output for load in formulas.loads(FORMULAS * seeds, requests)]
    gains = [formulas.static_seconds(o) / formulas.continuous_seconds(o) - 1 for o in outputs]
    return CountRow(
        requests=requests,
        formula=t_interval(gains),
        bound=formulas.greatest_gain(requests),
        simulated=over_seeds(simulated_gains(requests, seeds)),
        closed_form=closed_form_gain(requests),
    )
