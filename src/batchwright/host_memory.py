"""Host memory as a second place for KV, behind a link: where requests are swapped out to.

    DECODING -> MOVING_OUT -> SWAPPED -> MOVING_IN -> DECODING

A request keeps its KV blocks until its KV has come to the host, and takes them again before it
comes back.  Its place in host memory lasts from the start of the first transfer to the end of
the second.
"""

from __future__ import annotations

from batchwright.limits import UNLIMITED
from batchwright.link import Channel, Link
from batchwright.request import Request


class HostMemory:
    """`size` blocks behind `link`.  Blocks are those of the device."""

    def __init__(self, link: Link, size: int = UNLIMITED) -> None:
        self.link = link
        self.size = size
        self.free = size
        self.swapped: dict[Request, None] = {}  # who waits here, first out first
        self.places: dict[Request, int] = {}  # of these, and of those on their way here and back; blocks
        self.num_moving = 0  # copies under way, both ways
        self.leaving_blocks = 0  # KV blocks that are free once all that leave for here have come
        self.out = Channel(link)
        self.back = Channel(link)

    def place(self, r: Request, blocks: int) -> None:
        """Keep a place for `r`."""
        self.places[r] = blocks
        self.free -= blocks

    def drop(self, r: Request) -> None:
        """`r` needs its place no longer."""
        self.free += self.places.pop(r)
        self.swapped.pop(r, None)

    def check(self) -> None:
        """Recompute the free blocks.  For tests and audits."""
        assert 0 <= self.free == self.size - sum(self.places.values())
        assert self.swapped.keys() <= self.places.keys()
