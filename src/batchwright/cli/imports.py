"""`batchwright import`: read what another tool measured, check it, and keep it."""

from __future__ import annotations

import json
from pathlib import Path

from batchwright.cli.screen import screen
from batchwright.imported import Imported, read, report, server_report
from batchwright.imported import folder as imported_folder
from batchwright.whole_folder import check_place


def import_file(path: Path, run: str | None, output: Path | None, force: bool, as_json: bool) -> None:
    """Print what is in the file, and write it as a folder if one is asked for.  Raises InputError."""
    if output is not None:
        check_place(output, force, imported_folder.KIND)
    found = read(path, run)
    if output is not None:
        imported_folder.write(output, found, force)
    if as_json:
        print(json.dumps(report.to_json(found), indent=2))
        return
    _print(found, output)


def _print(found: Imported, output: Path | None) -> None:
    console = screen()
    for line in report.lines(found):
        console.print(line)
    for line in server_report.lines(found):
        console.print(line)
    rates = report.rates(found)
    for table in (report.table(found), server_report.table(found)):
        if table is not None:
            console.print(table)
    if rates:
        console.print(rates)
    if output is not None:
        console.print(f"{output}: written")
