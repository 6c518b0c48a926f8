"""An engine whose clock starts anew, and that keeps what each step computed and took, and its pulse."""

from __future__ import annotations

import time
from math import inf, nextafter

from batchwright.engines.engine import Engine
from batchwright.engines.work import Work
from batchwright.measured.between import Between
from batchwright.measured.pulse import Pulse
from batchwright.measured.samples import Samples
from batchwright.measured.step_time import tokens_of
from batchwright.step import Step


class Recorder:
    """`engine`, with a clock that starts at 0 now.

    A step takes from the end of the one before, or of a sleep: so with the decision before it.
    The clock stands still for what is `between` two steps: pulses, unless it is given.
    """

    def __init__(self, engine: Engine, between: Between | None = None) -> None:
        self.engine = engine
        self.capacity = engine.capacity
        self.samples = Samples()
        self._between = between or Pulse(engine)
        self.samples.pulses = self._between.pulses
        self._start = engine.now()
        self._since = 0.0
        self._tokens = -1  # of the step before

    def now(self) -> float:
        return self.engine.now() - self._start

    def sleep(self, until: float) -> None:
        self.engine.sleep(nextafter(until + self._start, inf))  # so that rounding never ends it early
        self._since = self.now()

    def run(self, work: Work) -> list[int]:
        return self._timed(work) if work.rows else self.engine.run(work)

    def _timed(self, work: Work) -> list[int]:
        self._start += self._between.take(self.now(), self._tokens, work)
        step = Step()
        work.measure(step)
        begun = time.process_time()
        tokens = self.engine.run(work)
        found, now = self.samples, self.now()
        found.cpu_seconds += time.process_time() - begun
        found.steps.append(step)
        found.switches.append(tokens_of(step) != self._tokens)
        self._tokens = tokens_of(step)
        found.seconds.append(now - self._since)
        found.ends.append(now)
        self._since = now
        return tokens
