"""What may happen between two steps of a run, while its clock stands still."""

from __future__ import annotations

from typing import Protocol

from batchwright.engines.work import Work


class Between(Protocol):
    """`pulses`: seconds of each decode that was computed to see how fast the engine is."""

    pulses: list[float]

    def take(self, now: float, before: int, work: Work) -> float:
        """Seconds on the engine's clock that are not the run's, whose clock says `now`.

        `before`: tokens of the last step, less than 0 if there was none; `work`: the coming step.
        """
