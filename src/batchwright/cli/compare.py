"""`batchwright compare`: one load, several policies, one table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchwright import run_folder
from batchwright.cli.progress import progress
from batchwright.cli.screen import heading, screen
from batchwright.client_report import client_table
from batchwright.comparison import Runs
from batchwright.comparison import compare as compare_policies
from batchwright.durations import duration
from batchwright.report import prose, tables, window_table
from batchwright.scenario.build import Prepared, prepare
from batchwright.scenario.keys import Scenario
from batchwright.scenario.like import command_of


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the result goes.  `window`: a duration such as 5m, of a report per window of arrivals."""

    as_json: bool
    folder: Path | None
    force: bool
    window: str | None


def compare(scenario: Scenario, output: Output) -> None:
    """Read the load, run every policy, print the table.  Raises BatchwrightError."""
    window = None if output.window is None else duration(output.window, "--window-report")
    if output.folder is not None:
        run_folder.check_place(output.folder, output.force)
    prepared = prepare(scenario)
    runs = _run(prepared)
    notes = [*prepared.notes, *(found.note for found in runs.values() if found.note), *prepared.beyond(runs)]
    if output.folder is not None or output.as_json:
        summary = {**runs.to_json(), "cost": prepared.cost_name, "like": _like(prepared), "notes": notes}
        summary |= _windows(runs, window)
        if output.folder is not None:
            run_folder.write(output.folder, prepared.resolved(), summary, runs, output.force)
        if output.as_json:
            print(json.dumps(summary, indent=2))
            return
    _print(runs, notes, window)


def _like(prepared: Prepared) -> dict[str, Any] | None:
    """What the command of `--like` says; None if there is none."""
    command = command_of(prepared.scenario)
    return None if command is None else command.to_json()


def _windows(runs: Runs, window: float | None) -> dict[str, Any]:
    """The windows of every run, if some are asked for."""
    if window is None:
        return {}
    found = {name: one.windows(window, runs.slo) for name, one in runs.items()}
    return {"windows": {name: [row.to_json() for row in rows] for name, rows in found.items()}}


def _run(prepared: Prepared) -> Runs:
    with progress(len(prepared.policies)) as report:
        return compare_policies(
            prepared.load,
            prepared.cost,
            prepared.limits,
            prepared.policies,
            report,
            repeat=prepared.scenario.repeat,
            slo=prepared.slo,
            guard=prepared.blaming,
        )


def _print(runs: Runs, notes: list[str], window: float | None) -> None:
    console = screen()
    of_windows = [] if window is None else [window_table(run, window, runs.slo) for run in runs.values()]
    console.print(heading(runs.load, notes))
    for part in tables(runs.estimates, console.width):
        console.print(part)
    of_clients = client_table(runs)
    if of_clients is not None:
        console.print(of_clients)
    console.print(prose(runs.estimates, console.width))
    for part in of_windows:
        console.print()
        console.print(part)
