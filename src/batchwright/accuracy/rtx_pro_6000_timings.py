"""The RTX PRO 6000 that is short of seats, from the timings of its first requests alone."""

from __future__ import annotations

from pathlib import Path

from batchwright.accuracy.study import Study
from batchwright.accuracy.timings import of_card


def study(data: Path) -> Study:
    """`data`: the folder of all measurements."""
    return of_card(data, "RTXPRO6000", "RTX-PRO-6000", None)
