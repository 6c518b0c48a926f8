"""The waiting requests, in the order in which they are admitted.

Without a key the order is first come, first served, and a preempted request goes to the
front.  With a key the least key is first, whoever came when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, nsmallest

from batchwright.request import Request

Key = Callable[[Request], tuple[float, ...]]  # ends in the id, so that no two are equal


class Waiting:
    """A queue of requests; `key` orders it (None: first come, first served)."""

    def __init__(self, key: Key | None = None) -> None:
        self._key = key
        self._line: deque[Request] = deque()  # first come, first served
        self._heap: list[tuple[tuple[float, ...], int, Request]] = []  # by key, then who was pushed first
        self._pushed = 0

    def push(self, r: Request) -> None:
        if self._key is not None:
            self._pushed += 1
            heappush(self._heap, (self._key(r), self._pushed, r))
        elif r.preemptions > 0:
            self._line.appendleft(r)
        else:
            self._line.append(r)

    def first(self) -> Request:
        """Who is admitted next.  Raises IndexError if nobody waits."""
        return self._line[0] if self._key is None else self._heap[0][2]

    def head(self, count: int) -> list[Request]:
        """The first `count` requests, or all if fewer wait."""
        if self._key is not None:
            return [r for _, _, r in nsmallest(count, self._heap)]
        return [self._line[i] for i in range(min(count, len(self._line)))]

    def take(self, r: Request) -> None:
        """Take out `r`; O(1) or O(log n) if it is the first, else O(n)."""
        if self._key is None and self._line[0] is r:
            self._line.popleft()
        elif self._key is not None and self._heap[0][2] is r:
            heappop(self._heap)
        else:
            self._remove(r)

    def _remove(self, r: Request) -> None:
        if self._key is None:
            self._line.remove(r)
            return
        self._heap = [entry for entry in self._heap if entry[2] is not r]
        heapify(self._heap)
