"""A table of requests: a header and rows, whatever kind of file they stand in.

Rows are read in pieces, so that a million of them stay small, and cells are text: a number in
a file of another kind is written as text first, so that one set of parsers checks them all.
A row is named as its reader counts it: by line where the file has lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError, nearest
from batchwright.workload.cells import BadCell, Parser, listed, row_error, shown
from batchwright.workload.columns import LONGEST_SPAN, Floats

PIECE: Final = 16384  # rows that are text at once
_Array = npt.NDArray[Any]


class Piece(NamedTuple):
    """`rows`: where they stand in the file.  `columns`: the cells of each column that was asked for."""

    rows: Sequence[int]
    columns: Sequence[Sequence[str]]


@dataclass(frozen=True, eq=False, kw_only=True)
class Table:
    """`pieces(titles)`: these columns of the rows below the header, afresh.  `first`: the first row.

    `header_row`: None where the header is no row of the file.  `notes`: on how the rows were read.
    """

    name: str
    header: list[str]
    header_row: int | None
    first: dict[str, str]
    pieces: Callable[[Sequence[str]], Iterator[Piece]]
    notes: tuple[str, ...] = ()

    def read(self, parsers: Mapping[str, Parser]) -> dict[str, _Array]:
        """One array for each column that has a parser.  Raises InputError on the first bad row."""
        parts: dict[str, list[_Array]] = {title: [] for title in parsers}
        for rows, columns in self.pieces(list(parsers)):
            for (title, parse), cells in zip(parsers.items(), columns, strict=True):
                parts[title].append(self._parse(title, parse, cells, rows))
        return {title: np.concatenate(arrays) for title, arrays in parts.items()}

    def seconds(self, title: str, times: _Array, per_second: int) -> Floats:
        """`times` of a column in its own unit, as seconds from the first.

        Raises InputError where time runs backwards, or further than ten years.
        """
        arrival: Floats = (times - times[0]) / per_second
        wrong = (np.diff(arrival, prepend=0.0) < 0) | (arrival > LONGEST_SPAN)
        if wrong.any():
            index = int(np.argmax(wrong))
            raise self._wrong_time(title, index, arrival[index] > LONGEST_SPAN)
        return arrival

    def check_titles(self, titles: Iterable[str], kind: str) -> None:
        """Raises InputError if the header lacks one of `titles`, which `kind` ("an Azure trace") has."""
        for title in titles:
            if title not in self.header:
                reason = f"no column {title!r}, which {kind} has{nearest(title, listed(self.header))}"
                raise self.fail(self.header_row, reason)

    def all_notes(self, used: Mapping[str, object]) -> list[str]:
        """`notes`, and one that names the columns that nobody reads, if not all are used."""
        ignored = [title for title in self.header if title not in used]
        return [*self.notes, *([f"columns ignored: {', '.join(listed(ignored))}"] if ignored else [])]

    def fail(self, row: int | None, reason: str) -> InputError:
        """The error for one row of the file, or for all of it."""
        return InputError(f"{self.name}: {reason}") if row is None else row_error(self.name, row, reason)

    def _wrong_time(self, title: str, index: int, is_far: bool) -> InputError:
        """The row at `index` is never the first, whose time is 0."""
        cells = chain.from_iterable(zip(rows, cells, strict=True) for rows, (cells,) in self.pieces([title]))
        (before, earlier), (row, cell) = islice(cells, index - 1, index + 1)
        value, last = shown(cell), shown(earlier)
        if is_far:
            limit = f"{LONGEST_SPAN:.0f} s"
            return self.fail(row, f"{title} is {value}, over {limit} after the first; correct it or its unit")
        return self.fail(row, f"{title} is {value}, before {last} in row {before}; sort the rows by time")

    def _parse(self, title: str, parse: Parser, cells: Sequence[str], rows: Sequence[int]) -> _Array:
        try:
            return parse(cells)
        except BadCell as bad:
            raise self.fail(rows[bad.index], f"{title} is {bad.reason}") from None
