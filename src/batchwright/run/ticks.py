"""When every token came, as arrays; nothing is expanded into objects.

A stay brings its first token with step `since` - 1, unless it came with its KV, and one more with each
step that it decodes in, so the tokens of an undisturbed stay are one slice of the ends of the steps.
Drafts that are accepted come with the token of their step.
"""

from __future__ import annotations

import numpy as np

from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.run.timeline import Timeline


def token_times(run: Run) -> list[Numbers]:
    """Per request, in order of arrival, the seconds at which its tokens were made.

    A request that was rejected or cancelled has none, or those that it got.  A client sees them
    at these times only where the policy streams (`run.is_streamed`), else when the batch ends.
    """
    pieces: list[list[Numbers]] = [[] for _ in range(len(run.load))]
    for part in run.parts:
        ids = part.timeline.admitted["id"].tolist()
        for id, times in zip(ids, _stay_times(part.timeline), strict=True):
            if len(times):
                pieces[id].append(times)
    nothing = np.empty(0)
    return [_joined(found) if found else nothing for found in pieces]


def _joined(pieces: list[Numbers]) -> Numbers:
    """In order of time: who was handed over may have begun on a server with a higher number."""
    return pieces[0] if len(pieces) == 1 else np.concatenate(sorted(pieces, key=_begin))


def _begin(piece: Numbers) -> float:
    return float(piece[0])


def _stay_times(timeline: Timeline) -> list[Numbers]:
    """Of every stay that had a seat, in order of admission."""
    stays, ends = timeline.admitted, timeline.ends
    is_steady = timeline.clock(stays["stopped"]) - timeline.clock(stays["since"]) == (
        stays["stopped"] - stays["since"]
    )
    is_steady[timeline.held[1]] = False
    drafts = _drafts(timeline)
    first = stays["since"] - timeline.has_prompt  # the tick of the first token
    rows = zip(first.tolist(), stays["since"].tolist(), stays["stopped"].tolist(), strict=True)
    missed = _missed(timeline)
    found = []
    for place, (begin, since, stopped) in enumerate(rows):
        if since < 0:
            found.append(ends[:0])
        elif is_steady[place]:
            found.append(ends[begin:stopped])
        else:
            found.append(_disturbed(timeline, begin, since, stopped, missed.get(place, [])))
        if place in drafts:
            found[-1] = np.sort(np.concatenate((found[-1], np.repeat(*drafts[place]))))
    return found


def _drafts(timeline: Timeline) -> dict[int, tuple[Numbers, Numbers]]:
    """The ends of the steps in which drafts were accepted, and how many, by place of the stay."""
    ticks, places, drafts = timeline.accepted
    order = np.argsort(places, kind="stable")
    owners, first = np.unique(places[order], return_index=True)
    times, counts = (np.split(column[order], first[1:]) for column in (timeline.ends[ticks], drafts))
    return dict(zip(owners.tolist(), zip(times, counts, strict=True), strict=False))


def _missed(timeline: Timeline) -> dict[int, list[int]]:
    """Ticks that decodes were held in, by place of the stay."""
    found: dict[int, list[int]] = {}
    for tick, place in zip(*(column.tolist() for column in timeline.held), strict=True):
        found.setdefault(place, []).append(tick)
    return found


def _disturbed(timeline: Timeline, begin: int, since: int, stopped: int, missed: list[int]) -> Numbers:
    """The tokens of a stay that missed steps: by `missed`, or because no decode ran."""
    ticks = np.arange(since, stopped)
    ticks = np.setdiff1d(ticks, np.concatenate((missed, timeline.column("paused"))))
    times: Numbers = timeline.ends[np.concatenate((np.arange(begin, since), ticks)).astype(np.int64)]
    return times
