"""The steps of a calibration, kept, so that an engine can compute them again in the middle of a run.

On a machine that others use too, the same step takes up to twice as long from one second to the next, so
what is measured before a run is of another machine than the run's.  Therefore the run's clock is
stopped now and then, and the engine computes some of these steps, in KV blocks that the run has not:
as long as the run has computed since the last time.  Both see the same machine then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random
from typing import Final

from batchwright.engines.engine import Engine
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.measured.pace import Pace
from batchwright.measured.pulse import decodes
from batchwright.measured.samples import Samples
from batchwright.request import Request
from batchwright.step import Step

EVERY: Final = 0.15  # seconds of the run between two pieces, at least
LONGEST: Final = 1.0  # seconds of a piece, about
TOGETHER: Final = 8  # steps that follow each other as they did


@dataclass
class Tape:
    """Steps of the small loads, and of the burst; and what was measured of each of the two.

    num_shapes   small loads that were run
    """

    small: list[Work] = field(default_factory=list)
    burst: list[Work] = field(default_factory=list)
    measured: tuple[Samples, Samples] = field(default_factory=lambda: (Samples(), Samples()))
    num_shapes: int = 0

    def add(self, found: Samples, are_burst: list[bool], pace: Pace) -> None:
        """What was measured again, as if at the pace of what was measured first."""
        for i in range(len(found)):
            samples = self.measured[are_burst[i]]
            samples.steps.append(found.steps[i])
            samples.switches.append(found.switches[i])
            samples.seconds.append(found.seconds[i] / pace.at(found.ends[i]))
        self.measured[0].cpu_seconds += found.cpu_seconds


class Taping:
    """Keeps the steps that are run, in `works`, as steps of nobody in the blocks from `first` on."""

    def __init__(self, works: list[Work], first: int) -> None:
        self.pulses: list[float] = []
        self._works = works
        self._first = first

    def take(self, now: float, before: int, work: Work) -> float:
        self._works.append(_copy(work, self._first))
        return 0.0


class Replay:
    """Computes a tape on `engine`, piece by piece, again and again.

    found       what was measured; `ends` are on the clock of the run
    are_burst   is the step one of the burst?
    """

    def __init__(self, engine: Engine, tape: Tape) -> None:
        assert engine.capacity.num_kv_blocks is not None, "a tape is of an engine with blocks"
        self.pulses: list[float] = []
        self.found = Samples()
        self.are_burst: list[bool] = []
        self._engine = engine
        self._scratch = engine.capacity.num_kv_blocks
        self._steps = _shuffled(tape)
        self._next = 0
        self._last = 0.0  # end of the last piece, on the run's clock
        self._tokens = -1  # of the step before

    def take(self, now: float, before: int, work: Work) -> float:
        since = now - self._last
        if before < 0 or since < EVERY:
            return 0.0
        begin = self._engine.now()
        self._last = now
        self._tokens = before
        until = begin + min(since, LONGEST)
        while self._engine.now() < until:
            self._play(now)
        self._prepare(work, is_same=len(work.tokens) == before)
        return self._engine.now() - begin

    def _play(self, now: float) -> None:
        work, is_burst = self._steps[self._next % len(self._steps)]
        step, found = Step(), self.found
        work.measure(step)
        begin, begin_cpu = self._engine.now(), time.process_time()
        self._engine.run(work)
        found.seconds.append(self._engine.now() - begin)
        found.cpu_seconds += time.process_time() - begin_cpu
        found.steps.append(step)
        found.switches.append(len(work.tokens) != self._tokens)
        found.ends.append(now)
        self.are_burst.append(is_burst)
        self._tokens = len(work.tokens)
        self._next += 1

    def _prepare(self, work: Work, is_same: bool) -> None:
        """Leave the engine as prepared, or as unprepared, for the shape of `work` as the run has left it.

        To compute a step twice writes the same KV, and gives the same tokens.
        """
        if is_same:
            self._engine.run(work)
        elif len(work.tokens) == self._tokens:
            self._engine.run(decodes(self._scratch, 2 if len(work.tokens) == 1 else 1))


def _shuffled(tape: Tape) -> list[tuple[Work, bool]]:
    """All steps, a few that follow each other at a time, and whether they are of the burst."""
    parts = [
        [(work, is_burst) for work in works[i : i + TOGETHER]]
        for works, is_burst in ((tape.small, False), (tape.burst, True))
        for i in range(0, len(works), TOGETHER)
    ]
    Random(0).shuffle(parts)
    return [one for part in parts for one in part]


def _copy(work: Work, first: int) -> Work:
    """A step that takes as long, in the blocks from `first` on."""
    copy = Work(work.scratch)
    for row in range(len(work.rows)):
        count, padding, table = work.counts[row], work.padding[row], work.rows[row].table
        request = Request(row, 0.0, 1, 1)
        request.state = work.rows[row].request.state
        sequence = Sequence(request, [0])
        sequence.table = list(range(first, first + len(table)))
        first += len(table)
        is_sampled = work.rows[row] in work.sampled
        copy.add(sequence, work.past[row], [0] * (count - padding), padding, is_sampled)
    copy.tokens = list(work.tokens)
    return copy
