"""`batchwright runs diff A B`."""

from __future__ import annotations

import json
from math import isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Final

from batchwright.cli.screen import screen
from batchwright.figures import NOT_APPLICABLE, Unit, figure, plain_unit, seconds_unit, share_unit, three
from batchwright.folder_difference import FolderDifference
from batchwright.interval import Interval, around
from batchwright.plain_table import plain_table
from batchwright.report import BEST, GROUPS, OBJECTIVES, STATE, Row
from batchwright.report_json import key_of
from batchwright.run.saturation import SATURATED
from batchwright.run_folder import RunFolder

if TYPE_CHECKING:
    from rich.table import Table

COUNTS: Final[list[tuple[str, str, Unit]]] = [
    ("preemptions", "num_preemptions", plain_unit),
    ("rejected", "num_rejected", plain_unit),
    ("finished", "num_finished", plain_unit),
    ("duration", "duration_s", seconds_unit),
]
CLEAR: Final = "* the 95 % interval of the difference excludes 0"


def diff(a: Path, b: Path, as_json: bool) -> None:
    """Print how run folder `b` differs from `a`.  Raises InputError."""
    found = FolderDifference(RunFolder.open(a), RunFolder.open(b))
    pairs = found.policies
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
        return
    parts = [f"A is {a}, B is {b}; {found.pairing}", *_settings(found)]
    remarks = [CLEAR, *_verdicts(found)]
    tables = [_table(found, names) for names in pairs]  # all of it, or an error alone
    console = screen()
    for part in (*parts, *tables, *remarks):
        console.print(part)


def _settings(found: FolderDifference) -> list[str]:
    if not found.settings:
        return ["  nothing is set differently"]
    return [f"  {key}: {_shown(a)} in A, {_shown(b)} in B" for key, (a, b) in found.settings.items()]


def _verdicts(found: FolderDifference) -> list[str]:
    """Who is past saturation."""
    lines = []
    for letter, folder in (("A", found.a), ("B", found.b)):
        for name, policy in folder.summary["policies"].items():
            if policy["saturation"]["kind"] == SATURATED:
                lines.append(f"{name} in {letter} is past saturation: {policy['saturation']['text']}")
    return lines


def _shown(value: object) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)


def _table(found: FolderDifference, names: tuple[str, str]) -> Table:
    from rich.text import Text

    result = plain_table()
    result.add_column(Text(" -> ".join(dict.fromkeys(names))), overflow="fold")
    for title in ("A", "B", "B - A"):
        result.add_column(title, justify="right")
    for group in (*GROUPS, OBJECTIVES, STATE):
        for row in group:
            a, b = found.values(names, key_of(row.metric))
            if not (isnan(a) and isnan(b)):
                difference = found.difference(names, key_of(row.metric))
                result.add_row(
                    row.title, figure(a, row.unit), figure(b, row.unit), _difference(difference, row)
                )
        result.add_section()
    for title, key, unit in COUNTS:
        a, b = found.values(names, key)
        apart = _difference(around(b - a, nan), Row(title, key, unit))
        result.add_row(title, figure(a, unit), figure(b, unit), apart)
    return result


def _difference(found: Interval, row: Row) -> str:
    """With its sign, and the interval in the same unit."""
    if isnan(found.value):
        return NOT_APPLICABLE
    size, behind = row.unit(found.value)
    sign = "+" if found.value > 0 else "-" if found.value < 0 else ""
    shown = f"{sign}{three(abs(found.value) / size)}"
    half = f" ±{three(found.half / size)}" if found.is_known else ""
    points = " points" if row.unit is share_unit else behind
    return f"{shown}{half}{points}{BEST if found.is_clear else ''}"
