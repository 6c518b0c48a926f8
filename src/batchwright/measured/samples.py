"""Steps that were measured: what each computed, and what it took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import nan

import numpy as np

from batchwright.measured.step_time import StepTime
from batchwright.metrics import Numbers
from batchwright.step import Step


@dataclass
class Samples:
    """`seconds` of each of `steps`.

    switches      did the step before have another number of tokens?
    ends          the instant at which each was over, on the clock of its run
    cpu_seconds   of this process inside the engine, of all its threads
    pulses        seconds of each pulse between the steps
    """

    steps: list[Step] = field(default_factory=list)
    switches: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    cpu_seconds: float = 0.0
    pulses: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def cpus(self) -> float:
        """CPUs that the engine had on average: as many as its threads, if nobody took them away."""
        return self.cpu_seconds / sum(self.seconds)

    @property
    def pulse(self) -> float:
        """Mean seconds of a pulse; nan: none was taken."""
        return sum(self.pulses) / len(self.pulses) if self.pulses else nan

    def errors(self, cost: StepTime) -> Numbers:
        """Of each step, relative: its time under `cost` against the measured one."""
        errors: Numbers = self.fitted(cost) / np.array(self.seconds) - 1
        return errors

    def total_error(self, cost: StepTime, paces: Numbers | float = 1.0) -> float:
        """The same of the sum of all steps; each takes its pace times as long."""
        return float((self.fitted(cost) * paces).sum() / sum(self.seconds) - 1)

    def fitted(self, cost: StepTime) -> Numbers:
        """Seconds of each step by `cost`."""
        steady = np.array([cost.seconds(step) for step in self.steps])
        more: Numbers = np.array(self.switches, float) * [cost.switch_seconds(step) for step in self.steps]
        return steady + more


def together(parts: Iterable[Samples]) -> Samples:
    """All of them, in order."""
    whole = Samples()
    for part in parts:
        whole.steps += part.steps
        whole.switches += part.switches
        whole.seconds += part.seconds
        whole.ends += part.ends
        whole.cpu_seconds += part.cpu_seconds
        whole.pulses += part.pulses
    return whole
