"""`batchwright workload`: look at a load before anything runs."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from typer import Option

from batchwright.cli.options import load_command
from batchwright.scenario.keys import Scenario

workload: Final = typer.Typer(help="Look at workloads.", rich_markup_mode=None)


@workload.command("describe")
@load_command
def describe(
    scenario: Scenario,
    *,
    json: Annotated[bool, Option("--json", help="print JSON (docs/traces.md) instead of text")] = False,
) -> None:
    """Print rate, burstiness, lengths, what the longest of a batch costs, and prefix reuse."""
    from json import dumps

    from batchwright.scenario.loads import load_of
    from batchwright.workload import description
    from batchwright.workload.description_text import text

    found = description.describe(load_of(scenario))
    print(dumps(found.to_json(), indent=2) if json else text(found), end="\n" if json else "")
