"""Host memory as a second place for KV, behind a link: where requests are swapped out to.

    DECODING -> MOVING_OUT -> SWAPPED -> MOVING_IN -> DECODING

A request keeps its KV blocks until its KV has come to the host, and takes them again before it
comes back.  Its place in host memory lasts from the start of the first transfer to the end of
the second.
"""

from __future__ import annotations

from heapq import heappop, heappush

from batchwright.limits import UNLIMITED
from batchwright.link import Channel, Link
from batchwright.request import NEVER, Request


class HostMemory:
    """`size` blocks behind `link`, and the KV on its way there and back.  Blocks are those of the device."""

    def __init__(self, link: Link, size: int = UNLIMITED) -> None:
        self.link = link
        self.size = size
        self.free = size
        self.swapped: dict[Request, int] = {}  # who waits here, first out first; blocks
        self.leaving: dict[Request, int] = {}  # on the way out
        self.coming: dict[Request, int] = {}  # on the way in
        self.time = NEVER  # when the next transfer ends
        self._out = Channel(link)
        self._in = Channel(link)
        self._ends: list[tuple[float, int, Request]] = []  # a heap: end, transfers before it, whose
        self._num_sent = 0

    @property
    def is_moving(self) -> bool:
        """Is KV on its way?"""
        return len(self._ends) > 0

    @property
    def leaving_blocks(self) -> int:
        """KV blocks that are free once all that leave have left."""
        return sum(self.leaving.values())

    def send(self, r: Request, blocks: int, tokens: int, now: float) -> tuple[float, float]:
        """Let the KV of `r` leave for the host; begin and end of the transfer."""
        self.free -= blocks
        self.leaving[r] = blocks
        return self._start(self._out, r, tokens, now)

    def fetch(self, r: Request, tokens: int, now: float) -> tuple[float, float]:
        """Let the KV of `r` come back; begin and end of the transfer."""
        self.coming[r] = self.swapped.pop(r)
        return self._start(self._in, r, tokens, now)

    def land(self) -> Request:
        """Whose transfer has ended first; it is on its way no longer."""
        r = heappop(self._ends)[2]
        self.time = self._ends[0][0] if self._ends else NEVER
        return r

    def drop(self, r: Request) -> None:
        """`r`, which waits here, is gone."""
        self.free += self.swapped.pop(r)

    def check(self) -> None:
        """Recompute the free blocks.  For tests and audits."""
        places = (self.swapped, self.leaving, self.coming)
        assert self.free == self.size - sum(sum(place.values()) for place in places)
        assert 0 <= self.free and len(self._ends) == len(self.leaving) + len(self.coming)

    def _start(self, channel: Channel, r: Request, tokens: int, now: float) -> tuple[float, float]:
        begin, end = channel.send(now, tokens)
        heappush(self._ends, (end, self._num_sent, r))
        self._num_sent += 1
        self.time = self._ends[0][0]
        return begin, end
