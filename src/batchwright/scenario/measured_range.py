"""Where the limits of a server let steps leave what its cost model was measured on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from batchwright.cost import CostModel, Range, device_of
from batchwright.limits import Limits


def range_of(cost: CostModel) -> Range:
    """What the cost was measured on, the least and the greatest by feature; empty where it does not say."""
    found: Any = getattr(device_of(cost), "range", None)
    return found if isinstance(found, dict) else {}


def range_notes(cost: CostModel, flags: Limits) -> Iterator[str]:
    """A note on each limit that is over the range of a cost model that has one; `flags`: of one engine."""
    measured = range_of(cost)
    for feature, flag, words in (
        ("tokens", "max_num_batched_tokens", "tokens"),
        ("num_decodes", "max_num_seqs", "decodes"),
    ):
        most, given = measured.get(feature, (0.0, float("inf")))[1], getattr(flags, flag)
        if given > most:
            yield f"steps of over {most:g} {words} were not measured, and are extrapolated; {flag} is {given}"
