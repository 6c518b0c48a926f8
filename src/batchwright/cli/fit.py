"""`batchwright fit`: a cost model with error bars from measurements, and a profile file of it."""

from __future__ import annotations

import json
from pathlib import Path

from batchwright.calibration.measured import steps_of, together
from batchwright.calibration.report import lines, profile_of, tables, to_json
from batchwright.calibration.steps import fit_steps
from batchwright.cli.fit_requests import ServerFlags
from batchwright.cli.fit_requests import fit as fit_of_requests
from batchwright.cli.fit_settings import Settings
from batchwright.cli.progress import stages
from batchwright.cli.screen import screen
from batchwright.errors import InputError
from batchwright.files import check_free, write_whole
from batchwright.imported import Imported, read
from batchwright.profile import as_text


def fit(paths: list[Path], settings: Settings, server: ServerFlags) -> None:
    """Fit to the steps of the files, or to the timings of the requests of one.  Raises InputError."""
    if settings.output is not None:
        check_free(settings.output, settings.force)
    measured = [read(path, settings.run) for path in paths]
    name = settings.name_of(paths)
    if any(found.steps is not None for found in measured) or all(f.requests is None for f in measured):
        _fit_steps(measured, name, settings, server)
        return
    if len(measured) > 1:
        raise InputError(f"{len(measured)} files of requests are given; a server is fitted to one")
    fit_of_requests(measured[0], name, settings, server)


def _fit_steps(measured: list[Imported], name: str, settings: Settings, server: ServerFlags) -> None:
    if server.is_given:
        raise InputError("steps need no simulation, so nothing of the server is asked; give the files alone")
    steps = together([steps_of(found) for found in measured])
    with stages() as report:
        found = fit_steps(steps, settings.attention, lambda share: report("fit", share))
    profile = profile_of(found, name)
    if settings.output is not None:
        write_whole(settings.output, as_text(profile), settings.force)
    if settings.as_json:
        written = None if settings.output is None else str(settings.output)
        print(json.dumps({**to_json(found), "profile": written}, indent=2))
        return
    console = screen()
    for part in (*lines(found), *tables(found), *found.remarks, *settings.end(profile.cost)):
        console.print(part)
