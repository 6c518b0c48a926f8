"""An engine whose clock starts anew, and that keeps what each step computed and took."""

from __future__ import annotations

from batchwright.engines.engine import Engine
from batchwright.engines.work import Work
from batchwright.step import Step


class Recorder:
    """`engine`, with a clock that starts at 0 now.

    `steps`: what each step computed.  `seconds`: what it took, from the end of the one before or of a
    sleep, so with the decision before it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.capacity = engine.capacity
        self.steps: list[Step] = []
        self.seconds: list[float] = []
        self._start = engine.now()
        self._since = 0.0

    def now(self) -> float:
        return self.engine.now() - self._start

    def sleep(self, until: float) -> None:
        self.engine.sleep(until + self._start)
        self._since = self.now()

    def run(self, work: Work) -> list[int]:
        step = Step()
        work.measure(step)
        tokens = self.engine.run(work)
        now = self.now()
        self.steps.append(step)
        self.seconds.append(now - self._since)
        self._since = now
        return tokens
