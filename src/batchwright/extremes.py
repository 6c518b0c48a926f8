"""The least and the greatest context among the rows of a batch.

All rows grow by one token a step, so their order stays: one heap of `shift` (context less clock)
gives the least, one of `-shift` the greatest, however many steps pass.  A row that has left, or come
back with another shift, stays in the heaps until it reaches the top, or until they are cleared out.

Only batches whose cost model asks for these have them (`Batch.extremes`).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

from batchwright.request import DECODING, PADDED, Request
from batchwright.step import Step

FEW: Final = 64  # entries that need no clearing out

Entry = tuple[int, int, Request]  # shift or -shift, how many came before it, who


class Extremes:
    """Two lazy heaps of the decodes and padded rows of one batch."""

    __slots__ = ("_greatest", "_least", "_limit", "_number")

    def __init__(self) -> None:
        self._least: list[Entry] = []
        self._greatest: list[Entry] = []
        self._number = 0
        self._limit = FEW

    def join(self, r: Request) -> None:
        """`r` is on the decode clock, with the shift that it has now."""
        if len(self._least) >= self._limit:
            self._clear_out()
        self._number += 1
        heappush(self._least, (r.shift, self._number, r))
        heappush(self._greatest, (-r.shift, self._number, r))

    def measure(self, step: Step, clock: int) -> None:
        """Write both into `step`, whose rows are all of the batch; 0 if there are none."""
        step.least_context = 0
        step.greatest_context = 0
        if step.num_decodes + step.padded_rows > 0:
            step.least_context = clock + _top(self._least, 1)
            step.greatest_context = clock - _top(self._greatest, -1)

    def _clear_out(self) -> None:
        """Forget those that are rows no longer, and wait until as many have come again."""
        self._least = [entry for entry in self._least if _is_row(entry, 1)]
        self._greatest = [entry for entry in self._greatest if _is_row(entry, -1)]
        heapify(self._least)
        heapify(self._greatest)
        self._limit = max(FEW, 2 * len(self._least), 2 * len(self._greatest))


def _is_row(entry: Entry, sign: int) -> bool:
    r = entry[2]
    return (r.state == DECODING or r.state == PADDED) and sign * r.shift == entry[0]


def _top(heap: list[Entry], sign: int) -> int:
    """The first entry of a row; there is one."""
    while not _is_row(heap[0], sign):
        heappop(heap)
    return heap[0][0]
