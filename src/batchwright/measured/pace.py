"""How fast the machine was in each second of a run.

A machine that others use too takes up to twice as long for the same step from one second to the next.  The
steps that were computed beside the run, and what they take by the model, tell by how much: the pace at
an instant is measured over fitted time of those around it.
"""

from __future__ import annotations

from typing import Final, Self

import numpy as np

from batchwright.measured.samples import Samples
from batchwright.measured.step_time import StepTime
from batchwright.metrics import Numbers

WIDTH: Final = 1.5  # seconds: standard deviation of the weights around an instant
FAR: Final = 1e-4  # weight of those that are far away, for instants that have none near
GRID: Final = 0.25  # seconds
LONGEST: Final = 3.0  # times its fitted time; how much longer a pause is is chance


class Pace:
    """Seconds per second of the model, at instants of a run's clock; 1 is the model's own."""

    def __init__(self, instants: Numbers, values: Numbers) -> None:
        self._instants = instants
        self._values = values

    @classmethod
    def of(cls, beside: Samples, model: StepTime) -> Self | None:
        """From steps `beside` a run, whose `ends` are instants of its clock; None: there are none."""
        if not len(beside):
            return None
        fitted, ends = beside.fitted(model), np.array(beside.ends)
        taken = np.minimum(np.array(beside.seconds), LONGEST * fitted)
        instants = np.arange(0.0, ends.max() + GRID, GRID)
        weights = np.exp(-0.5 * ((instants[:, None] - ends) / WIDTH) ** 2) + FAR
        return cls(instants, (weights @ taken) / (weights @ fitted))

    def at(self, instant: float) -> float:
        """The pace; beyond the ends that at the ends."""
        return float(np.interp(instant, self._instants, self._values))

    def over(self, instants: list[float]) -> Numbers:
        """That of each instant."""
        found: Numbers = np.interp(instants, self._instants, self._values)
        return found

    def range(self) -> tuple[float, float]:
        """The 5th and the 95th percentile over the run's seconds."""
        low, high = np.percentile(self._values, (5, 95)).tolist()
        return low, high
