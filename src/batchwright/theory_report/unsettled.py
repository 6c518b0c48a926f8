"""Where a run cannot be held against a steady state, and what the formula says of the run itself.

A run ends with the last of its requests, so it serves n / duration, less than come per second; near
saturation the mean step, base / (1 - rate work), is very sensitive to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from batchwright.errors import InputError
from batchwright.run import Run
from batchwright.run.saturation import STEADY
from batchwright.theory_report.facts import Facts
from batchwright.theory_report.quantity import plain, seconds, shown

NEAR: Final = 0.9  # load from which queues need long runs
TURNS: Final = 10  # times that a state takes to settle; a run of fewer is short


@dataclass(frozen=True, kw_only=True)
class Settledness:
    """`why` a run is no steady state, '' if it is one; `facts`: of the load, at the rate that it serves."""

    why: str
    facts: Facts

    @property
    def said(self) -> tuple[str, ...]:
        """A line for the section, if there is something to say."""
        return (f"the simulated run may not be steady: {self.why}",) if self.why else ()

    def differs(self, unit: str, value: Callable[[Facts], float]) -> str:
        """What to put behind the conditions of a formula: its `value` at the rate that the run serves."""
        if not self.why:
            return ""
        try:
            own = shown(value(self.facts), unit)
        except InputError:
            return "; the run may not be steady"
        return f"; the run may not be steady: {own} at the {plain(self.facts.rate)} requests/s that it serves"


def settledness(run: Run, facts: Facts, load: float, settling: float) -> Settledness:
    """Of a run at `load` (a share), whose state takes `settling` seconds to settle."""
    verdict, reasons = run.saturation(), []
    if load > NEAR:
        reasons.append(f"load {load:.1%} is over {NEAR:.0%}, where queues change slowly")
    if verdict.kind != STEADY:
        reasons.append(verdict.text)
    if run.span < TURNS * settling:
        reasons.append(
            f"arrivals for {seconds(run.span)} are under {TURNS} x {seconds(settling)}, "
            "the time in which its state settles"
        )
    served = len(facts.outputs) / run.summary.duration
    return Settledness(why="; ".join(reasons), facts=replace(facts, rate=served))
