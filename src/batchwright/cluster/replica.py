"""One replica of a cluster: a simulator that is run only as far as somebody looks.

A router may read what a real one can know at the moment at which a request comes: how many requests
it has sent there that have not left, what the engine reports of its queue and memory, which prefixes
are cached.  Nothing here tells how long an output is going to be.

Counts change only where a step or a quiet stretch ends, so they need no more than a comparison while
none has; KV blocks change with every step.
"""

from __future__ import annotations

from batchwright.limits import Limits
from batchwright.request import NEVER, Request
from batchwright.simulator import Simulator


class Clock:
    """The time of a cluster, in seconds: that of the event at hand."""

    def __init__(self) -> None:
        self.now = 0.0


class Replica:
    """The replica number `index`.  `simulator` is the cluster's own; routers leave it alone."""

    def __init__(self, index: int, simulator: Simulator, clock: Clock) -> None:
        self.index = index
        self.simulator = simulator
        self.is_sought = False  # does the cluster always need to know when something ends here?
        self.waking = NEVER  # the wake-up that the cluster knows of
        self._clock = clock
        self._next = 0.0  # until then no count changes by itself

    # --- for routers ----------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """Its limits."""
        return self.simulator.batch.limits

    @property
    def seats(self) -> int:
        """Requests that its policy runs at once."""
        return self.simulator.batch.max_running

    @property
    def num_requests(self) -> int:
        """Requests that were sent there and have not left: they wait or run."""
        self._settle()
        return self.simulator.num_sent

    @property
    def num_waiting(self) -> int:
        """Those among them that have no seat."""
        self._settle()
        return self.simulator.num_sent - self.simulator.batch.num_running

    @property
    def num_running(self) -> int:
        """Those among them that have a seat."""
        self._settle()
        return self.simulator.batch.num_running

    @property
    def pending_tokens(self) -> int:
        """Tokens of prompts that it still has to compute; O(requests that wait there)."""
        self._settle()
        return self.simulator.pending_tokens

    @property
    def free_blocks(self) -> int:
        """KV blocks that nobody holds."""
        self.simulator.advance(self._clock.now)
        return self.simulator.batch.blocks.free

    def cached_tokens(self, r: Request) -> int:
        """Leading tokens of the prompt of `r` whose KV is in its prefix cache now."""
        self.simulator.advance(self._clock.now)
        blocks = self.simulator.batch.blocks
        return len(blocks.lookup(r)) * blocks.block_size

    # --- for the cluster ------------------------------------------------------

    @property
    def is_watched(self) -> bool:
        """Does what ends here make something happen elsewhere?"""
        return self.is_sought or self.simulator.num_open > 0

    @property
    def has_seat(self) -> bool:
        """Is a seat free, and nobody waiting for memory to take it?  With an empty batch all are."""
        self._settle()
        b = self.simulator.batch
        return (b.num_waiting == 0 or not b.running) and self.simulator.num_sent < self.seats

    def take(self, r: Request) -> None:
        """Let `r` come here, now."""
        self.simulator.take(r)
        self._next = 0.0

    def offer(self, r: Request, tokens: int) -> None:
        """Let `r` come here, now, with the KV of `tokens` tokens on another replica."""
        self.simulator.offer(r, tokens, self._clock.now)
        self._next = 0.0

    def advance(self, until: float) -> None:
        """Run all that ends by `until`, and decide nothing then."""
        self.simulator.advance(until)
        self._next = self.simulator.upcoming

    def start(self) -> float:
        """All that happens now has happened: plan.  When something ends here if nobody comes, or NEVER."""
        self.simulator.advance(self._clock.now)
        self._next = self.simulator.plan()
        return self._next

    def _settle(self) -> None:
        if self._next <= self._clock.now:
            self.advance(self._clock.now)
