"""Longest cached prefix first: who finds most of its prompt in the prefix cache is admitted first.

    key    tokens of cached blocks that it would start from, most first; then the preempted, then who
           came first

The cache changes with every step, so the order is made anew after an event, and only while a seat is
free.  If more than `most` wait, which would cost a look-up each, it is first come, first served.

Source: SGLang's schedule policy `lpm`, which falls back to fcfs over 128 waiting requests.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.policies.check import check_count
from batchwright.request import Request


@ordinary
@dataclass(frozen=True)
class Lpm:
    """`most`: requests that may wait before the order is first come.  Raises InputError below 1."""

    most: int = 128

    def __post_init__(self) -> None:
        check_count("lpm", self, "most")

    @property
    def note(self) -> str:
        return ""

    def begin(self, batch: Batch, ask: Policy) -> Policy:
        line = PrefixLine(self.most)
        batch.wait_in(line)
        return LpmRun(line, ask)


class LpmRun:
    """Orders those that wait after an event, then asks the policy within."""

    def __init__(self, line: PrefixLine, ask: Policy) -> None:
        self.line = line
        self.ask = ask
        self.num_running = -1  # when the order was made

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        if b.num_running != self.num_running:
            self.line.is_stale = True
        if self.line.is_stale and b.num_waiting > 0 and b.num_running < b.max_running:
            self.line.order(b)
            self.num_running = b.num_running
        self.ask(b)
        if b.edits > 0:
            self.line.is_stale = True


class PrefixLine:
    """The requests that wait: as they came, and in the order of the last look at the cache."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.is_stale = False  # has anything happened since?
        self._come: deque[Request] = deque()  # the preempted in front
        self._found: list[Request] | None = None  # the same, longest prefix first; None: as they came

    def order(self, b: Batch) -> None:
        """Look up what each would find in the cache now."""
        self.is_stale = False
        if len(self._come) > self.most or b.blocks.num_cached == 0:
            self._found = None
            return
        found = {r: -len(b.blocks.lookup(r)) for r in self._come}
        self._found = sorted(self._come, key=found.__getitem__)

    # --- as a line ------------------------------------------------------------

    def push(self, r: Request) -> None:
        self.is_stale = True
        if r.preemptions > 0:
            self._come.appendleft(r)
        else:
            self._come.append(r)
        if self._found is not None:
            self._found.append(r)

    def first(self) -> Request:
        return self._come[0] if self._found is None else self._found[0]

    def head(self, count: int) -> list[Request]:
        return list(islice(self._come if self._found is None else self._found, count))

    def take(self, r: Request) -> None:
        if self._come[0] is r:
            self._come.popleft()
        else:
            self._come.remove(r)
        if self._found is not None:
            self._found.remove(r)
