"""A CSV of numbers as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from batchwright.imported.source import Source
from batchwright.metrics import Numbers
from batchwright.workload.cells import BadCell, shown
from batchwright.workload.csvtable import csv_table


def columns(source: Source, titles: Sequence[str], kind: str) -> dict[str, Numbers]:
    """The columns `titles`, which `kind` ("a step log") has.  Raises InputError with the wrong row."""
    table = csv_table(source.name, source.text)
    table.check_titles(titles, kind)
    return table.read(dict.fromkeys(titles, _numbers))


def _numbers(cells: Sequence[str]) -> Numbers:
    """Finite numbers, whole ones as such.  Raises BadCell."""
    for kind in (np.int64, np.float64):
        try:
            found = np.array(cells).astype(kind)
        except (ValueError, OverflowError):
            continue
        if np.isfinite(found).all():
            return found
    raise _first_bad(cells)


def _first_bad(cells: Sequence[str]) -> BadCell:
    for index, cell in enumerate(cells):
        try:
            if np.isfinite(float(cell)):
                continue
        except ValueError:
            pass
        return BadCell(index, f"{shown(cell)}, which is no finite number; let the tool write it again")
    raise AssertionError("a column was refused, but each of its cells is good")


LONGEST_HEADER: Final = 4096  # characters


def titles_of(source: Source) -> frozenset[str]:
    """The titles of the first line."""
    return frozenset(title.strip() for title in source.first_line[:LONGEST_HEADER].split(","))
