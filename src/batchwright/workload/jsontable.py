"""JSONL as a table: one object per line, all with the keys of the first.

Numbers become text as they are written, so that the parsers of cells check them; null is an
empty cell.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Any

from batchwright.errors import nearest
from batchwright.workload.cells import listed, row_error, shown
from batchwright.workload.table import PIECE, Piece, Table


def json_table(name: str, text: str, wanted: Collection[str] | None = None) -> Table:
    """`wanted`: the only keys to look at, if not all.  Raises InputError on what is no JSON object."""
    return _JsonLines(name, text, wanted).table()


def parse_object(name: str, row: int, line: str) -> dict[str, Any]:
    """The object of one line.  Raises InputError with its row."""
    try:
        item = json.loads(line)
    except (ValueError, RecursionError):
        reason = f"{shown(line.strip())} is no whole JSON object; the line may be cut short"
        raise row_error(name, row, reason) from None
    if not isinstance(item, dict):
        raise row_error(name, row, f"{shown(line.strip())} is no JSON object; write one object per line")
    return item


class _JsonLines:
    """The lines of one text, read as often as they are asked for."""

    def __init__(self, name: str, text: str, wanted: Collection[str] | None) -> None:
        self.name = name
        self._text = text
        self.header_row, item = next(self._items())
        self.header = [key for key in item if wanted is None or key in wanted]
        self._is_all = wanted is None
        self._first = item

    def table(self) -> Table:
        return Table(
            name=self.name,
            header=self.header,
            header_row=self.header_row,
            first={key: _text(self._first[key]) for key in self.header},
            pieces=self._pieces,
        )

    def _pieces(self, titles: Sequence[str]) -> Iterator[Piece]:
        items = self._items()
        while piece := list(islice(items, PIECE)):
            for row, item in piece:
                self._check_keys(row, item)
            yield Piece(
                [row for row, _ in piece], [[_text(item[key]) for _, item in piece] for key in titles]
            )

    def _check_keys(self, row: int, item: dict[str, Any]) -> None:
        """Raises InputError unless the keys are those of the first row, or all that are wanted."""
        if item.keys() == self._first.keys():
            return
        for key in self.header:
            if key not in item:
                raise row_error(self.name, row, _lacks(key, item))
        if self._is_all:
            extra = next(key for key in item if key not in self._first)
            raise row_error(
                self.name, row, f"has the key {shown(extra)}, unlike row {self.header_row}; {_SAME}"
            )

    def _items(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for row, line in enumerate(io.StringIO(self._text, newline="\n"), 1):
            if line.strip():
                yield row, parse_object(self.name, row, line)


_SAME = "give every row the same keys, or say which to read with columns"


def _lacks(key: str, item: dict[str, Any]) -> str:
    return f"no key {shown(key)}, which the first row has{nearest(key, listed(item))}"


def _text(value: object) -> str:
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is int or kind is float:
        return repr(value)
    return "" if value is None else json.dumps(value)
