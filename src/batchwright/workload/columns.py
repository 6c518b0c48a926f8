"""What a trace says, as columns, before any limit on the output applies.

Arrivals are seconds from the first one, which is at 0, and never decrease.  Arrays are
read-only, so that workloads can share them.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Columns:
    """One entry per request.  Lengths in tokens.

    `hashes`: what the trace says of shared prefixes.  `notes`: what a reader of the trace
    decided and its user should be told.  `has_arrivals`: False for lengths alone, whose
    arrivals are all 0.
    """

    arrival: Floats
    prompt: Ints
    output: Ints
    max_tokens: Ints | None = None
    priority: Ints | None = None
    client: Ints | None = None
    hashes: Hashes | None = None
    notes: tuple[str, ...] = ()
    has_arrivals: bool = True

    def __post_init__(self) -> None:
        for array in self.arrays():
            array.setflags(write=False)

    def arrays(self) -> list[Floats | Ints]:
        """Every array that is there, hashes left out."""
        columns = (self.arrival, self.prompt, self.output, self.max_tokens, self.priority, self.client)
        return [column for column in columns if column is not None]

    def head(self, count: int) -> Columns:
        """The first `count` requests."""
        return Columns(
            arrival=self.arrival[:count],
            prompt=self.prompt[:count],
            output=self.output[:count],
            max_tokens=_head(self.max_tokens, count),
            priority=_head(self.priority, count),
            client=_head(self.client, count),
            hashes=None if self.hashes is None else self.hashes.head(count),
            notes=self.notes,
            has_arrivals=self.has_arrivals,
        )


def arrivals(values: npt.ArrayLike) -> Floats:
    """A copy of `values` (seconds) that starts at 0.  Raises InputError on what is no clock."""
    times: Floats = _numbers("arrival", values, "iuf").astype(np.float64)
    if len(times) == 0:
        raise InputError("a workload of 0 requests; give at least 1")
    _check("arrival", times, np.isfinite(times) & (times >= 0), "finite seconds of at least 0")
    times = times - times[0]
    _check("arrival", times, np.diff(times, prepend=0.0) >= 0, "at or after the one before; sort by arrival")
    _check("arrival", times, times <= LONGEST_SPAN, f"within {LONGEST_SPAN:.0f} s of the first")
    return times


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


def _head(column: Ints | None, count: int) -> Ints | None:
    return None if column is None else column[:count]
