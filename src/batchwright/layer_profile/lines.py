"""Layers whose time depends on one count: `dense.csv` and `per_sequence.csv`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchwright.errors import InputError
from batchwright.layer_profile.table import counts, read_table, seconds
from batchwright.metrics import Numbers


@dataclass(frozen=True, eq=False)
class Line:
    """Seconds of one layer at some counts, in order."""

    counts: Numbers
    seconds: Numbers

    def at(self, wanted: Numbers) -> Numbers:
        """Seconds at `wanted` counts, straight between those measured."""
        found: Numbers = np.interp(wanted, self.counts, self.seconds)
        return found


def read_lines(path: Path, count: str) -> dict[str, Line]:
    """The layers of a file, by name; `count` is its column.  Raises InputError."""
    table = read_table(path, (count, "time_us"), ("layer",))
    names = np.array(table["layer"])
    at, times = counts(path, table, count, least=1), seconds(path, table)
    return {
        str(name): _line(path, str(name), at[names == name], times[names == name]) for name in _ordered(names)
    }


def _ordered(names: Numbers) -> list[str]:
    return list(dict.fromkeys(names.tolist()))


def _line(path: Path, name: str, at: Numbers, times: Numbers) -> Line:
    order = np.argsort(at, kind="stable")
    at, times = at[order], times[order]
    if (at[1:] == at[:-1]).any():
        twice = int(at[1:][at[1:] == at[:-1]][0])
        raise InputError(f"{path}: {name} has two times at {twice}; keep one of them")
    return Line(at, times)
