"""What a request does in every step, from its arrival to its end.

.   waits: for a seat, or for one again after it was preempted
s   swapped: the same, while its KV is in host memory or on its way
P   prefills a chunk of its prompt (of a preempted one, what it recomputes, too)
-   decodes one token
h   held: has a seat and misses the step (no budget, or decodes do not run)
e   ended: has all its tokens and keeps its seat, but is not computed
x   padding: has all its tokens and is computed with the batch until that ends
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.history import Stay, stays
from batchwright.log import DROPPED, SWAPPED
from batchwright.metrics import Numbers
from batchwright.run import Run

WAITS: Final = "."
IS_SWAPPED: Final = "s"
PREFILLS: Final = "P"
DECODES: Final = "-"
IS_HELD: Final = "h"
HAS_ENDED: Final = "e"
IS_PADDING: Final = "x"
NAMES: Final = {
    WAITS: "wait",
    IS_SWAPPED: "swapped",
    PREFILLS: "prefill",
    DECODES: "decode",
    IS_HELD: "held",
    HAS_ENDED: "ended",
    IS_PADDING: "padding",
}


@dataclass(frozen=True, kw_only=True)
class Course:
    """One request: `codes` has a character for each step from step `first` on.

    `stays`: its stays in the batch, in order.  A request that was rejected has no course.
    """

    id: int
    first: int
    codes: npt.NDArray[np.uint8]
    stays: tuple[Stay, ...]

    @property
    def end(self) -> int:
        """The step after its last one."""
        return self.first + len(self.codes)

    def text(self, first: int, end: int) -> str:
        """Its characters in the steps `first` .. `end` - 1; blank where it is not there."""
        before = max(min(self.first, end) - first, 0)
        inside = self.codes[max(first - self.first, 0) : max(end - self.first, 0)].tobytes().decode("ascii")
        return (" " * before + inside).ljust(end - first)

    def spans(self, first: int, end: int) -> Iterator[tuple[str, int, int]]:
        """The phases in the steps `first` .. `end` - 1: character, first step, and the step after."""
        codes = self.codes[first - self.first : end - self.first]
        edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
        for begin, after in pairwise(edges):
            if after > begin:
                yield chr(codes[begin]), first + begin, first + after


def courses(run: Run, ids: Sequence[int]) -> dict[int, Course]:
    """The courses of the requests `ids`, by id; those that were rejected have none.

    Raises InputError on an id that the workload does not have.
    """
    for id in ids:
        if not 0 <= id < len(run.load):
            raise InputError(f"request {id} is not in {run.load.name}; give ids of 0 to {len(run.load) - 1}")
    wanted = set(ids)
    rows: dict[int, list[Stay]] = {id: [] for id in ids}
    for stay in stays(run.log):
        if stay.id in wanted:
            rows[stay.id].append(stay)
    marks = _marks(run)
    return {id: _course(id, found, marks, run.pads) for id, found in rows.items() if found}


@dataclass(frozen=True, kw_only=True)
class _Marks:
    """Ticks: of chunks and of misses, each by seat, and of the steps in which no decode ran."""

    chunks: dict[int, list[int]]
    held: dict[int, list[int]]
    paused: Numbers


def _marks(run: Run) -> _Marks:
    chunks = run.log.column("chunks")
    held = run.log.column("held")
    return _Marks(
        chunks=_by_seat(chunks[::3].tolist(), chunks[1::3].tolist()),
        held=_by_seat(held[::2].tolist(), held[1::2].tolist()),
        paused=np.frombuffer(run.log.column("paused"), np.int64),
    )


def _by_seat(ticks: list[int], seats: list[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for tick, seat in zip(ticks, seats, strict=True):
        found.setdefault(seat, []).append(tick)
    return found


def _course(id: int, rows: list[Stay], marks: _Marks, pads: bool) -> Course:
    seated = sorted((row for row in rows if row.seat > 0 and row.how != DROPPED), key=lambda row: row.seat)
    first = rows[0].queued
    codes = np.full(max(row.until for row in rows) - first, ord(WAITS), np.uint8)
    for stay in seated:
        codes[stay.until - first :] = ord(IS_SWAPPED if stay.how == SWAPPED else WAITS)
        codes[stay.admitted - first : stay.until - first] = _codes(stay, marks, pads)
    return Course(id=id, first=first, codes=codes, stays=tuple(seated))


def _codes(stay: Stay, marks: _Marks, pads: bool) -> npt.NDArray[np.uint8]:
    """The characters of one stay, from its admission on."""
    codes = np.full(stay.until - stay.admitted, ord(IS_HELD), np.uint8)
    codes[np.array(marks.chunks.get(stay.seat, []), np.int64) - stay.admitted] = ord(PREFILLS)
    if stay.since < 0:
        return codes
    since, stopped = stay.since - stay.admitted, stay.stopped - stay.admitted
    if since > 0:  # else it came with its KV
        codes[since - 1] = ord(PREFILLS)
    codes[since:stopped] = ord(DECODES)
    misses = np.concatenate((np.array(marks.held.get(stay.seat, []), np.int64), marks.paused)) - stay.admitted
    codes[misses[(misses >= since) & (misses < stopped)]] = ord(IS_HELD)
    codes[stopped:] = ord(IS_PADDING if pads else HAS_ENDED)
    return codes
