"""How fast an engine is in the middle of a run: the time of one decode that belongs to nobody.

A probe after a run cannot see that the machine was slow meanwhile.  So now and then the run's clock is
stopped, and the engine computes a decode whose KV goes to the scratch block.  It does so only before a
step of another number of tokens than the one before: engines prepare for that anyway, so the run is
what it would have been.
"""

from __future__ import annotations

from typing import Final

from batchwright.engines.engine import Engine
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.request import DECODING, Request

EVERY: Final = 0.5  # seconds, at least
TOKENS: Final = 1


class Pulse:
    """Decodes of one token on `engine`, if it has a scratch block: `Between` steps."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.pulses: list[float] = []
        self._scratch = engine.capacity.num_kv_blocks
        self._last = engine.now()

    def take(self, now: float, before: int, work: Work) -> float:
        """Seconds of a pulse, if it is time for one."""
        begin = self.engine.now()
        if self._scratch is None or begin - self._last < EVERY or not _changes(before, len(work.tokens)):
            return 0.0
        self.engine.run(decodes(self._scratch, TOKENS))
        self._last = self.engine.now()
        self.pulses.append(self._last - begin)
        return self.pulses[-1]


def _changes(before: int, tokens: int) -> bool:
    """Does the engine prepare for another shape anyway, and for the pulse's too?"""
    return before >= 0 and len({before, tokens, TOKENS}) == 3


def decodes(scratch: int, rows: int) -> Work:
    """So many rows of one token, with nothing before it, that belong to nobody."""
    work = Work(scratch)
    for i in range(rows):
        request = Request(i, 0.0, 1, 1)
        request.state = DECODING
        sequence = Sequence(request, [0])
        sequence.table = [scratch]
        work.add(sequence, past=0, tokens=[0], padding=0, is_sampled=True)
    return work
