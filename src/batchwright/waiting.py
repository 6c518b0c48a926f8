"""The waiting requests, in the order in which they are admitted.

Without a key the order is first come, first served, and a preempted request goes to the
front.  With a key the least key is first, whoever came when.  An order that changes while
requests wait is a `Line` of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, nsmallest
from typing import Protocol

from batchwright.request import Request

Key = Callable[[Request], tuple[float, ...]]  # ends in the id, so that no two are equal


class Line(Protocol):
    """A queue of its own order; a request that is pushed may have been preempted."""

    def push(self, r: Request) -> None: ...
    def first(self) -> Request: ...  # somebody waits
    def head(self, count: int) -> list[Request]: ...
    def take(self, r: Request) -> None: ...


class Waiting:
    """A queue of requests; `key` or `line` orders it (neither: first come, first served)."""

    def __init__(self, key: Key | None = None, line: Line | None = None) -> None:
        self.is_ordered = key is not None or line is not None
        self._key = key
        self._own = line
        self._line: deque[Request] = deque()  # first come, first served
        self._heap: list[tuple[tuple[float, ...], int, Request]] = []  # by key, then who was pushed first
        self._pushed = 0

    def push(self, r: Request) -> None:
        if self._key is not None:
            self._pushed += 1
            heappush(self._heap, (self._key(r), self._pushed, r))
        elif self._own is not None:
            self._own.push(r)
        elif r.preemptions > 0:
            self._line.appendleft(r)
        else:
            self._line.append(r)

    def first(self) -> Request:
        """Who is admitted next.  Raises IndexError if nobody waits."""
        if not self.is_ordered:
            return self._line[0]
        return self._heap[0][2] if self._own is None else self._own.first()

    def head(self, count: int) -> list[Request]:
        """The first `count` requests, or all if fewer wait."""
        if self._own is not None:
            return self._own.head(count)
        if self._key is not None:
            return [r for _, _, r in nsmallest(count, self._heap)]
        return [self._line[i] for i in range(min(count, len(self._line)))]

    def oldest(self, count: int) -> float:
        """When the one came that has waited longest, of `count` that wait; O(1) if first come is first."""
        if not self.is_ordered:
            return self._line[0].arrival
        return min([r.arrival for r in self.head(count)])

    def take(self, r: Request) -> None:
        """Take out `r`; O(1) or O(log n) if it is the first, else O(n)."""
        if not self.is_ordered and self._line[0] is r:
            self._line.popleft()
        elif self._own is not None:
            self._own.take(r)
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
