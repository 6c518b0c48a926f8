"""Random numbers of made loads: one independent stream per purpose, so that a change of one law
leaves all other draws as they are; and sums of gaps that are the same on every platform.

Gaps are rounded to whole nanoseconds before they are summed, so that no last bit of a logarithm
can show in an arrival time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from batchwright.errors import InputError
from batchwright.workload.columns import LONGEST_SPAN, Floats

LENGTHS: Final = 1  # purposes
PROMPT: Final = 2
OUTPUT: Final = 3
PREFIX: Final = 4
TURNS: Final = 5
THINK: Final = 6
PHASES: Final = 7
BOOTSTRAP: Final = 8
SAMPLE: Final = 9
ARRIVALS: Final = 10


def gap_stream(seed: int) -> np.random.Generator:
    """The stream of the gaps between arrivals."""
    return np.random.Generator(np.random.PCG64(seed))


def stream(seed: int, *purpose: int) -> np.random.Generator:
    """The stream of one purpose, and of what else it depends on."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=purpose)))


def sum_gaps(gaps: Floats) -> Floats:
    """Arrivals with these gaps between them, in seconds; the first is at 0.  Raises InputError."""
    span = float(gaps.sum())
    if not span <= LONGEST_SPAN:
        needed = f"{len(gaps) + 1} requests take {span:.3g} s"
        raise InputError(f"{needed}, over {LONGEST_SPAN:.3g} s; raise the rate")
    nanoseconds = np.concatenate((np.zeros(1, np.int64), np.rint(gaps * 1e9).astype(np.int64)))
    return np.cumsum(nanoseconds) / 1e9


def rounded(seconds: Floats) -> Floats:
    """To whole nanoseconds."""
    return np.rint(seconds * 1e9) / 1e9
