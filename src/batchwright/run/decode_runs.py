"""Runs of clocks in which a stay decodes without a hold: there its context less the clock is constant."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from batchwright.metrics import Numbers

if TYPE_CHECKING:
    from batchwright.run.timeline import Timeline


def prompt_and_more(timeline: Timeline) -> Numbers:
    """Tokens that each stay in order of admission had in the cache before it first decoded."""
    stays = timeline.admitted
    clocks = timeline.clock(stays["stopped"]) - timeline.clock(stays["since"])
    filled: Numbers = stays["context"] - clocks + np.bincount(timeline.held[1], minlength=len(clocks))
    np.subtract.at(filled, timeline.accepted[1], timeline.accepted[2])
    return filled


def runs(timeline: Timeline, is_chosen: Numbers, ends: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Clocks low .. high - 1 of every run of the chosen stays, and the clock less the context in it.

    `is_chosen`, and `ends`, the tick after the last run: by place in order of admission.
    """
    stays = timeline.admitted
    chosen = np.flatnonzero(is_chosen)
    ticks, places = timeline.held
    is_ours = is_chosen[places]
    clocks, places = timeline.clock(ticks[is_ours]), places[is_ours]
    owner = np.concatenate((chosen, places))  # of each run: the first one of a stay, and one after each hold
    low = np.concatenate((timeline.clock(stays["since"][chosen]), clocks + 1))
    order = np.lexsort((low, owner))
    owner, low = owner[order], low[order]
    is_last = np.append(owner[1:] != owner[:-1], True)[: len(owner)]
    high = np.where(is_last, timeline.clock(ends[owner]), np.roll(low, -1) - 1)
    first = np.searchsorted(owner, owner)
    holds = np.arange(len(owner)) - first
    return low, high, low[first] + holds - prompt_and_more(timeline)[owner]


def extremes(timeline: Timeline) -> tuple[Numbers, Numbers]:
    """Least and greatest context of the rows in the first step of every stretch; 0 where there are none.

    Of stretches of one step, in which somebody may be held, they are not those of that step.
    """
    stays = timeline.admitted
    ends = stays["until" if timeline.pads else "stopped"]  # padded rows go on growing
    low, high, phase = runs(timeline, stays["since"] >= 0, ends)
    order = np.argsort(low, kind="stable")
    clocks = timeline.clock(timeline.first)
    low, high, phase = low[order], high[order], phase[order]
    least, most = _least(low, high, -phase, clocks), _least(low, high, phase, clocks)
    has_rows = timeline.decodes + timeline.padded > 0
    return np.where(has_rows, clocks + least, 0), np.where(has_rows, clocks - most, 0)


def _least(low: Numbers, high: Numbers, values: Numbers, clocks: Numbers) -> Numbers:
    """The least value of the runs that hold each clock; 0 where there are none.  Runs by `low`."""
    begins, ends, sizes = low.tolist(), high.tolist(), values.tolist()
    heap: list[tuple[int, int]] = []
    found, at = np.zeros(len(clocks), np.int64), 0
    for place, clock in enumerate(clocks.tolist()):
        while at < len(begins) and begins[at] <= clock:
            heappush(heap, (sizes[at], ends[at]))
            at += 1
        while heap and heap[0][1] <= clock:
            heappop(heap)
        if heap:
            found[place] = heap[0][0]
    return found
