"""Spans of time as text: `200ms`, `30s`, `5m`, `1.5h`, `2d`.  The unit is never left out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite
from typing import Final

from batchwright.errors import InputError

UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER: Final = re.compile(r"\s*(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def duration(
    text: str, what: str = "duration", units: Iterable[str] = tuple(UNITS), *, may_be_zero: bool = False
) -> float:
    """Seconds of a text such as `5m`.  `what` names it in errors.

    Raises InputError unless it is a number and one of `units`, greater than 0, or 0 where it may be.
    """
    match = _NUMBER.fullmatch(text)
    known = list(units)
    if match is None or match[2].lower() not in known:
        raise InputError(
            f"{what} {text!r} is not a number and a unit ({', '.join(known)}); write for instance 30s"
        )
    seconds = float(match[1]) * UNITS[match[2].lower()]
    if not (isfinite(seconds) and (seconds > 0 or (may_be_zero and seconds == 0))):
        raise InputError(f"{what} {text!r} must be greater than 0 and finite")
    return seconds


def duration_text(seconds: float) -> str:
    """The text of `seconds`, in milliseconds below a second."""
    return f"{seconds * 1e3:g}ms" if seconds < 1 else f"{seconds:g}s"
