"""The requests that are yet to come, and the front end that rejects or shortens them.

In a closed loop a client sends its next request when the last one has ended: such a follower
is not in the line, and has no time, until then.  `num_open` requests will call for followers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Final

from batchwright.errors import RequestError
from batchwright.limits import Limits
from batchwright.request import CANCELLED, COMING, NEVER, NEW, Request

AHEAD: Final = 256  # requests drawn from a source at once


def _arrival(r: Request) -> float:
    return r.arrival


class Arrivals:
    """A line of requests in order of arrival; `time` is the next one's, or NEVER."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.time = NEVER
        self.is_closed = False  # can nobody be added any more?
        self.rejected: list[int] = []  # ids of requests whose prompt is over max_model_len
        self.num_cut = 0  # requests whose output was cut to max_model_len or max_tokens
        self.num_open = 0  # requests that have not ended and have followers
        self.follower_ids: list[int] = []  # followers that have a time,
        self.follower_times: list[float] = []  # and when they arrive
        self._ended: list[tuple[Request, float]] = []  # their followers are being added
        self._longest = limits.longest
        self._line: list[Request] = []  # in order; those from `_next` on have not come yet
        self._next = 0
        self._source: Iterator[Request] = iter(())  # of more
        self._last = NEVER  # the latest arrival drawn from it; NEVER: it is empty

    @property
    def are_over(self) -> bool:
        """Can no request come any more?"""
        return self.is_closed and self.time == NEVER and self.num_open == 0

    @property
    def num_coming(self) -> int:
        """Requests that have been added, and have not been popped."""
        return len(self._line) - self._next

    def coming(self) -> list[Request]:
        """Those requests, in order."""
        return self._line[self._next :]

    @property
    def are_stuck(self) -> bool:
        """Can a request come only after another one has ended?"""
        return self.is_closed and self.time == NEVER and self.num_open > 0

    def add(self, r: Request) -> None:
        """Put `r` into the line, or what follows it if it is rejected.

        Raises RequestError if one is not new, or the KV cache cannot hold it.
        """
        if r.queued != NEW:
            raise RequestError(f"request {r.id} has been run before; make a new one")
        r.queued = COMING
        if r.prompt + r.max_tokens > self._longest and not self._shorten(r):
            if r.then is not None:
                self._follow(r, r.arrival)
            return
        if r.then is not None:
            self.num_open += 1
        if r.true_output > r.max_tokens:
            r.true_output = r.max_tokens
            self.num_cut += 1
        line = self._line
        if line and r.arrival < line[-1].arrival:
            insort(line, r, lo=self._next, key=_arrival)
        else:
            line.append(r)
        if r.arrival < self.time:
            self.time = r.arrival

    def ended(self, r: Request, instant: float) -> None:
        """The client of `r` has seen its end at `instant`: its followers come.

        Raises RequestError as `add`, and if one would arrive before `instant`.
        """
        self.num_open -= 1
        if self._next > AHEAD and 2 * self._next > len(self._line):  # the line may never be empty
            del self._line[: self._next]
            self._next = 0
        self._follow(r, instant)

    def _follow(self, r: Request, instant: float) -> None:
        self._ended.append((r, instant))
        if len(self._ended) > 1:  # the loop below has added a follower that is rejected: it goes on with it
            return
        for last, at in self._ended:
            assert last.then is not None
            for follower in last.then(last, at):
                if follower.arrival < at:
                    raise RequestError(
                        f"request {follower.id} arrives at {follower.arrival} s, before the end of request "
                        f"{last.id}, which it follows, at {at} s; let it arrive then or later"
                    )
                self.follower_ids.append(follower.id)
                self.follower_times.append(follower.arrival)
                self.add(follower)
        self._ended.clear()

    def feed(self, source: Iterable[Request], since: float) -> None:
        """Add the requests of `source`, drawn a few at a time, and then nobody else.

        Raises RequestError while the source before it is not used up, or if one runs backwards.
        """
        if self._last < NEVER:
            raise RequestError(
                "more requests are fed before the last ones have come; chain both, or advance first"
            )
        self._source = iter(source)
        self._last = since
        self.is_closed = True
        self._refill()

    def pop(self) -> Request:
        """The next request, which has come."""
        r = self._line[self._next]
        self._next += 1
        if self._next == len(self._line):
            self._line.clear()
            self._next = 0
            self.time = NEVER
        else:
            self.time = self._line[self._next].arrival
        if self.time > self._last:  # the source may have somebody who comes before
            self._refill()
        return r

    def _refill(self) -> None:
        """Draw from the source until the next request is sure.  Raises RequestError if it runs backwards."""
        for drawn, r in enumerate(self._source, start=1):
            if r.arrival < self._last:
                raise RequestError(
                    f"request {r.id} arrives at {r.arrival} s, after one of {self._last} s; "
                    "sort requests by arrival"
                )
            self._last = r.arrival
            self.add(r)
            if drawn >= AHEAD and self.time <= self._last:
                return
        self._last = NEVER  # nobody is left in it

    def _shorten(self, r: Request) -> bool:
        """Cut `max_tokens` to what the longest request may have; False if its prompt is too long."""
        limits, longest = self.limits, self._longest
        if limits.max_model_len is None and r.prompt + r.true_output > longest:
            raise RequestError(
                f"request {r.id}: prompt of {r.prompt} and output of {r.true_output} tokens cannot fit "
                f"{limits.blocks} blocks of {limits.block_size}; raise num_kv_blocks or set max_model_len"
            )
        if r.prompt >= longest:
            self.rejected.append(r.id)
            r.state = CANCELLED
            return False
        r.max_tokens = longest - r.prompt
        return True
