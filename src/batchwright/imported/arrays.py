"""Values of many requests as an array; what a file does not say of one is nan, or 0 tokens."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan

import numpy as np

from batchwright.metrics import Numbers


def floats(values: Iterable[float | None]) -> Numbers:
    """nan for None."""
    return np.array([nan if value is None else value for value in values], np.float64)


def wholes(values: Iterable[int | None]) -> Numbers:
    """0 for None."""
    return np.array([0 if value is None else value for value in values], np.int64)


def known(values: dict[str, float]) -> dict[str, float]:
    """Without those that are nan."""
    return {name: value for name, value in values.items() if value == value}
