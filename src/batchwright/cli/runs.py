"""`batchwright runs diff A B`."""

from __future__ import annotations

import json
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchwright.figures import NOT_APPLICABLE, share_unit, three
from batchwright.interval import Interval
from batchwright.report import BEST, GROUPS, NARROWEST, OBJECTIVES, STATE, Row
from batchwright.report_json import key_of
from batchwright.run_difference import FolderDifference
from batchwright.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.table import Table

CLEAR: Final = "* the 95 % interval of the difference excludes 0"


def diff(a: Path, b: Path, as_json: bool) -> None:
    """Print how run folder `b` differs from `a`.  Raises InputError."""
    found = FolderDifference(RunFolder.open(a), RunFolder.open(b))
    pairs = found.policies
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
        return
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.width = max(console.width, NARROWEST)
    parts = [f"A is {a}, B is {b}; {found.pairing}", *_settings(found)]
    tables = [_table(found, names) for names in pairs]  # all of it, or an error alone
    for part in (*parts, *tables, CLEAR):
        console.print(part)


def _settings(found: FolderDifference) -> list[str]:
    if not found.settings:
        return ["  nothing is set differently"]
    return [f"  {key}: {_shown(a)} in A, {_shown(b)} in B" for key, (a, b) in found.settings.items()]


def _shown(value: object) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)


def _table(found: FolderDifference, names: tuple[str, str]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    result.add_column(Text(" -> ".join(dict.fromkeys(names))), overflow="fold")
    for title in ("A", "B", "B - A"):
        result.add_column(title, justify="right")
    for group in (*GROUPS, OBJECTIVES, STATE):
        for row in group:
            a, b = found.values(names, key_of(row.metric))
            if not (isnan(a) and isnan(b)):
                difference = found.difference(names, key_of(row.metric))
                result.add_row(row.title, _value(a, row), _value(b, row), _difference(difference, row))
        result.add_section()
    return result


def _value(value: float, row: Row) -> str:
    if isnan(value):
        return NOT_APPLICABLE
    if row.unit is share_unit:
        return f"{value:.1%}"
    size, behind = row.unit(value)
    return three(value / size) + behind


def _difference(found: Interval, row: Row) -> str:
    """With its sign, and the interval in the same unit."""
    if isnan(found.value):
        return NOT_APPLICABLE
    size, behind = row.unit(found.value)
    sign = "+" if found.value > 0 else "-" if found.value < 0 else ""
    shown = f"{sign}{three(abs(found.value) / size)}"
    half = f" ±{three(found.half / size)}" if found.is_known else ""
    return f"{shown}{half}{behind}{BEST if found.is_clear else ''}"


