"""Fair sharing between clients by virtual token counters (VTC).

    counter    + prompt_weight per prompt token at admission, + output_weight per token of output
    next       the first request of the client with the least counter, of those that wait
    lift       a client that comes back is lifted to the least counter of those that wait, or, if
               nobody waits, to that of the client whose last request was admitted last

so a client that was idle has no credit.  Of two that always wait, neither gets ahead of the other by
more than 2 max(prompt_weight * prompt, output_weight * M), M tokens being those that the batch holds.

A preempted request waits in front of its client's others and is not charged for its prompt again.
Between two events nobody's turn changes: the counters are those of the last event.  Since nobody can
be admitted without one, that delays no one but a request that fits where the one in front does not.

Source: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024, algorithm 2 and
theorem 4.4.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.policies.check import check_number
from batchwright.request import Request
from batchwright.tally import Tally


@ordinary
@dataclass(frozen=True)
class Vtc:
    """`prompt_weight`, `output_weight`: what a token counts; those of the paper by default.

    Raises InputError on a value that cannot be.
    """

    prompt_weight: float = 1.0
    output_weight: float = 2.0

    def __post_init__(self) -> None:
        check_number("vtc", self, "prompt_weight", 0.0, 1e6)
        check_number("vtc", self, "output_weight", 0.0, 1e6)

    @property
    def note(self) -> str:
        return ""

    def begin(self, batch: Batch, ask: Policy) -> Policy:
        batch.tally = Tally()
        line = FairLine(batch, batch.tally, float(self.prompt_weight), float(self.output_weight))
        batch.wait_in(line)
        return FairRun(line, ask)


class FairRun:
    """Brings the counters up to date, then asks the policy within."""

    def __init__(self, line: FairLine, ask: Policy) -> None:
        self.line = line
        self.ask = ask

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        self.line.settle()
        self.line.is_admitting = True
        self.ask(b)
        self.line.is_admitting = False
        self.line.is_stale = b.edits > 0


class FairLine:
    """The requests that wait, by client, and what each client has been served."""

    def __init__(self, batch: Batch, tally: Tally, prompt_weight: float, output_weight: float) -> None:
        self.batch = batch
        self.tally = tally
        self.prompt_weight = prompt_weight
        self.output_weight = output_weight
        self.lines: dict[int, deque[Request]] = {}  # of the clients that wait
        self.is_admitting = False  # is a request that is taken out admitted?
        self._charged: dict[int, float] = {}  # prompts, and lifts
        self._last = -1  # the client whose last request was admitted last
        self._clock = 0  # of the counters
        self._changes = 0  # of the tally when they were read,
        self._num_running = 0  # and how many ran
        self.is_stale = False  # has a step been edited since?
        self._next: Request | None = None  # who is first, if that is known

    def counter(self, client: int) -> float:
        """What `client` has been served, and lifted by."""
        tokens = self.tally.tokens(client, self._clock)
        return self._charged.get(client, 0.0) + self.output_weight * tokens

    def settle(self) -> None:
        """Read the counters anew, if anything but the clock has moved."""
        b = self.batch
        if self.is_stale or self._changes != self.tally.changes or self._num_running != b.num_running:
            self._read()

    def _read(self) -> None:
        self._changes = self.tally.changes
        self._num_running = self.batch.num_running
        self._clock = self.batch.clock
        self._next = None

    # --- as a line ------------------------------------------------------------

    def push(self, r: Request) -> None:
        self._read()
        line = self.lines.get(r.client)
        if line is None:
            if r.preemptions == 0:
                self._lift(r.client)
            self.lines[r.client] = deque((r,))
        elif r.preemptions > 0:
            line.appendleft(r)
        else:
            line.append(r)

    def first(self) -> Request:
        if self._next is None:
            self._next = min([self._turn(client, line[0]) for client, line in self.lines.items()])[3]
        return self._next

    def head(self, count: int) -> list[Request]:
        """As if each were admitted in turn."""
        turns = [self._turn(client, line[0]) for client, line in self.lines.items()]
        heapify(turns)
        places = dict.fromkeys(self.lines, 0)
        found: list[Request] = []
        while turns and len(found) < count:
            counter, _, _, r = heappop(turns)
            found.append(r)
            line, place = self.lines[r.client], places[r.client] + 1
            if place < len(line):
                places[r.client] = place
                later = line[place]
                heappush(turns, (counter + self._price(r), later.arrival, later.id, later))
        return found

    def take(self, r: Request) -> None:
        line = self.lines[r.client]
        if line[0] is r:
            line.popleft()
        else:
            line.remove(r)
        if not line:
            del self.lines[r.client]
        if self.is_admitting:
            self._last = r.client
            self._charged[r.client] = self._charged.get(r.client, 0.0) + self._price(r)
        self._next = None

    # --- counters -------------------------------------------------------------

    def _turn(self, client: int, r: Request) -> tuple[float, float, int, Request]:
        return (self.counter(client), r.arrival, r.id, r)

    def _price(self, r: Request) -> float:
        """What the admission of `r` costs its client."""
        return self.prompt_weight * r.prompt if r.preemptions == 0 else 0.0

    def _lift(self, client: int) -> None:
        """Take from `client`, which has nobody waiting, what it did not use while it was idle."""
        if self.lines:
            least = min([self.counter(other) for other in self.lines])
        elif self._last >= 0:
            least = self.counter(self._last)
        else:
            return
        behind = least - self.counter(client)
        if behind > 0:
            self._charged[client] = self._charged.get(client, 0.0) + behind
