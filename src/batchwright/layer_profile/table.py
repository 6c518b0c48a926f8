"""One file of a layer profile: columns of numbers, and of names, under a header."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

import numpy as np

from batchwright.errors import InputError
from batchwright.metrics import Numbers

MICROSECOND = 1e-6
MOST_COUNT = 1 << 24  # tokens or rows; beyond any step
LONGEST_US = 1e9  # of a layer; beyond any step
Columns = dict[str, Numbers]


def read_table(path: Path, numbers: Sequence[str], names: Sequence[str] = ()) -> dict[str, list[str]]:
    """The columns `numbers` and `names` of the file, as text, and all others that it has.

    Raises InputError if it cannot be read, or lacks a column or rows.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read as CSV: {error}") from None
    header = rows[0] if rows else []
    for name in (*numbers, *names):
        if name not in header:
            raise InputError(f"{path}: no column {name!r}, which such a file has; profile again")
    body = [row for row in rows[1:] if row]
    if not body:
        raise InputError(f"{path}: no rows; profile again")
    for at, row in enumerate(body, 2):
        if len(row) != len(header):
            raise InputError(
                f"{path}:{at}: {len(row)} columns, not the {len(header)} of its header; profile again"
            )
    return {name: [row[i] for row in body] for i, name in enumerate(header)}


def rows_of(table: dict[str, list[str]], name: str, value: str) -> Numbers:
    """Which rows have this value in the column `name`; all, if there is no such column.

    Newer profiles have more columns: which attention, and tokens of a decode that verifies drafts.
    """
    first = next(iter(table.values()))
    return np.array([text == value for text in table.get(name, [value] * len(first))])


def counts(path: Path, table: dict[str, list[str]], name: str, least: int = 0) -> Numbers:
    """A column of whole numbers of at least `least`.  Raises InputError on another value."""
    return np.array([_count(path, at, name, text, least) for at, text in enumerate(table[name], 2)], np.int64)


def seconds(path: Path, table: dict[str, list[str]]) -> Numbers:
    """The column `time_us`, in seconds.  Raises InputError on what is no time greater than 0."""
    times = np.array([number(path, at, "time_us", text) for at, text in enumerate(table["time_us"], 2)])
    is_wrong = (times <= 0) | (times > LONGEST_US)
    if is_wrong.any():
        at = int(np.argmax(is_wrong))
        raise InputError(
            f"{path}:{at + 2}: time_us is {times[at]:g}, but must be greater than 0, at most {LONGEST_US:g}"
        )
    return times * MICROSECOND


def number(path: Path, at: int, name: str, text: str) -> float:
    """A finite number.  Raises InputError on anything else."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise InputError(f"{path}:{at}: {name} is {text!r}, but must be a number")
    return value


def _count(path: Path, at: int, name: str, text: str, least: int) -> int:
    value = number(path, at, name, text)
    if value != int(value) or not least <= value <= MOST_COUNT:
        raise InputError(
            f"{path}:{at}: {name} is {text!r}, but must be a whole number from {least} to {MOST_COUNT}"
        )
    return int(value)
