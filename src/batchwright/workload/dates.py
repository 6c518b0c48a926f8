"""A parser of dates, to the nanosecond.

    2023-11-16 18:17:03.9799600      2023-11-16T18:17:03Z      2023-11-16 18:17:03.5+02:00

Either every row has a zone or none has: a mixture has no order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.workload.cells import BadCell, Parser, shown

_DATE: Final = re.compile(
    r"(?:19[7-9]|2[01][0-9])[0-9]-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"(Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])?"
)
PER_SECOND: Final = 1_000_000_000


def is_date(cell: str) -> bool:
    """Does this cell look like a date, and not like a number of seconds?"""
    return re.match(r"[0-9]{4}-", cell) is not None


def dates_like(first: str) -> Parser:
    """A parser of dates to nanoseconds, with a zone if `first` has one."""
    match = _DATE.fullmatch(first)
    has_zone = match is not None and match[1] is not None

    def parse(cells: Sequence[str]) -> npt.NDArray[np.int64]:
        zones = [_zone(index, cell, has_zone) for index, cell in enumerate(cells)]
        if not has_zone:
            return _stamps(cells)
        stamps = _stamps([cell[: -len(zone)] for cell, zone in zip(cells, zones, strict=True)])
        return stamps - PER_SECOND * np.array(list(map(_offset, zones)), np.int64)

    return parse


def _zone(index: int, cell: str, has_zone: bool) -> str:
    match = _DATE.fullmatch(cell)
    if match is None:
        raise BadCell(index, f"{shown(cell)}, which is no date like 2023-11-16 18:17:03.97; correct it")
    zone: str = match[1] or ""
    if bool(zone) != has_zone:
        word = "without" if has_zone else "with"
        raise BadCell(index, f"{shown(cell)}, {word} a time zone, unlike the first row; use one form")
    return zone


def _offset(zone: str) -> int:
    """Seconds east of UTC."""
    if zone == "Z":
        return 0
    seconds = 3600 * int(zone[1:3]) + 60 * int(zone[-2:])
    return -seconds if zone[0] == "-" else seconds


def _stamps(cells: Sequence[str]) -> npt.NDArray[np.int64]:
    try:
        return np.array(cells, "datetime64[ns]").astype(np.int64)
    except ValueError:
        raise _first_bad(cells) from None


def _first_bad(cells: Sequence[str]) -> BadCell:
    for index, cell in enumerate(cells):
        try:
            np.datetime64(cell, "ns")
        except ValueError:
            return BadCell(index, f"{shown(cell)}, which is on no calendar or clock; correct it")
    raise AssertionError("a column was refused, but each of its cells is good")
