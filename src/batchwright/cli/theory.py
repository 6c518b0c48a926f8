"""`batchwright theory`: the closed forms for one load and server, beside runs of the same."""

from __future__ import annotations

import json
from collections.abc import Iterator

from batchwright.cli.screen import heading
from batchwright.scenario.build import Prepared, prepare
from batchwright.scenario.keys import Scenario
from batchwright.theory_report import theory_report
from batchwright.theory_report.simulated import not_in_formulas, used_policies


def theory(scenario: Scenario, *, as_json: bool) -> None:
    """Print every formula with its numbers put in.  Raises BatchwrightError."""
    prepared = prepare(scenario)
    policies = list(prepared.policies.values())
    found = theory_report(prepared.load, prepared.cost, prepared.limits, policies, prepared.slo)
    notes = [*prepared.notes, *_left_out(prepared)]
    if as_json:
        extra = {"cost": prepared.cost_name, "notes": notes}
        print(json.dumps({**found.to_json(), **extra}, indent=2))
        return
    print(f"{heading(prepared.load, notes)}\n\n{found.text()}")


def _left_out(prepared: Prepared) -> Iterator[str]:
    """What the scenario asks for that no formula uses."""
    used = used_policies(list(prepared.policies.values()))
    other = [name for name, policy in prepared.policies.items() if not any(policy is own for own in used)]
    if other:
        yield f"no formulas for {', '.join(other)}: they are those of the first static, dynamic and vllm"
    yield from not_in_formulas(used)
    unused = [name for name in (prepared.slo.limits if prepared.slo else {}) if name != "tpot"]
    if unused:
        yield f"no formula bounds a batch by {', '.join(unused)}: of the objectives only tpot is used here"
    if prepared.scenario.repeat > 1:
        yield "the intervals are those of one run of the load; --repeat has no effect here"
