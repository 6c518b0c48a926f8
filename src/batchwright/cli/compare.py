"""`batchwright compare`: one load, several policies, one table."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from batchwright import run_folder
from batchwright.cli.progress import progress
from batchwright.cli.screen import heading, screen
from batchwright.comparison import Runs
from batchwright.comparison import compare as compare_policies
from batchwright.durations import duration
from batchwright.report import prose, tables, window_table
from batchwright.scenario.build import Prepared, prepare
from batchwright.scenario.keys import Scenario


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
    notes = [*prepared.notes, *(found.note for found in runs.values() if found.note)]
    summary = {**runs.to_json(), "cost": prepared.cost_name, "notes": notes}
    if window is not None:
        summary["windows"] = {
            name: [one.to_json() for one in found.windows(window, runs.slo)] for name, found in runs.items()
        }
    if output.folder is not None:
        run_folder.write(output.folder, prepared.resolved(), summary, runs, output.force)
    if output.as_json:
        print(json.dumps(summary, indent=2))
    else:
        _print(runs, notes, window)


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
    console.print(heading(runs.load, notes))
    for part in tables(runs.estimates, console.width, runs.slo is not None):
        console.print(part)
    console.print(prose(runs.estimates, console.width))
    if window is not None:
        for found in runs.values():
            console.print()
            console.print(window_table(found, window, runs.slo))
