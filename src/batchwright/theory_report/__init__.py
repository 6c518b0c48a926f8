"""The closed forms of `batchwright.theory` for one load and server, beside runs of the same.

    report = theory_report(load, cost, limits)
    print(report.text())

Every formula is shown with its numbers put in, so that it can be followed by hand, with the run
that checks it and the conditions under which it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from batchwright.cost import CostModel
from batchwright.limits import Limits
from batchwright.settled import settle
from batchwright.slo import Slo
from batchwright.theory_report.asked import ceilings, full_regime, limits_section, load_section
from batchwright.theory_report.batches import dynamic_section, static_section
from batchwright.theory_report.facts import facts
from batchwright.theory_report.gains import batch_section, gain_section, host_section
from batchwright.theory_report.quantity import Quantity, Section, lines, to_json
from batchwright.theory_report.residents import continuous_section
from batchwright.theory_report.simulated import Simulated, vllm_limits
from batchwright.theory_report.steady import resident_regime
from batchwright.theory_report.steps import Regime, linear_step
from batchwright.workload import Workload

SCHEMA_VERSION = 1
LEGEND = """E[.] is a mean over requests; s, o: prompt and output tokens; work: seconds that a request adds to
all of its steps together, their base apart.  Simulated values stand with their 95 % interval.

"""


@dataclass(frozen=True)
class TheoryReport:
    """Sections of quantities for `load`."""

    load: Workload
    sections: tuple[Section, ...]

    def __getitem__(self, key: str) -> Quantity:
        """The quantity called `key`, such as `tpot_s`.  Raises KeyError."""
        return next(found for part in self.sections for found in part.quantities if found.key == key)

    def text(self) -> str:
        """All sections, at most 110 characters wide."""
        return LEGEND + "\n\n".join("\n".join(lines(section)) for section in self.sections)

    def to_json(self) -> dict[str, Any]:
        """The quantities by key; units are named in each; the schema is in docs/theory.md."""
        return {
            "schema_version": SCHEMA_VERSION,
            "workload": {"name": self.load.name, "num_requests": len(self.load), "sha256": self.load.digest},
            "assumptions": [said for section in self.sections for said in section.said],
            "quantities": {q.key: to_json(q) for section in self.sections for q in section.quantities},
        }


def theory_report(
    load: Workload,
    cost: CostModel,
    limits: Limits | None = None,
    policies: Sequence[Any] = (),
    slo: Slo | None = None,
) -> TheoryReport:
    """Every formula for `load` on a server, beside its simulated value.

    `policies`: the first Static, Dynamic and Vllm among them set batch size, window, scheduling, slots and
    tokens of a step; else their defaults.  `slo`: its TPOT bounds a batch.

    Raises InputError if the load serves nobody, LimitError on what vLLM refuses to start with.
    """
    server = settle(limits or Limits(), cost, load)
    known = facts(load, server)
    runs = Simulated(load, known, cost, server, policies)
    settled = vllm_limits(runs.vllm, server)
    overlap = runs.vllm.async_scheduling
    full = linear_step(cost, known, full_regime(known, settled), overlap)
    step = linear_step(cost, known, resident_regime(cost, known, settled, overlap), overlap)
    alone = linear_step(cost, known, Regime(least=1, most=runs.size, prompts=runs.size, apart=True), False)
    found = ceilings(known, full, settled)
    sections = [
        load_section(known, runs),
        limits_section(known, full, settled, found, runs),
        static_section(known, alone, runs),
        dynamic_section(known, alone, runs),
        continuous_section(known, step, settled, found, runs),
        gain_section(known, alone, settled, runs),
        host_section(known, cost, settled),
        batch_section(known, full, settled, found, slo, runs),
    ]
    return TheoryReport(load, tuple(sections))
