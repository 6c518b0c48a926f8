"""An engine of fitted step times: what it is asked to run takes no time, but its clock goes on.

A prediction is a live run on it: the policies and the driver are those of the real run, and an engine
may have what a cost model cannot, the step before.
"""

from __future__ import annotations

from batchwright.engines.engine import Capacity
from batchwright.engines.work import Work
from batchwright.measured.pace import Pace
from batchwright.measured.step_time import StepTime, tokens_of
from batchwright.step import Step


class Rehearsal:
    """Takes `cost`, times the `pace` at that instant, on a virtual clock; every token is 0."""

    def __init__(self, cost: StepTime, capacity: Capacity, pace: Pace | None = None) -> None:
        self.capacity = capacity
        self._pace = pace
        self._cost = cost
        self._now = 0.0
        self._step = Step()
        self._tokens = -1  # of the step before

    def now(self) -> float:
        return self._now

    def sleep(self, until: float) -> None:
        self._now = max(self._now, until)

    def run(self, work: Work) -> list[int]:
        if work.rows:
            work.measure(self._step)
            tokens = tokens_of(self._step)
            seconds = self._cost.seconds(self._step)
            seconds += self._cost.switch_seconds(self._step) if tokens != self._tokens else 0.0
            self._now += seconds if self._pace is None else seconds * self._pace.at(self._now + seconds / 2)
            self._tokens = tokens
        return [0] * len(work.sampled)
