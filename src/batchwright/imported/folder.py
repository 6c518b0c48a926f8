"""Imported measurements as a folder, which is read as fast as it was asked for.

    measured.json  form, about, conventions, findings, totals, and which tables there are
    requests       a row per request        (Parquet with polars, else gzipped CSV)
    gaps           a row per gap between tokens: the number of its request, and seconds
    steps          a row per step
    series         a row per sample of the server's state

It is written whole or not at all.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, Struct

from batchwright.columns_file import read_columns, write_columns
from batchwright.errors import InputError
from batchwright.imported.result import Columns, Finding, Imported
from batchwright.imported.source import Source, as_type
from batchwright.metrics import Numbers
from batchwright.whole_folder import Kind, whole

FILE: Final = "measured.json"
KIND: Final = Kind(name="folder of imported measurements", mark=FILE)
SCHEMA_VERSION: Final = 1
TABLES: Final = ("requests", "gaps", "steps", "series")


class _Finding(Struct, forbid_unknown_fields=True):
    text: str
    is_wrong: bool


class _Measured(Struct):
    schema_version: Annotated[int, Meta(ge=1, le=SCHEMA_VERSION)]
    file: str
    form: str
    conventions: list[str]
    findings: list[_Finding]
    about: dict[str, bool | int | float | str]
    totals: dict[str, float]
    tables: list[str]


def write(place: Path, found: Imported, force: bool = False) -> None:
    """Write `found` as the folder `place`.  Raises InputError if it is taken, unless `force`."""
    tables = _tables(found)
    with whole(place, force, KIND) as part:
        text = json.dumps({**heading(found), "tables": list(tables)}, indent=2)
        (part / FILE).write_text(text + "\n", encoding="utf-8")
        for name, columns in tables.items():
            write_columns(part / name, dict(columns))


def heading(found: Imported) -> dict[str, Any]:
    """All but the tables, as JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "file": found.file,
        "form": found.form,
        "conventions": list(found.conventions),
        "findings": [asdict(finding) for finding in found.findings],
        "about": dict(found.about),
        "totals": dict(found.totals),
    }


def _tables(found: Imported) -> dict[str, Columns]:
    """Those that there are, by name."""
    gaps = None if found.gaps is None else _in_rows(found.gaps)
    tables = {"requests": found.requests, "gaps": gaps, "steps": found.steps, "series": found.series}
    return {name: columns for name, columns in tables.items() if columns is not None}


def _in_rows(gaps: tuple[Numbers, ...]) -> Columns:
    counts = np.array([len(one) for one in gaps], np.int64)
    seconds = np.concatenate(gaps) if gaps else np.empty(0)
    return {"request": np.repeat(np.arange(len(gaps)), counts), "gap_s": seconds.astype(np.float64)}


def matches(source: Source) -> bool:
    """Is it such a folder?"""
    return source.is_folder and (source.path / FILE).is_file()


def read(source: Source) -> Imported:
    """What `write` wrote.  Raises InputError."""
    file = Source.open(source.path / FILE, None)
    head = as_type(file, file.whole, _Measured, "measured.json")
    tables = {name: read_columns(source.path / name) for name in head.tables if name in TABLES}
    requests = tables.get("requests")
    return Imported(
        file=head.file,
        form=head.form,
        conventions=tuple(head.conventions),
        findings=tuple(Finding(text=one.text, is_wrong=one.is_wrong) for one in head.findings),
        about=head.about,
        requests=requests,
        gaps=_by_request(source, requests, tables["gaps"]) if "gaps" in tables else None,
        steps=tables.get("steps"),
        series=tables.get("series"),
        totals=head.totals,
    )


def _by_request(source: Source, requests: Columns | None, rows: Columns) -> tuple[Numbers, ...]:
    """Raises InputError if there are gaps of a request that is not there, or not in its order."""
    count = 0 if requests is None else len(next(iter(requests.values())))
    if not {"request", "gap_s"} <= rows.keys():
        raise InputError(f"{source.path / 'gaps'}: has no request and gap_s; import the file again")
    owners = rows["request"].astype(np.int64)
    if len(owners) and (owners[-1] >= count or (np.diff(owners) < 0).any()):
        raise InputError(
            f"{source.path / 'gaps'}: is not in order of the {count} requests; import the file again"
        )
    ends = np.searchsorted(owners, np.arange(count), side="right").tolist()
    return tuple(rows["gap_s"][start:end] for start, end in zip([0, *ends], ends, strict=False))
