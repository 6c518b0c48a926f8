"""Equal lengths: what continuous batching gains vanishes.

Orca (Yu et al., OSDI 2022, section 6.2) finds its gap over FasterTransformer to shrink where all
requests have the same lengths, and to be gone, or negative, at a batch size of 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from batchwright.errors import InputError
from batchwright.interval import Interval, t_interval
from batchwright.published.spread import BATCHES, simulated_gain
from batchwright.theory.gain import saturated_gain
from batchwright.theory.lengths import uniform


@dataclass(frozen=True, kw_only=True)
class EqualRow:
    """Outputs of `least` to `most` tokens; gains as shares, for many requests and simulated."""

    batch: int
    least: int
    most: int
    many: float
    simulated: Interval


def gain_by_width(mean: int, widths: Iterable[int], batch: int, seeds: int = 10) -> list[EqualRow]:
    """Outputs of `mean` - width to `mean` + width.  Raises InputError on a width of `mean` or more."""
    return [_row(mean, width, batch, seeds) for width in widths]


def _row(mean: int, width: int, batch: int, seeds: int) -> EqualRow:
    if not 0 <= width < mean:
        raise InputError(f"width is {width}, but must be 0 to {mean - 1} for outputs of {mean} in the mean")
    law = uniform(mean - width, mean + width)
    simulated = [simulated_gain(law, batch, BATCHES * batch, seed) for seed in range(seeds)]
    return EqualRow(
        batch=batch,
        least=mean - width,
        most=mean + width,
        many=saturated_gain(law, batch),
        simulated=t_interval(simulated),
    )
