"""What is going to happen in a cluster: one heap, keyed (time, kind, number).

    WAKE     something ends at a replica by itself, or its policy asked to be woken: `Simulator.upcoming`
    ARRIVAL  a request comes to the router

At one instant all ends come first, so that a router sees who has left, then arrivals; what remains
equal goes by number.  No replica plans its next step before all of them have happened.  Transfers are
no events here: both their ends wake up by themselves (`handovers`).
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from batchwright.request import NEVER

WAKE: Final = 0
ARRIVAL: Final = 1

Event = tuple[float, int, int, int, object]  # seconds, kind, number, events pushed before it, what happens


class Events:
    """The events to come; `time` is the first one's, or NEVER."""

    def __init__(self) -> None:
        self.time = NEVER
        self._heap: list[Event] = []
        self._pushed = 0

    def push(self, time: float, kind: int, number: int, what: object) -> None:
        """Let `what` happen at second `time`; `number`: its place among others of this time and kind."""
        self._pushed += 1
        heappush(self._heap, (time, kind, number, self._pushed, what))
        self.time = self._heap[0][0]

    def pop(self) -> Event:
        """The first one.  Raises IndexError if there is none."""
        event = heappop(self._heap)
        self.time = self._heap[0][0] if self._heap else NEVER
        return event
