"""Parsers: the cells of one column to an array, as strict as a reader of numbers can be.

The whole column is converted at once.  Only if that fails are its cells looked at one by one,
to name the first bad one.  Python's own spellings (1_000, nan, digits of other scripts) are
not numbers here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload.columns import GREATEST

_T = TypeVar("_T")
Parser = Callable[[Sequence[str]], npt.NDArray[Any]]

_WHOLE_CHARS: Final = re.compile(r"[0-9+\- \t]*")
_WHOLE: Final = re.compile(r"[ \t]*[+-]?[0-9]+[ \t]*")
_NUMBER_CHARS: Final = re.compile(r"[0-9eE.+\- \t]*")
_LONGEST_SHOWN: Final = 40  # characters of a cell in a message
_MOST_LISTED: Final = 20  # names in a message
_MANY_DIGITS: Final = 20  # beyond any 64-bit number
_GREATEST_COUNT: Final = 1 << 63


class BadCell(Exception):
    """The cell at `index` of the column is wrong; `reason` says how, and what to do."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index = index
        self.reason = reason


@dataclass(frozen=True)
class Whole:
    """Whole numbers from `lowest` to `greatest`."""

    lowest: int
    greatest: int

    def __call__(self, cells: Sequence[str]) -> npt.NDArray[np.int64]:
        values = _convert(cells, _WHOLE_CHARS, int)
        if values is None or min(values) < self.lowest or max(values) > self.greatest:
            raise self._first_bad(cells)
        return np.array(values, np.int64)

    def _first_bad(self, cells: Sequence[str]) -> BadCell:
        for index, cell in enumerate(cells):
            if not _WHOLE.fullmatch(cell):
                return BadCell(index, f"{shown(cell)}, which is not a whole number; correct it")
            if len(cell.strip()) > _MANY_DIGITS or not self.lowest <= int(cell) <= self.greatest:
                limits = f"outside {self.lowest} to {self.greatest}"
                return BadCell(index, f"{shown(cell)}, {limits}; correct or remove the row")
        raise AssertionError("a column was refused, but each of its cells is good")


LENGTHS: Final = Whole(1, LONGEST)
LENGTHS_OR_NONE: Final = Whole(0, LONGEST)
PRIORITIES: Final = Whole(-GREATEST, GREATEST)
CLIENTS: Final = Whole(0, GREATEST)


def times(cells: Sequence[str]) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
    """Numbers of at least 0, in whatever unit.  Whole ones stay exact: nanoseconds since 1970 do.

    Raises BadCell.
    """
    counts = _convert(cells, _WHOLE_CHARS, int)
    if counts is not None and min(counts) >= 0 and max(counts) < _GREATEST_COUNT:
        return np.array(counts, np.int64)
    values = _convert(cells, _NUMBER_CHARS, float)
    if values is None or min(values) < 0 or not all(map(isfinite, values)):
        raise _first_bad_time(cells)
    return np.array(values, np.float64)


def _first_bad_time(cells: Sequence[str]) -> BadCell:
    for index, cell in enumerate(cells):
        values = _convert([cell], _NUMBER_CHARS, float)
        if values is None:
            return BadCell(index, f"{shown(cell)}, which is not a number; correct it")
        if values[0] < 0 or not isfinite(values[0]):
            return BadCell(index, f"{shown(cell)}, which is no time; give a finite number of at least 0")
    raise AssertionError("a column was refused, but each of its cells is good")


def row_error(name: str, row: int, reason: str) -> InputError:
    """The error for one row of the file `name`."""
    return InputError(f"{name}: row {row}: {reason}")


def shown(cell: str) -> str:
    """A cell as messages quote it."""
    return repr(shortened(cell))


def listed(names: Iterable[str]) -> list[str]:
    """Names as a message of one line can list them, whatever a file calls its columns."""
    titles = [shortened(" ".join(name.split())) for name in names]
    rest = len(titles) - _MOST_LISTED
    return titles if rest <= 0 else [*titles[:_MOST_LISTED], f"and {rest} more"]


def counted(count: int, what: str) -> str:
    """`1 request`, `2 requests`."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def shortened(text: str) -> str:
    """At most as much of a long text as a message of one line can hold."""
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "..."


def _convert(cells: Sequence[str], chars: re.Pattern[str], kind: Callable[[str], _T]) -> list[_T] | None:
    if chars.fullmatch("".join(cells)) is None:
        return None
    try:
        return list(map(kind, cells))
    except ValueError:
        return None
