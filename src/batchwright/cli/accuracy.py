"""`batchwright accuracy DATA`: predicted against published measurements."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

from batchwright.accuracy.page import page
from batchwright.accuracy.studies import Found, run_all
from batchwright.accuracy.study import Row
from batchwright.cli.progress import stages
from batchwright.files import check_free, write_whole

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command's flags."""

    output: Path | None
    strict: bool
    force: bool
    as_json: bool


def accuracy(data: Path, settings: Settings) -> None:
    """Run all studies, then print or write the page.  Raises BatchwrightError."""
    if settings.output is not None:
        check_free(settings.output, settings.force)
    with stages() as report:
        found = run_all(data, settings.strict, report)
    if settings.output is not None:
        write_whole(settings.output, page(found), settings.force)
    if settings.as_json:
        print(json.dumps(as_json(found), indent=2))
    elif settings.output is None:
        print(page(found), end="")
    else:
        print(f"{settings.output}: {len(found.studies)} studies{_skipped(found)}")


def _skipped(found: Found) -> str:
    names = ", ".join(entry.module for entry in found.missing)
    return f"; not run, as their measurements are not there: {names}" if names else ""


def as_json(found: Found) -> dict[str, Any]:
    """All digits; the schema is in docs/json.md."""
    return {
        "schema_version": SCHEMA_VERSION,
        "studies": [{**asdict(study), "rows": [_row(row) for row in study.rows]} for study in found.studies],
        "missing": [entry.module for entry in found.missing],
    }


def _row(row: Row) -> dict[str, Any]:
    bound = row.bound if isfinite(row.bound) else None
    return {**asdict(row), "bound": bound, "error": row.error, "holds": row.holds}
