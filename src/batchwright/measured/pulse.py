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
    """Decodes of one token on `engine`, if it has a scratch block.  `seconds`: of each of them."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.seconds: list[float] = []
        self._scratch = engine.capacity.num_kv_blocks
        self._last = engine.now()

    def take(self, before: int, tokens: int) -> float:
        """Seconds on the engine's clock that are not the run's: those of a pulse, if it is time for one.

        `before`, `tokens`: of the last step, less than 0 if there was none, and of the coming one.
        """
        begin = self.engine.now()
        if self._scratch is None or begin - self._last < EVERY or not _changes(before, tokens):
            return 0.0
        self.engine.run(_decode(self._scratch))
        self._last = self.engine.now()
        self.seconds.append(self._last - begin)
        return self.seconds[-1]


def _changes(before: int, tokens: int) -> bool:
    """Does the engine prepare for another shape anyway, and for the pulse's too?"""
    return before >= 0 and len({before, tokens, TOKENS}) == 3


def _decode(scratch: int) -> Work:
    """One row, with nothing before it."""
    request = Request(0, 0.0, 1, 1)
    request.state = DECODING
    sequence = Sequence(request, [0])
    sequence.table = [scratch]
    work = Work(scratch)
    work.add(sequence, past=0, tokens=[0], padding=0, is_sampled=True)
    return work
