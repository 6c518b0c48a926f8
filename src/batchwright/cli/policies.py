"""`batchwright policies`: what each policy does, on one server or several, in one table."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any, Final

from batchwright.cli.screen import screen
from batchwright.cluster import CLUSTERS
from batchwright.errors import InputError, nearest
from batchwright.plain_table import plain_table, table_text
from batchwright.policies import POLICIES
from batchwright.policies.about import About

KNOWN: Final[dict[str, type]] = {**POLICIES, **CLUSTERS}
CHOICES: Final = ("order", "first", "chunking", "kv", "victim", "leave")


def policies(names: list[str], as_json: bool) -> None:
    """Print a table of these policies; none: of all.  Raises InputError on an unknown one."""
    unknown = next((name for name in names if name not in KNOWN), None)
    if unknown is not None:
        raise InputError(f"unknown policy {unknown!r}{nearest(unknown, KNOWN)}")
    kinds = {name: KNOWN[name] for name in names or KNOWN}
    if as_json:
        print(json.dumps({"policies": {name: _as_json(kind) for name, kind in kinds.items()}}, indent=2))
        return
    console = screen()
    for columns in (CHOICES, ("engine", "flags", "source", "left_out")):
        console.print(_table(kinds, columns, console.width))
        console.print()


def _as_json(kind: type) -> dict[str, Any]:
    return asdict(about(kind)) | {"flags": _flags(kind)}


def _table(kinds: dict[str, type], columns: tuple[str, ...], width: int) -> str:
    """A row for each policy; one that is another's alias says so."""
    table = plain_table(show_lines=False)
    for title in ("policy", *columns):
        table.add_column(title.replace("_", " ").replace("kv", "KV at admission"), overflow="fold")
    shown: dict[type, str] = {}
    for name, kind in kinds.items():
        if kind in shown:
            table.add_row(name, f"as {shown[kind]}")
            continue
        shown[kind] = name
        said = asdict(about(kind)) | {"flags": _flags_text(kind)}
        table.add_row(name, *(said[column] for column in columns))
    return table_text(table, width)


def about(kind: type) -> About:
    """What a policy says of itself."""
    found: About = kind.about  # type: ignore[attr-defined]
    return found


def _flags(kind: type) -> dict[str, Any]:
    """Defaults by flag."""
    return {field.name: field.default for field in fields(kind)}


def _flags_text(kind: type) -> str:
    return ", ".join(f"{name}={_word(value)}" for name, value in _flags(kind).items())


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
