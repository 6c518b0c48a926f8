"""A CSV text as a header and columns, read in pieces so that a million rows stay small.

A row is named by its line in the file, header and blank lines counted.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.workload.cells import BadCell, Parser, listed, shown
from batchwright.workload.columns import LONGEST_SPAN, Floats

_PIECE: Final = 16384  # rows
_Array = npt.NDArray[Any]
_Record = tuple[int, list[str]]  # its line in the file, its cells


class CsvTable:
    """The rows of one CSV text.  `first`: the first one below the header, by title.

    Raises InputError on a header without a row below it, or with one name twice.
    """

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text
        records = self._records()
        self.header_row, titles = next(records)
        self.header = [title.strip() for title in titles]
        self._check_titles()
        first = next(records, None)
        if first is None:
            raise InputError(f"{name}: has a header and no row below it; give at least one request")
        self._check_width(first)
        self.first = dict(zip(self.header, first[1], strict=True))

    def read(self, parsers: Mapping[str, Parser]) -> dict[str, _Array]:
        """One array for each column that has a parser.  Raises InputError on the first bad row."""
        parts: dict[str, list[_Array]] = {title: [] for title in parsers}
        records = self._records()
        next(records)
        while piece := list(islice(records, _PIECE)):
            cells = self._transpose(piece)
            for title, parse in parsers.items():
                parts[title].append(self._parse(title, parse, cells[self.header.index(title)], piece))
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

    def note_ignored(self, used: Mapping[str, object]) -> list[str]:
        """A note that names the columns that nobody reads; none if all are used."""
        ignored = [title for title in self.header if title not in used]
        return [f"columns ignored: {', '.join(listed(ignored))}"] if ignored else []

    def fail(self, row: int, reason: str) -> InputError:
        """The error for one row of the file."""
        return InputError(f"{self.name}: row {row}: {reason}")

    def _wrong_time(self, title: str, index: int, is_far: bool) -> InputError:
        """The row at `index` is never the first, whose time is 0."""
        place = self.header.index(title)
        (before, earlier), (row, cells) = islice(self._records(), index, index + 2)
        value, last = shown(cells[place]), shown(earlier[place])
        if is_far:
            limit = f"{LONGEST_SPAN:.0f} s"
            return self.fail(row, f"{title} is {value}, over {limit} after the first; correct it or its unit")
        return self.fail(row, f"{title} is {value}, before {last} in row {before}; sort the rows by time")

    def _parse(self, title: str, parse: Parser, cells: Sequence[str], piece: list[_Record]) -> _Array:
        try:
            return parse(cells)
        except BadCell as bad:
            raise self.fail(piece[bad.index][0], f"{title} is {bad.reason}") from None

    def _transpose(self, piece: list[_Record]) -> list[tuple[str, ...]]:
        for record in piece:
            if len(record[1]) != len(self.header):
                self._check_width(record)
        return list(zip(*[cells for _, cells in piece], strict=True))

    def _check_width(self, record: _Record) -> None:
        row, cells = record
        if len(cells) != len(self.header):
            wanted = f"the header has {len(self.header)}; the row may be cut short or hold a stray comma"
            raise self.fail(row, f"{len(cells)} fields, but {wanted}")

    def _check_titles(self) -> None:
        for title in self.header:
            if self.header.count(title) > 1:
                raise self.fail(self.header_row, f"the column {title!r} is there twice; remove or rename one")

    def _records(self) -> Iterator[_Record]:
        """Each record with the line that it starts on, header included, blank lines left out."""
        reader = csv.reader(io.StringIO(self._text, newline=""), strict=True)
        row = 1
        try:
            for cells in reader:
                if cells:
                    yield row, cells
                row = reader.line_num + 1
        except csv.Error as error:
            raise self.fail(row, f"is not CSV ({error}); check its quotes") from None
