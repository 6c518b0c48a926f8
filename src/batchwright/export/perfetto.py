"""A run as a trace of events, for ui.perfetto.dev and chrome://tracing.

    process 1, "POLICY: slots"      a track per slot: the request that has it, and inside it what
                                    that does: prefill, decode, held, ended, padding
    process 2, "POLICY: requests"   a track per request: wait, and the same
    counters of process 1           running, waiting, and free blocks where memory is modelled

Times are whole microseconds from the first arrival.  Slots are numbered as they are taken, the
lowest free one first; an engine may number them otherwise.  Counters count all requests, drawn
or not, in the time of those that are drawn.

Source: Trace Event Format (Google): complete events X nest by their times, counters are C,
names of processes and threads are M.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any, Final

import numpy as np

from batchwright.errors import InputError
from batchwright.export.exported import Exported
from batchwright.history import Stay, stays
from batchwright.limits import UNLIMITED
from batchwright.log import DROPPED
from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.run.counts import seated, waiting
from batchwright.run.phases import IS_SWAPPED, NAMES, WAITS, Course, courses

Event = dict[str, Any]
SLOTS: Final = 1
REQUESTS: Final = 2
MICROSECONDS: Final = 1e6
MOST: Final = 500  # requests that are drawn unless more are asked for


def perfetto_trace(
    run: Run, *, requests: int = MOST, since: float = 0.0, until: float = inf, ids: list[int] | None = None
) -> Exported:
    """The first `requests` that are there between `since` and `until` (seconds), each from start to end.

    `ids`: draw these instead.  Raises InputError if nothing is left to draw.
    """
    chosen = _chosen(run, requests, since, until) if ids is None else ids
    found = courses(run, chosen)
    if not found:
        raise InputError(f"{run.name}: no request is there from {since} to {until} s; widen the time window")
    picture = _Picture(run, found)
    content = {
        "traceEvents": list(picture.events()),
        "displayTimeUnit": "ms",
        "otherData": {"policy": run.name, "workload": run.load.name, "drawn": _drawn(run, found)},
    }
    return Exported(text=json.dumps(content, separators=(",", ":")) + "\n", notes=(_drawn(run, found),))


def _chosen(run: Run, requests: int, since: float, until: float) -> list[int]:
    if requests < 1:
        raise InputError(f"{requests} requests are to be drawn; give at least 1")
    columns = run.requests()
    ends = np.nan_to_num(columns["finished_s"], nan=inf)
    is_there = (columns["arrival_s"] <= until) & (ends >= since)
    is_there[run.rejected] = False
    chosen = np.flatnonzero(is_there)
    order = np.argsort(run.arrival[chosen], kind="stable")[:requests]
    found: list[int] = np.sort(chosen[order]).tolist()
    return found


def _drawn(run: Run, found: dict[int, Course]) -> str:
    if len(found) == len(run.load):
        return f"all {len(found)} requests are drawn"
    return f"{len(found)} of {len(run.load)} requests are drawn, {min(found)} to {max(found)}"


class _Picture:
    """The events of the requests of `found`."""

    def __init__(self, run: Run, found: dict[int, Course]) -> None:
        self.run = run
        self.found = found
        self.starts, self.ends = run.timeline.starts, run.timeline.ends
        self.stays = [stay for stay in stays(run.log) if stay.seat > 0 and stay.how != DROPPED]
        self.stays.sort(key=lambda stay: stay.seat)
        self.columns = run.requests()

    def events(self) -> Iterator[Event]:
        """All of them: names first, then requests, then counters in order of time."""
        slots = self._slots()
        yield from self._names(
            sorted({slots[s.seat] for course in self.found.values() for s in course.stays})
        )
        for course in self.found.values():
            yield from self._request(course)
            for stay in course.stays:
                yield from self._stay(course, stay, slots[stay.seat])
        yield from self._counters()

    def _names(self, slots: list[int]) -> Iterator[Event]:
        yield _name("process_name", SLOTS, 0, f"{self.run.name}: slots")
        yield _name("process_name", REQUESTS, 0, f"{self.run.name}: requests")
        for slot in slots:
            yield _name("thread_name", SLOTS, slot, f"slot {slot}")
        for id in self.found:
            yield _name("thread_name", REQUESTS, id + 1, f"request {id}")

    def _request(self, course: Course) -> Iterator[Event]:
        """The phases on the request's own track; the first wait begins at its arrival."""
        arrival = _microseconds(self.columns["arrival_s"][course.id])
        admitted = self._start(course.stays[0].admitted if course.stays else course.end)
        if admitted > arrival:
            yield _phase(REQUESTS, course.id + 1, WAITS, arrival, admitted)
        first = course.stays[0].admitted if course.stays else course.end
        yield from self._phases(REQUESTS, course.id + 1, course, first, course.end)

    def _stay(self, course: Course, stay: Stay, slot: int) -> Iterator[Event]:
        """The request in its slot, and the phases inside."""
        if stay.until == stay.admitted:
            return
        begin, end = self._start(stay.admitted), self._end(stay.until)
        about = {
            "prompt_tokens": int(self.columns["prompt_tokens"][course.id]),
            "output_tokens": int(self.columns["output_tokens"][course.id]),
            "cached_tokens": stay.cached,
        }
        yield _event(SLOTS, slot, f"request {course.id}", begin, end) | {"args": about}
        yield from self._phases(SLOTS, slot, course, stay.admitted, stay.until)

    def _phases(self, process: int, track: int, course: Course, first: int, end: int) -> Iterator[Event]:
        for code, begin, after in course.spans(first, end):
            last = self._start(after) if code in (WAITS, IS_SWAPPED) else self._end(after)
            yield _phase(process, track, code, self._start(begin), last)

    def _start(self, tick: int) -> int:
        """When step `tick` begins; after the last one, when that ends."""
        return _microseconds(self.starts[tick]) if tick < len(self.starts) else self._end(tick)

    def _end(self, tick: int) -> int:
        """When the step before `tick` ends."""
        return _microseconds(self.ends[tick - 1]) if tick > 0 else 0

    def _slots(self) -> dict[int, int]:
        """The slot, from 1, of every seat: the lowest that is free at its admission."""
        free: list[int] = []
        busy: list[tuple[int, int]] = []  # until, slot
        slots: dict[int, int] = {}
        for stay in self.stays:
            while busy and busy[0][0] <= stay.admitted:
                heappush(free, heappop(busy)[1])
            slot = heappop(free) if free else len(busy) + 1
            heappush(busy, (stay.until, slot))
            slots[stay.seat] = slot
        return slots

    def _counters(self) -> Iterator[Event]:
        begin = min(self.columns["arrival_s"][id] for id in self.found)
        end = self.ends[max(course.end for course in self.found.values()) - 1]
        for name, (seconds, values) in self._changes().items():
            is_inside = (seconds >= begin) & (seconds <= end)
            for time, value in zip(seconds[is_inside].tolist(), values[is_inside].tolist(), strict=True):
                event = {"name": name, "ph": "C", "pid": SLOTS, "tid": 0, "ts": _microseconds(time)}
                yield event | {"args": {name: value}}

    def _changes(self) -> dict[str, tuple[Numbers, Numbers]]:
        """Seconds and values of each counter."""
        timeline = self.run.timeline
        counts = {"running": seated([timeline]), "waiting": waiting([timeline], self.run.arrival)}
        found = {name: (count.times, count.values) for name, count in counts.items()}
        if self.run.limits.blocks != UNLIMITED:
            free = self.run.limits.blocks + np.cumsum(timeline.column("freed") - timeline.column("taken"))
            found["free blocks"] = timeline.times, free
        return found


def _microseconds(seconds: float) -> int:
    return round(float(seconds) * MICROSECONDS)


def _phase(process: int, track: int, code: str, begin: int, end: int) -> Event:
    return _event(process, track, NAMES[code], begin, end)


def _event(process: int, track: int, name: str, begin: int, end: int) -> Event:
    return {"name": name, "ph": "X", "pid": process, "tid": track, "ts": begin, "dur": end - begin}


def _name(kind: str, process: int, track: int, text: str) -> Event:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": text}}
