"""A plain table, CSV, JSONL or Parquet: one row per request, its columns found by `roles`.

The unit of the arrivals is the one that was asked for, else the suffix of the column's name,
else seconds, unless they are dates, or too great for seconds since 1970.  Clients are numbers, or
names that are numbered in order of appearance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from batchwright.workload.cells import CLIENTS, LENGTHS, PRIORITIES, BadCell, Parser, listed, shown, times
from batchwright.workload.columns import Columns, Floats
from batchwright.workload.dates import PER_SECOND, dates_like, is_date
from batchwright.workload.roles import find_titles
from batchwright.workload.table import Table
from batchwright.workload.units import UNITS, Unit, asked_unit, refuse_unit

NO_ARRIVALS: Final = "no arrivals in the file: all at once; give --rate for Poisson arrivals"

_SINCE_1970: Final = (("ns", 1e17), ("us", 1e14), ("ms", 1e11))  # at least; 1e11 s are 3,000 years


def read_plain(
    table: Table, kind: str, columns: Mapping[str, str] | None = None, time_unit: str | None = None
) -> Columns:
    """The trace.  `kind`: what its notes call the file.  `columns`: role to title.

    Raises InputError on a missing column, or on the first row that is not valid.
    """
    titles = find_titles(table, columns)
    unit = _unit(table, titles.get("arrival"), time_unit)
    parsers = {title: _parser(role, table.first[title]) for role, title in titles.items()}
    data = table.read(parsers)
    found = {role: data[title] for role, title in titles.items()}
    return Columns(
        arrival=_arrival(table, titles, data, unit),
        prompt=found["prompt"],
        output=found["output"],
        max_tokens=found.get("max_tokens"),
        priority=found.get("priority"),
        client=found.get("client"),
        notes=tuple(_notes(table, kind, titles, unit, parsers)),
        has_arrivals="arrival" in titles,
    )


def _arrival(
    table: Table, titles: Mapping[str, str], data: Mapping[str, npt.NDArray[Any]], unit: Unit
) -> Floats:
    clock = titles.get("arrival")
    if clock is None:
        return np.zeros(len(data[titles["prompt"]]))
    return table.seconds(clock, data[clock], unit.per_second)


def _unit(table: Table, clock: str | None, asked: str | None) -> Unit:
    if clock is None:
        refuse_unit(table.name, asked, "it has no arrivals")
        return UNITS["s"]
    if is_date(table.first[clock]):
        refuse_unit(table.name, asked, f"{clock} holds dates, which have no unit")
        return Unit(PER_SECOND, "dates")
    if asked is not None:
        return asked_unit(asked, "s")
    suffix = clock.lower().rpartition("_")[2] if "_" in clock else ""
    if suffix in UNITS:
        return UNITS[suffix]
    return _unit_by_size(table.first[clock])


def _unit_by_size(first: str) -> Unit:
    """Seconds, unless so great a number can only count smaller units since 1970."""
    value = float(first) if first.strip().replace(".", "", 1).isdecimal() else 0.0
    for suffix, since_1970 in _SINCE_1970:
        if value >= since_1970:
            unit = UNITS[suffix]
            return Unit(unit.per_second, f"{unit.words} since 1970, by their size")
    return Unit(1, "seconds, as its name has no unit (_s, _ms, _us or _ns)")


def _parser(role: str, first: str) -> Parser:
    """The parser of a column, whose first cell tells how times and clients are written."""
    if role == "arrival":
        return dates_like(first) if is_date(first) else times
    if role == "client":
        return CLIENTS if _is_whole(first) else _ClientNames()
    if role == "model":
        return Models()
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


@dataclass
class Models:
    """A parser that reads nothing from names of models, but counts them for a note."""

    counts: Counter[str] = field(default_factory=Counter)

    def __call__(self, cells: Sequence[str]) -> npt.NDArray[Any]:
        self.counts.update(cells)
        return np.zeros(len(cells), np.int8)


def note_models(counts: Mapping[str, int]) -> str:
    """What a trace of several models is taken for."""
    names = listed(f"{name or 'no name'} {count}" for name, count in sorted(counts.items()))
    return f"requests by model: {', '.join(names)}; all are served as one load"


def _notes(
    table: Table, kind: str, titles: Mapping[str, str], unit: Unit, parsers: Mapping[str, Parser]
) -> Iterator[str]:
    clock = titles.get("arrival")
    if clock is None:
        yield f"{kind}: {NO_ARRIVALS}"
    else:
        yield f"{kind}: {clock} read as {unit.words}"
        yield from note_start(table, clock)
    for parser in parsers.values():
        if isinstance(parser, _ClientNames):
            yield f"{len(parser.numbers)} client names are numbered from 0, in order of appearance"
        if isinstance(parser, Models):
            yield note_models(parser.counts)
    yield from table.all_notes(parsers)


def note_start(table: Table, clock: str) -> Iterator[str]:
    """A note if the first arrival is not at 0 already."""
    first = table.first[clock]
    if not is_date(first) and float(first) != 0:
        yield f"the first {clock}, {shown(first.strip())[1:-1]}, is time 0"


def _is_whole(cell: str) -> bool:
    return cell.strip().lstrip("+-").isdecimal()
