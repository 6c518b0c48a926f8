"""Earliest deadline first: a request should have its first token by arrival + `ttft`.

    key    arrival + ttft of its class; then who came first

Nothing is dropped that is late: it comes first then.  Source: Liu and Layland, JACM 1973.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import InputError, PolicyError
from batchwright.request import Request
from batchwright.waiting import Key


@ordinary
@dataclass(frozen=True)
class Edf:
    """`ttft`: seconds, one for all, or one for each priority 0, 1, 2...

    With one for all this is first come, first served.  Raises InputError on what is no time.
    """

    ttft: float | tuple[float, ...] = (0.5, 5.0)

    def __post_init__(self) -> None:
        given: object = self.ttft
        times = given if isinstance(given, (tuple, list)) else (given,)
        if not times or not all(map(_is_time, times)):
            raise InputError(f"edf: ttft is {given!r}, but must be seconds over 0, or a list of them")
        if isinstance(given, list):
            object.__setattr__(self, "ttft", tuple(given))

    @property
    def note(self) -> str:
        return ""

    def begin(self, batch: Batch, ask: Policy) -> Policy:
        given = self.ttft
        batch.order_by(by_deadline(given if isinstance(given, tuple) else (given,), isinstance(given, tuple)))
        return ask


def by_deadline(times: tuple[float, ...], by_class: bool) -> Key:
    """A key: who must have its first token soonest.  Raises PolicyError on a priority without a time."""

    def key(r: Request) -> tuple[float, ...]:
        place = r.priority if by_class else 0
        if not 0 <= place < len(times):
            raise PolicyError(
                f"edf: request {r.id} has priority {r.priority}, but ttft has times for 0 to "
                f"{len(times) - 1}; give one for each, or one for all"
            )
        return (r.arrival + times[place], r.arrival, r.id)

    return key


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < inf
