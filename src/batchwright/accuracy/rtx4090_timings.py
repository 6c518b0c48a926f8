"""The RTX 4090 that is short of KV memory, from the timings of its first requests alone."""

from __future__ import annotations

from pathlib import Path

from batchwright.accuracy.study import Study
from batchwright.accuracy.timings import of_card

BLOCKS = 2587  # that the engine had, beside its null block


def study(data: Path) -> Study:
    """`data`: the folder of all measurements."""
    return of_card(data, "RTX4090", "RTX-4090", BLOCKS)
