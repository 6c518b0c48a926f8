"""Inter-token latency: the gaps between successive tokens of a request, without listing the tokens.

In two clocks in a row a decode gets two tokens, so the gap between the ends of both steps counts
once for every decode that had a token in each:

    weight[clock] = decodes of that clock - those whose token before came earlier

The rest are odd gaps, and are listed one by one: after a hold, after a pause in which the first
token came, and from the last token before a preemption to the first one after it.  A stay that came with
its KV has no first token of its own: the last one of the stay before stands for it.

Tokens that come in one step, drafts that were accepted, have gaps of 0 between them.
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


def gaps(timeline: Timeline, is_counted: Numbers, first_token: Numbers) -> Gaps:
    """The gaps of the requests that `is_counted` says, by id, on one server.

    `first_token`: seconds, by id; who had it on another server has a gap from there to here.
    """
    return _Gaps(timeline, is_counted, first_token).find()


def merged(parts: Sequence[Gaps]) -> Gaps:
    """Those of several servers."""
    if len(parts) == 1:
        return parts[0]
    return Gaps(
        seconds=np.concatenate([part.seconds for part in parts]),
        counts=np.concatenate([part.counts for part in parts]),
        greatest=np.fmax.reduce([part.greatest for part in parts]),
    )


class _Gaps:
    """The stays of one look, with the clocks low .. high - 1 of their decodes."""

    def __init__(self, timeline: Timeline, is_counted: Numbers, first_token: Numbers) -> None:
        self.timeline = timeline
        self.num_requests = len(is_counted)
        stays = timeline.admitted
        chosen = np.flatnonzero((_num_tokens(timeline) > 0) & is_counted[stays["id"]])
        self.id = stays["id"][chosen]
        _, places, drafts = timeline.accepted
        self.num_drafts = int(drafts[np.isin(places, chosen)].sum())
        self.first_token = first_token[self.id]
        self.low = timeline.clock(stays["since"][chosen])
        self.high = timeline.clock(stays["stopped"][chosen])
        first = stays["since"][chosen] - 1
        self.came = ~timeline.has_prompt[chosen]  # with its KV
        self.first = timeline.ends[first]  # seconds of the first token
        self.is_off = timeline.is_paused[timeline.stretch_of(first)]  # did it come in a pause?
        self.is_off |= self.came
        self.ends = timeline.clock_ends if len(timeline.clock_ends) else np.zeros(1)
        self.last = np.where(self.high > self.low, self.ends[self.high - 1], self.first)
        self.weights = self._regular()
        self.odd_stays: list[Numbers] = []
        self.odd_seconds: list[Numbers] = []
        holds = self._holds(chosen)
        self._end(*holds)
        self._bring()
        self._hold(*holds)
        self._resume()

    def find(self) -> Gaps:
        seconds = np.diff(self.ends, prepend=0.0)
        has_any = self.weights > 0
        odd = np.concatenate(self.odd_seconds)
        at_once = np.zeros(min(self.num_drafts, 1))
        return Gaps(
            seconds=np.concatenate((seconds[has_any], odd, at_once)),
            counts=np.concatenate(
                (self.weights[has_any], np.ones(len(odd), np.int64), np.full(len(at_once), self.num_drafts))
            ),
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

    def _holds(self, chosen: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Clocks start .. end - 1 in which a decode is held: stay, start, end."""
        stays, clocks = self._held(chosen)
        np.subtract.at(self.weights, clocks, 1)
        joins = np.append((stays[1:] == stays[:-1]) & (clocks[1:] == clocks[:-1] + 1), False)
        is_start, is_end = ~np.append(False, joins[:-1])[: len(stays)], ~joins[: len(stays)]
        return stays[is_start], clocks[is_start], clocks[is_end] + 1

    def _before(self, stays: Numbers, start: Numbers) -> Numbers:
        """Seconds of the last token before a hold."""
        before: Numbers = np.where(start > self.low[stays], self.ends[start - 1], self.first[stays])
        return before

    def _end(self, stays: Numbers, start: Numbers, end: Numbers) -> None:
        """The last token of a stay that ends in a hold."""
        at_end = end == self.high[stays]
        self.last[stays[at_end]] = self._before(stays[at_end], start[at_end])

    def _bring(self) -> None:
        """Who came with its KV had its last token in the stay before, or its first one on another server."""
        self.first[self.came] = self.first_token[self.came]
        before, after = self._pairs()
        is_ours = self.came[after]
        self.first[after[is_ours]] = self.last[before[is_ours]]

    def _hold(self, stays: Numbers, start: Numbers, end: Numbers) -> None:
        """Gaps over holds, and from a first token that came in a pause or a stay before."""
        goes_on = end < self.high[stays]
        before = self._before(stays[goes_on], start[goes_on])
        self._odd(stays[goes_on], end[goes_on], before)
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

    def _pairs(self) -> tuple[Numbers, Numbers]:
        """Each stay of a request and the next one."""
        order = np.argsort(self.id, kind="stable")  # stays are in order of admission
        before, after = order[:-1], order[1:]
        is_same = self.id[before] == self.id[after]
        return before[is_same], after[is_same]

    def _resume(self) -> None:
        """Gaps from the last token of a stay to the first of the next one of the same request."""
        before, after = self._pairs()
        before, after = before[~self.came[after]], after[~self.came[after]]
        is_later = ~self.came & (self.first > self.first_token)  # computed again on another server
        is_later[self._pairs()[1]] = False
        self.odd_stays.append(np.flatnonzero(is_later))
        self.odd_seconds.append((self.first - self.first_token)[is_later])
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


def _num_tokens(timeline: Timeline) -> Numbers:
    """Tokens of each stay."""
    stays = timeline.admitted
    clocks = timeline.clock(stays["stopped"]) - timeline.clock(stays["since"])
    holds = np.bincount(timeline.held[1], minlength=len(clocks))
    return np.where(stays["since"] >= 0, clocks - holds + timeline.has_prompt, 0)


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
