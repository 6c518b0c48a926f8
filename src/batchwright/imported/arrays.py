"""Values of many requests as an array; what a file does not say of one is nan, or 0 tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final

import numpy as np

from batchwright.imported.result import About
from batchwright.metrics import Numbers
from batchwright.request import LONGEST

LATEST: Final = 1e12  # seconds; beyond any clock


class BadValue(Exception):
    """A value that no request can have; the text says which, without the file."""


def floats(values: Iterable[float | None]) -> Numbers:
    """nan for None.  Raises BadValue on what is no time: infinite, or beyond any clock."""
    try:
        found = np.array(list(values), np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadValue("a time is no number") from None
    if (np.abs(found) > LATEST).any():
        raise BadValue(f"a time is {found[np.abs(found) > LATEST][0]:g} s, beyond any clock")
    return found


def wholes(values: Iterable[int | None]) -> Numbers:
    """0 for None.  Raises BadValue on a length that no request can have."""
    found = [0 if value is None else value for value in values]
    wrong = next((value for value in found if not 0 <= value <= LONGEST), None)
    if wrong is not None:
        raise BadValue(f"a request has {wrong} tokens, outside 0 to {LONGEST}")
    return np.array(found, np.int64)


def known(values: Mapping[str, float]) -> dict[str, float]:
    """Those that are finite numbers."""
    return {name: value for name, value in values.items() if isfinite(value)}


def scalars(values: Mapping[str, object]) -> About:
    """What is told as one text or number; an infinite one is the text inf."""
    found: About = {}
    for name, value in values.items():
        if isinstance(value, float) and not isfinite(value):
            found |= {} if value != value else {name: str(value)}
        elif isinstance(value, str | int | float | bool) and value != "":
            found[name] = value
    return found
