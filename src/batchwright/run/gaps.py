"""Inter-token latency: the gaps between successive tokens of a request, without listing the tokens.

In two clocks in a row a decode gets two tokens, so the gap between the ends of both steps counts
once for every decode that had a token in each:

    weight[clock] = decodes of that clock - those whose token before came earlier

The rest are odd gaps, and are listed one by one: after a hold, after a pause in which the first
token came, and from the last token before a preemption to the first one after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchwright.metrics import Numbers
from batchwright.run.timeline import Timeline


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """Gaps in seconds, and how many there are of each; `greatest`: of each request, nan if it has none."""

    seconds: Numbers
    counts: Numbers
    greatest: Numbers


def gaps(timeline: Timeline, is_counted: Numbers) -> Gaps:
    """The gaps of the requests that `is_counted` says, by id."""
    return _Gaps(timeline, is_counted).find()


def merged(parts: Sequence[Gaps]) -> Gaps:
    """Those of several servers, each of which had its own requests."""
    if len(parts) == 1:
        return parts[0]
    return Gaps(
        seconds=np.concatenate([part.seconds for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        greatest=np.fmax.reduce([part.greatest for part in parts]),
    )


class _Gaps:
    """The stays of one look, with the clocks low .. high - 1 of their decodes."""

    def __init__(self, timeline: Timeline, is_counted: Numbers) -> None:
        self.timeline = timeline
        self.num_requests = len(is_counted)
        stays = timeline.admitted
        chosen = np.flatnonzero((stays["since"] >= 0) & is_counted[stays["id"]])
        self.id = stays["id"][chosen]
        self.low = timeline.clock(stays["since"][chosen])
        self.high = timeline.clock(stays["stopped"][chosen])
        first = stays["since"][chosen] - 1
        self.first = timeline.ends[first]  # seconds of the first token
        self.is_off = timeline.is_paused[timeline.stretch_of(first)]  # did it come in a pause?
        self.ends = timeline.clock_ends if len(timeline.clock_ends) else np.zeros(1)
        self.last = np.where(self.high > self.low, self.ends[self.high - 1], self.first)
        self.weights = self._regular()
        self.odd_stays: list[Numbers] = []
        self.odd_seconds: list[Numbers] = []
        self._hold(chosen)
        self._resume()

    def find(self) -> Gaps:
        seconds = np.diff(self.ends, prepend=0.0)
        has_any = self.weights > 0
        odd = np.concatenate(self.odd_seconds)
        return Gaps(
            seconds=np.concatenate((seconds[has_any], odd)),
            counts=np.concatenate((self.weights[has_any], np.ones(len(odd), np.int64))),
            greatest=self._greatest(seconds, odd),
        )

    def _regular(self) -> Numbers:
        """Decodes of every clock."""
        size = len(self.ends) + 1
        change = np.bincount(self.low, minlength=size) - np.bincount(self.high, minlength=size)
        return np.cumsum(change)[:-1]

    def _odd(self, stays: Numbers, clocks: Numbers, begin: Numbers) -> None:
        """The token of each of `clocks` ends a gap that began at `begin`."""
        np.subtract.at(self.weights, clocks, 1)
        self.odd_stays.append(stays)
        self.odd_seconds.append(self.ends[clocks] - begin)

    def _hold(self, chosen: Numbers) -> None:
        """Gaps over clocks that a decode was held in, and from a first token that came in a pause."""
        stays, clocks = self._held(chosen)
        np.subtract.at(self.weights, clocks, 1)
        joins = np.append((stays[1:] == stays[:-1]) & (clocks[1:] == clocks[:-1] + 1), False)
        is_start, is_end = ~np.append(False, joins[:-1])[: len(stays)], ~joins[: len(stays)]
        stays, start, end = stays[is_start], clocks[is_start], clocks[is_end] + 1
        before = np.where(start > self.low[stays], self.ends[start - 1], self.first[stays])
        goes_on = end < self.high[stays]
        self._odd(stays[goes_on], end[goes_on], before[goes_on])
        self.last[stays[~goes_on]] = before[~goes_on]
        is_late = self.is_off & (self.high > self.low)
        is_late[stays[start == self.low[stays]]] = False
        late = np.flatnonzero(is_late)
        self._odd(late, self.low[late], self.first[late])

    def _held(self, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """Stay and clock of every hold, sorted."""
        ticks, places = self.timeline.held
        at = np.searchsorted(chosen, places)
        is_ours = np.append(chosen, -1)[at] == places
        stays, clocks = at[is_ours], self.timeline.clock(ticks[is_ours])
        order = np.lexsort((clocks, stays))
        return stays[order], clocks[order]

    def _resume(self) -> None:
        """Gaps from the last token of a stay to the first of the next one of the same request."""
        order = np.argsort(self.id, kind="stable")  # stays are in order of admission
        before, after = order[:-1], order[1:]
        is_same = self.id[before] == self.id[after]
        before, after = before[is_same], after[is_same]
        self.odd_stays.append(after)
        self.odd_seconds.append(self.first[after] - self.last[before])

    def _greatest(self, seconds: Numbers, odd: Numbers) -> Numbers:
        """A gap over a hold is longer than the steps in it, so these do no harm."""
        low = self.low + self.is_off
        has_any = np.flatnonzero(low < self.high)
        greatest = np.full(self.num_requests, -np.inf)
        np.maximum.at(greatest, self.id[has_any], range_maxima(seconds, low[has_any], self.high[has_any]))
        np.maximum.at(greatest, self.id[np.concatenate(self.odd_stays)], odd)
        greatest[np.isinf(greatest)] = np.nan
        return greatest


def range_maxima(values: Numbers, begin: Numbers, end: Numbers) -> Numbers:
    """The greatest of `values[begin:end]`, for every pair; no span is empty.

    Each span is the union of two whose length is a power of 2; their maxima come level by level.
    Source: sparse table, Bender and Farach-Colton, "The LCA problem revisited", 2000.
    """
    level = np.frexp(np.maximum(end - begin, 1))[1] - 1
    found = np.empty(len(begin))
    maxima = values
    for size in range(int(level.max()) + 1 if len(level) else 0):
        at = level == size
        found[at] = np.maximum(maxima[begin[at]], maxima[end[at] - (1 << size)])
        maxima = np.maximum(maxima[: -(1 << size)], maxima[1 << size :])
    return found
