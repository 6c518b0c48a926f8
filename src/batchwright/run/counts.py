"""How many requests wait, and how many have a seat, at every moment of a run: step functions.

A request waits from its arrival to the step that admits it, and again from a preemption on, or from the end
of its prompt if it decodes on another server.  It waits, too, while its KV is on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchwright.log import ABORTED, DROPPED, MOVED, PREEMPTED, SWAPPED
from batchwright.metrics import Numbers
from batchwright.run.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class Count:
    """`values[i]` requests from second `times[i]` on, up to the next; none before the first."""

    times: Numbers
    values: Numbers

    def at(self, seconds: Numbers) -> Numbers:
        """The count at each moment, after all that happens in it."""
        return np.append(self.values, 0)[np.searchsorted(self.times, seconds, side="right") - 1]

    def least(self, begin: float, end: float) -> int:
        """The least count from `begin` to `end`."""
        return int(self._between(begin, end).min())

    def greatest(self, begin: float, end: float) -> int:
        """The greatest count from `begin` to `end`."""
        return int(self._between(begin, end).max())

    def mean(self, begin: float, end: float) -> float:
        """The average over the time from `begin` to `end`, which is later."""
        return (self.area(end) - self.area(begin)) / (end - begin)

    def area(self, end: float) -> float:
        """The integral up to `end`, in seconds of requests."""
        edges = np.minimum(np.append(self.times, np.inf), end)
        return float((self.values * np.diff(edges)).sum())

    def last_below(self, count: int, end: float) -> float:
        """The last moment before `end` at which fewer than `count` were there; 0 if there was none."""
        edges = np.append(self.times, np.inf)
        is_below = (self.values < count) & (self.times < end)
        found = edges[1:][is_below]
        return float(min(found[-1], end)) if len(found) else 0.0

    def _between(self, begin: float, end: float) -> Numbers:
        first = int(np.searchsorted(self.times, begin, side="right")) - 1
        last = int(np.searchsorted(self.times, end, side="right"))
        return self.values[first:last] if first >= 0 else np.append(0, self.values[:last])


def waiting(timelines: Sequence[Timeline], arrival: Numbers) -> Count:
    """Requests that have come and have no seat at any of the servers."""
    moved = [timeline.stays["id"][timeline.stays["how"] == MOVED] for timeline in timelines]
    moves = []
    for i, timeline in enumerate(timelines):
        handed_over = np.concatenate([np.empty(0, np.int64), *moved[:i], *moved[i + 1 :]])
        moves.append(_waits(timeline, arrival, handed_over))
    return _count([part for come, _ in moves for part in come], [part for _, go in moves for part in go])


def _waits(timeline: Timeline, arrival: Numbers, handed_over: Numbers) -> tuple[list[Numbers], list[Numbers]]:
    """When waits begin, and when they end; `handed_over`: ids of requests that came from another server."""
    stays, admitted = timeline.stays, timeline.admitted
    is_dropped = stays["how"] == DROPPED
    is_aborted = (stays["how"] == ABORTED) & (stays["seat"] == 0)
    is_preempted = np.isin(stays["how"], (PREEMPTED, SWAPPED))
    is_moved = stays["how"] == MOVED
    return (
        [
            arrival[np.setdiff1d(stays["id"], handed_over)],
            timeline.begin_of(stays["until"][is_preempted]),
            timeline.end_before(stays["until"][is_moved]),
        ],
        [
            timeline.begin_of(admitted["admitted"]),
            timeline.end_before(stays["until"][is_dropped]),
            timeline.begin_of(stays["until"][is_aborted]),
        ],
    )


def seated(timelines: Sequence[Timeline]) -> Count:
    """Requests that have a seat, whatever they do with it."""
    return _count([seat_begins(one) for one in timelines], [seat_ends(one) for one in timelines])


def seat_begins(timeline: Timeline) -> Numbers:
    """When each stay began, in order of admission."""
    return timeline.begin_of(timeline.admitted["admitted"])


def seat_ends(timeline: Timeline) -> Numbers:
    """When each stay ended, in order of admission: a preemption or an abort comes before a step."""
    until = timeline.admitted["until"]
    is_cut_short = np.isin(timeline.admitted["how"], (PREEMPTED, SWAPPED, ABORTED))
    begin, before = timeline.begin_of(until), timeline.end_before(until)
    return np.where(is_cut_short & np.isfinite(begin), begin, before)


def _count(come: list[Numbers], go: list[Numbers]) -> Count:
    times = np.concatenate((*come, *go))
    changes = np.ones(len(times), np.int64)
    changes[sum(len(part) for part in come) :] = -1
    moments, at = np.unique(times, return_inverse=True)
    values = np.cumsum(np.bincount(at, changes, len(moments))).astype(np.int64)
    return Count(times=moments, values=values)
