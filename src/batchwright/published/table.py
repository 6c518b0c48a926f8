"""Rows as a plain table, one column for each field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from batchwright.errors import InputError
from batchwright.interval import Interval
from batchwright.plain_table import plain_table, table_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def text(rows: Sequence[DataclassInstance], shares: Sequence[str] = ()) -> str:
    """The table; fields in `shares` as percent.  Raises InputError if there is no row."""
    if not rows:
        raise InputError("a table of 0 rows; give at least 1")
    names = [field.name for field in fields(rows[0])]
    table = plain_table()
    for name in names:
        is_text = isinstance(getattr(rows[0], name), str)
        table.add_column(name.replace("_", " "), justify="left" if is_text else "right")
    for row in rows:
        table.add_row(*(_cell(getattr(row, name), name in shares) for name in names))
    return table_text(table)


def _cell(value: Any, is_share: bool) -> str:
    if isinstance(value, Interval):
        if is_share:
            return f"{value.value:+.0%} ± {value.half:.0%}"
        return f"{value.value:.4g} ± {value.half:.2g}"
    if isinstance(value, float):
        return f"{round(value, 4) + 0.0:+.0%}" if is_share else f"{value:,.2f}"  # never -0%
    return str(value)
