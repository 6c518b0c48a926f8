"""KV on its way out of the KV cache, or into it: it holds blocks, and its request has no seat."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from batchwright.request import NEVER, Request


class Movers:
    """Who moves, with its KV blocks; `time`: when the next transfer ends, in seconds."""

    def __init__(self) -> None:
        self.time = NEVER
        self.leaving: dict[Request, int] = {}
        self.coming: dict[Request, int] = {}
        self.elsewhere: dict[Request, int] = {}  # who waits, with KV of so many tokens on another replica,
        self.offered: dict[Request, None] = {}  # those of them who have not come yet
        self.fetch: Callable[[Request], tuple[float, float]] | None = None  # begin and end of its transfer
        self._ends: list[tuple[float, int, Request]] = []  # a heap: end, transfers before it, whose
        self._num_started = 0

    @property
    def coming_blocks(self) -> int:
        """KV blocks whose KV is still to come."""
        return sum(self.coming.values())

    @property
    def requests(self) -> list[Request]:
        """All who have blocks and no seat."""
        return [*self.leaving, *self.coming]

    def end_at(self, r: Request, end: float) -> None:
        """The transfer of `r`, which leaves or comes, ends at second `end`, or it comes to wait then."""
        heappush(self._ends, (end, self._num_started, r))
        self._num_started += 1
        self.time = self._ends[0][0]

    def pop(self) -> Request:
        """Whose transfer ends first.  Raises IndexError if there is none."""
        r = heappop(self._ends)[2]
        self.time = self._ends[0][0] if self._ends else NEVER
        return r
