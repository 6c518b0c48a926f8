"""`batchwright theory`: the closed forms for one load and server, beside runs of the same."""

from __future__ import annotations

import json

from batchwright.scenario.build import prepare
from batchwright.scenario.keys import Scenario
from batchwright.theory_report import theory_report


def theory(scenario: Scenario, *, as_json: bool) -> None:
    """Print every formula with its numbers put in.  Raises BatchwrightError."""
    prepared = prepare(scenario)
    found = theory_report(
        prepared.load, prepared.cost, prepared.limits, policies=list(prepared.policies.values())
    )
    if as_json:
        extra = {"cost": prepared.cost_name, "notes": prepared.notes}
        print(json.dumps({**found.to_json(), **extra}, indent=2))
        return
    print(prepared.load.describe())
    for note in prepared.notes:
        print(f"  {note}")
    print(f"\n{found.text()}")
