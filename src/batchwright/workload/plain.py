"""Plain CSV: one row per request under a header with any of these names, in any case.

    arrival     arrival, arrival_time, arrived_at, timestamp; a suffix _s, _ms, _us or _ns is the unit
    prompt      prompt, prompt_tokens, input_tokens, num_prefill_tokens, ...
    output      output, output_tokens, num_decode_tokens, ...
    optional    max_tokens, priority, client

Without a suffix an arrival is in seconds, unless it is a date.  Clients are numbers, or names
that are numbered in order of appearance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.workload.cells import CLIENTS, LENGTHS, PRIORITIES, BadCell, Parser, listed, times
from batchwright.workload.columns import Columns
from batchwright.workload.csvtable import CsvTable
from batchwright.workload.dates import PER_SECOND, dates_like, is_date

_CLOCKS: Final = ("arrival", "arrival_time", "arrived_at", "timestamp")
_UNITS: Final = {  # suffix: units per second, the unit in words
    "": (1, "seconds, as its name has no unit (_s, _ms, _us or _ns)"),
    "_s": (1, "seconds"),
    "_ms": (1_000, "milliseconds"),
    "_us": (1_000_000, "microseconds"),
    "_ns": (1_000_000_000, "nanoseconds"),
}
_ARRIVALS: Final = {clock + suffix: unit for clock in _CLOCKS for suffix, unit in _UNITS.items()}
_NAMES: Final = {
    "arrival": tuple(_ARRIVALS),
    "prompt": ("prompt", "prompt_tokens", "prompt_len", "input_tokens", "input_length", "num_prefill_tokens"),
    "output": ("output", "output_tokens", "output_len", "output_length", "num_decode_tokens"),
    "max_tokens": ("max_tokens",),
    "priority": ("priority",),
    "client": ("client", "client_id"),
}
_NEEDED: Final = ("arrival", "prompt", "output")


def matches(first_line: str) -> bool:
    """The last format to be tried: whatever else has a header."""
    return True


def read(name: str, text: str) -> Columns:
    """The trace.  Raises InputError on a missing column, or on the first row that is not valid."""
    table = CsvTable(name, text)
    titles = _find_titles(table)
    clock = titles["arrival"]
    per_second, unit = (PER_SECOND, "dates") if is_date(table.first[clock]) else _ARRIVALS[clock.lower()]
    parsers = {title: _parser(role, table.first[title]) for role, title in titles.items()}
    data = table.read(parsers)
    columns = {role: data[title] for role, title in titles.items()}
    notes = [f"CSV: {clock} read as {unit}", *_note_start(table, clock), *_note_clients(parsers)]
    return Columns(
        arrival=table.seconds(clock, columns["arrival"], per_second),
        prompt=columns["prompt"],
        output=columns["output"],
        max_tokens=columns.get("max_tokens"),
        priority=columns.get("priority"),
        client=columns.get("client"),
        notes=(*notes, *table.note_ignored(parsers)),
    )


def _parser(role: str, first: str) -> Parser:
    """The parser of a column, whose first cell tells how times and clients are written."""
    if role == "arrival":
        return dates_like(first) if is_date(first) else times
    if role == "client":
        return CLIENTS if _is_whole(first) else _ClientNames()
    return PRIORITIES if role == "priority" else LENGTHS


@dataclass
class _ClientNames:
    """A parser of names to numbers, by first appearance."""

    numbers: dict[str, int] = field(default_factory=dict)

    def __call__(self, cells: Sequence[str]) -> npt.NDArray[Any]:
        for index, cell in enumerate(cells):
            if not cell.strip():
                raise BadCell(index, "empty; name the client of every row")
            self.numbers.setdefault(cell, len(self.numbers))
        return np.array([self.numbers[cell] for cell in cells], np.int64)


def _note_start(table: CsvTable, clock: str) -> list[str]:
    first = table.first[clock]
    if is_date(first) or float(first) == 0:
        return []
    return [f"the first {clock}, {first.strip()}, is time 0"]


def _note_clients(parsers: dict[str, Parser]) -> list[str]:
    counts = [len(parser.numbers) for parser in parsers.values() if isinstance(parser, _ClientNames)]
    return [f"{count} client names are numbered from 0, in order of appearance" for count in counts]


def _is_whole(cell: str) -> bool:
    return cell.strip().lstrip("+-").isdecimal()


def _find_titles(table: CsvTable) -> dict[str, str]:
    """The title in the header for each role that the table has."""
    titles: dict[str, str] = {}
    for role, names in _NAMES.items():
        found = [title for title in table.header if title.lower() in names]
        if len(found) > 1:
            both = " and ".join(map(repr, found))
            raise table.fail(table.header_row, f"the columns {both} both give the {role}; keep one")
        if found:
            titles[role] = found[0]
    for role in _NEEDED:
        if role not in titles:
            raise _missing(table, role, set(titles.values()))
    return titles


def _missing(table: CsvTable, role: str, used: set[str]) -> InputError:
    found = f"no {role} column; the columns are {', '.join(listed(table.header))}"
    for title in table.header:
        close = [] if title in used else get_close_matches(title.lower(), _NAMES[role], n=1, cutoff=0.7)
        if close:
            return table.fail(table.header_row, f"{found}; is {title!r} meant to be {close[0]!r}?")
    known = ", ".join(_CLOCKS if role == "arrival" else _NAMES[role])
    return table.fail(table.header_row, f"{found}; name one {known}")
