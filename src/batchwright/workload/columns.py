"""What a trace says, as columns, before any limit on the output applies.

Arrivals are seconds from the first one, which is at 0, and never decrease.  A request that
follows another arrives `think` seconds after the end of that one: its arrival is nan, for nobody
knows it before a run.  Arrays are read-only, so that workloads can share them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload.prefix import Hashes

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LONGEST_SPAN: Final = 10 * 365 * 86400.0  # seconds; ten years, so an arrival beyond it is an error
GREATEST: Final = (1 << 31) - 1  # of a priority or the number of a client
LONGEST_ROW: Final = (1 << 38) - 1  # the greatest id of a request


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """One entry per request.  Lengths in tokens.

    `hashes`: what the trace says of shared prefixes.  `after`: the row of the request whose end
    this one follows, -1 for none; always an earlier row.  `think`: seconds between both.
    `has_arrivals`: False if the trace has only lengths, and all requests come at once.
    `notes`: what a reader of the trace decided and its user should be told.
    """

    arrival: Floats
    prompt: Ints
    output: Ints
    max_tokens: Ints | None = None
    priority: Ints | None = None
    client: Ints | None = None
    hashes: Hashes | None = None
    after: Ints | None = None
    think: Floats | None = None
    has_arrivals: bool = True
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for array in self.arrays():
            array.setflags(write=False)

    def arrays(self) -> list[Floats | Ints]:
        """Every array that is there, hashes left out."""
        columns = (self.arrival, self.prompt, self.output, self.max_tokens, self.priority, self.client)
        return [column for column in (*columns, self.after, self.think) if column is not None]

    def head(self, count: int) -> Columns:
        """The first `count` requests."""
        hashes = None if self.hashes is None else self.hashes.head(count)
        return self._picked(slice(count), hashes, _picked(self.after, slice(count)))

    def take(self, rows: Ints) -> Columns:
        """The requests at `rows`, in this order, with the arrivals that they have.

        Where some follow others, each row comes once, and after the one that it follows.
        """
        hashes = None if self.hashes is None else self.hashes.take(rows)
        if self.after is None:
            return self._picked(rows, hashes, None)
        place = np.full(len(self.arrival) + 1, -1, np.int64)  # its last entry stands for none
        place[rows] = np.arange(len(rows))
        return self._picked(rows, hashes, place[self.after[rows]])

    def noted(self, *notes: str) -> Columns:
        """The same with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def _picked(self, which: slice | Ints, hashes: Hashes | None, after: Ints | None) -> Columns:
        return replace(
            self,
            arrival=self.arrival[which],
            prompt=self.prompt[which],
            output=self.output[which],
            max_tokens=_picked(self.max_tokens, which),
            priority=_picked(self.priority, which),
            client=_picked(self.client, which),
            hashes=hashes,
            after=after,
            think=None if self.think is None else self.think[which],
        )


def arrivals(values: npt.ArrayLike, after: Ints | None = None) -> Floats:
    """A copy of `values` (seconds) that starts at 0; nan, as given, for those `after` another.

    Raises InputError on what is no clock.
    """
    times: Floats = _numbers("arrival", values, "iuf").astype(np.float64)
    if len(times) == 0:
        raise InputError("a workload of 0 requests; give at least 1")
    follows = np.zeros(len(times), np.bool_) if after is None else after >= 0
    _check("arrival", times, np.isnan(times) | ~follows, "nan, for it follows the end of another")
    last = np.maximum.accumulate(np.where(follows, 0, np.arange(len(times))))
    times = times[last]  # a follower passes the checks with the time of the one before
    _check("arrival", times, np.isfinite(times) & (times >= 0), "finite seconds of at least 0")
    times = times - times[0]
    _check("arrival", times, np.diff(times, prepend=0.0) >= 0, "at or after the one before; sort by arrival")
    _check("arrival", times, times <= LONGEST_SPAN, f"within {LONGEST_SPAN:.0f} s of the first")
    times[follows] = np.nan
    return times


def followed(values: npt.ArrayLike, count: int) -> Ints:
    """A copy of `values`: for each of `count` requests an earlier row, or -1.  Raises InputError."""
    rows = whole("after", values, count, -1, LONGEST_ROW)
    _check("after", rows, rows < np.arange(count), "an earlier request, or -1 for none")
    return rows


def pauses(values: npt.ArrayLike, count: int) -> Floats:
    """A copy of `values`, seconds of `count` requests.  Raises InputError."""
    seconds: Floats = _numbers("think", values, "iuf").astype(np.float64)
    if len(seconds) != count:
        raise InputError(f"{len(seconds)} values of think for {count} requests; give one per request")
    _check("think", seconds, (seconds >= 0) & (seconds <= LONGEST_SPAN), f"0 to {LONGEST_SPAN:.0f} s")
    return seconds


def lengths(name: str, values: npt.ArrayLike, count: int) -> Ints:
    """A copy of `values`, tokens of `count` requests."""
    return whole(name, values, count, 1, LONGEST)


def whole(name: str, values: npt.ArrayLike, count: int, lowest: int, greatest: int) -> Ints:
    """A copy of `values`, one whole number per request.  Raises InputError on any other."""
    numbers = _numbers(name, values, "iu")
    if len(numbers) != count:
        raise InputError(f"{len(numbers)} values of {name} for {count} arrivals; give one per request")
    _check(name, numbers, (numbers >= lowest) & (numbers <= greatest), f"{lowest} to {greatest}")
    return numbers.astype(np.int64)


def _numbers(name: str, values: npt.ArrayLike, kinds: str) -> npt.NDArray[Any]:
    try:
        numbers = np.asarray(values)
    except (ValueError, TypeError):  # rows of unequal length
        numbers = np.empty((0, 0))
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in kinds):
        wanted = "whole numbers" if kinds == "iu" else "numbers"
        raise InputError(f"{name} is no flat array of {wanted} (numpy makes it {numbers.dtype}); give one")
    return numbers


def _check(name: str, values: npt.NDArray[Any], is_good: npt.NDArray[np.bool_], wanted: str) -> None:
    if is_good.all():
        return
    first = int(np.argmin(is_good))
    raise InputError(f"request {first}: {name} is {values[first]}, but must be {wanted}")


def _picked(column: Ints | None, which: slice | Ints) -> Ints | None:
    return None if column is None else column[which]
