"""Service-level objectives: what a request must keep to count.

    attainment = requests that met every objective / all requests
    goodput    = requests that met every objective / duration

Rejected and unfinished requests are in the denominator, and have missed.  Source: DistServe
(Zhong et al., OSDI 2024, arXiv 2401.09670).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Final

import numpy as np

from batchwright.durations import duration, duration_text
from batchwright.errors import InputError, nearest
from batchwright.metrics import Numbers

COLUMNS: Final = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "greatest_itl_s", "e2e": "e2e_s"}
UNITS: Final = ("ms", "s")


@dataclass(frozen=True, kw_only=True)
class Slo:
    """Limits in seconds; None: none.

    ttft, tpot, e2e   of the request
    itl               of its greatest gap between two tokens: one stall misses it

    A limit on TPOT or ITL is met by a request of one token, which has neither.
    Raises InputError if there is no limit, or one that is not greater than 0.
    """

    ttft: float | None = None
    tpot: float | None = None
    itl: float | None = None
    e2e: float | None = None

    def __post_init__(self) -> None:
        if not self.limits:
            raise InputError(f"the SLO has no limit; give some of {', '.join(COLUMNS)}, such as ttft=200ms")
        for name, seconds in self.limits.items():
            if not (isfinite(seconds) and seconds > 0):
                raise InputError(f"SLO {name} is {seconds} s, but must be greater than 0")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, in seconds."""
        return {name: seconds for name, seconds in asdict(self).items() if seconds is not None}

    def __str__(self) -> str:
        return ",".join(f"{name}={duration_text(seconds)}" for name, seconds in self.limits.items())

    def to_json(self) -> dict[str, float]:
        """The limits that are set, with their unit in the name."""
        return {f"{name}_s": seconds for name, seconds in self.limits.items()}

    def met(self, columns: Mapping[str, Numbers], is_streamed: bool) -> Numbers | None:
        """Which requests met every limit that applies; None if none of them does.

        A policy that is not streamed has no TPOT and no ITL: what its clients wait for is in TTFT.
        """
        applies = {
            name: limit for name, limit in self.limits.items() if is_streamed or name in ("ttft", "e2e")
        }
        if not applies:
            return None
        found: Numbers = ~np.isnan(columns["e2e_s"])
        for name, limit in applies.items():
            values = columns[COLUMNS[name]]
            found &= (values <= limit) | np.isnan(values)
        return found


def read_slo(given: str | Mapping[str, str]) -> Slo:
    """The objectives of a text such as `ttft=200ms,tpot=50ms,e2e=10s`, or of a mapping of the same.

    Raises InputError.
    """
    limits: dict[str, float] = {}
    pairs = [_pair(item) for item in given.split(",")] if isinstance(given, str) else list(given.items())
    for name, value in pairs:
        if name not in COLUMNS:
            raise InputError(f"SLO has no metric {name!r}{nearest(name, COLUMNS)}")
        if name in limits:
            raise InputError(f"SLO {name} is given twice; leave one out")
        limits[name] = duration(value, f"SLO {name}", UNITS)
    return Slo(**limits)


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in item.partition("="))
    if not equals:
        raise InputError(f"SLO {item.strip()!r} is not of the form name=limit; write for instance ttft=200ms")
    return name, value
