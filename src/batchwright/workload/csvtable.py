"""A CSV text as a table.  A row is named by its line in the file, header and blank lines counted.

The separator is a comma, unless a header of one cell has several with another one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from batchwright.errors import InputError
from batchwright.workload.cells import row_error, shown
from batchwright.workload.table import PIECE, Piece, Table

_Record = tuple[int, list[str]]  # its line in the file, its cells
_COMMA: Final = ","
_OTHERS: Final = {";": "semicolons", "\t": "tabs", "|": "bars"}


def csv_table(name: str, text: str) -> Table:
    """Raises InputError on a header without a row below it, or with one name twice."""
    return _CsvText(name, text).table()


class _CsvText:
    """One CSV text, read as often as it is asked for."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._text = text
        self._separator = _separator(text)
        self.header_row, titles = next(self._lines())
        self.header = [title.strip() for title in titles]

    def table(self) -> Table:
        self._check_titles()
        first = next(self._records(), None)
        if first is None:
            raise InputError(f"{self.name}: has a header and no row below it; give at least one request")
        return Table(
            name=self.name,
            header=self.header,
            header_row=self.header_row,
            first=dict(zip(self.header, first[1], strict=True)),
            pieces=self._pieces,
            notes=self._notes(),
        )

    def _notes(self) -> tuple[str, ...]:
        if self._separator == _COMMA:
            return ()
        return (f"the columns are separated by {_OTHERS[self._separator]}, as the header has it",)

    def _pieces(self, titles: Sequence[str]) -> Iterator[Piece]:
        places = [self.header.index(title) for title in titles]
        records = self._records()
        while piece := list(islice(records, PIECE)):
            columns = list(zip(*[cells for _, cells in piece], strict=True))
            yield Piece([row for row, _ in piece], [columns[place] for place in places])

    def _records(self) -> Iterator[_Record]:
        """The rows below the header, each as wide as it."""
        width = len(self.header)
        for row, cells in islice(self._lines(), 1, None):
            if len(cells) != width:
                wanted = (
                    f"the header has {width}; the row may be cut short or hold a stray {self._separator!r}"
                )
                raise row_error(self.name, row, f"{len(cells)} fields, but {wanted}")
            yield row, cells

    def _check_titles(self) -> None:
        for title in self.header:
            if self.header.count(title) > 1:
                reason = f"the column {shown(title)} is there twice; remove or rename one"
                raise row_error(self.name, self.header_row, reason)

    def _lines(self) -> Iterator[_Record]:
        """Each record with the line that it starts on, header included, blank lines left out."""
        reader = csv.reader(io.StringIO(self._text, newline=""), delimiter=self._separator, strict=True)
        row = 1
        try:
            for cells in reader:
                if cells:
                    yield row, cells
                row = reader.line_num + 1
        except csv.Error as error:
            raise row_error(self.name, row, f"is not CSV ({error}); check its quotes") from None


def _separator(text: str) -> str:
    """A comma where the header has one between two cells, else what makes most cells of it."""
    if _width(text, _COMMA) > 1:
        return _COMMA
    best = max(_OTHERS, key=lambda separator: _width(text, separator))
    return best if _width(text, best) > 1 else _COMMA


def _width(text: str, separator: str) -> int:
    """Cells of the header; 0 if it is not CSV with this separator."""
    try:
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        return len(next((cells for cells in lines if cells), []))
    except csv.Error:
        return 0
