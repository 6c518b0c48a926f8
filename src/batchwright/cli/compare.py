"""`batchwright compare`: one load, several policies, one table."""

from __future__ import annotations

import json

from batchwright.cli.progress import progress
from batchwright.comparison import Runs, run
from batchwright.report import NARROWEST, remarks, tables
from batchwright.scenario.build import prepare
from batchwright.scenario.keys import Scenario


def compare(scenario: Scenario, *, as_json: bool) -> None:
    """Read the trace, run every policy, print the table.  Raises BatchwrightError."""
    prepared = prepare(scenario)
    runs = {}
    with progress(len(prepared.policies)) as report:
        for name, policy in prepared.policies.items():
            with prepared.blaming(name):
                runs[name] = run(name, policy, prepared.load, prepared.cost, prepared.limits, report)
    result = Runs(prepared.load, prepared.limits, runs)
    notes = [*prepared.notes, *(found.note for found in runs.values() if found.note)]
    if as_json:
        print(json.dumps({**result.to_json(), "cost": prepared.cost_name, "notes": notes}, indent=2))
    else:
        _print(result, notes)


def _print(runs: Runs, notes: list[str]) -> None:
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False)
    console.width = max(console.width, NARROWEST)
    console.print(runs.load.describe())
    for note in notes:
        console.print(f"  {note}")
    for part in tables(runs, console.width):
        console.print(part)
    for line in remarks(runs):
        console.print(line)
