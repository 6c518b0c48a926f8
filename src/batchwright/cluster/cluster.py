"""Requests come to a router, which sends each to one of several replicas.

The loop takes events in order (`events`).  A replica is advanced only where somebody looks:

    the router reads it                 up to the arrival at hand
    others wait for what ends there     end by end, in the order of all replicas: a request that others
                                        follow (`then`), or the central queue
    nobody looks                        in one go, at the end

In a closed loop a follower comes to the router again, so it may go to another replica.

With a second router prompts are computed on one replica and decoded on another (`handovers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isnan
from typing import Final

from batchwright.cluster.contract import Router, RouterBegins
from batchwright.cluster.events import ARRIVAL, WAKE, Event, Events
from batchwright.cluster.handovers import Handovers
from batchwright.cluster.replica import Clock, Replica
from batchwright.cluster.routers import CentralQueue
from batchwright.errors import InputError, PolicyError, RequestError
from batchwright.link import Link
from batchwright.request import LAST_ID, NEVER, Request
from batchwright.simulator import Simulator

AHEAD: Final = 1024  # requests that are sent before all replicas are run up to the last, to save memory
Then = Callable[[Request, float], Sequence[Request]]
Asked = Callable[[Request, Sequence[Replica]], object]


class Cluster:
    """Replicas, each with its own policy, cost and limits, behind `router`.

    `decoder`: names the replica that decodes a request whose prompt is complete, with its KV over `link`;
    None: the same one.  Raises InputError without replicas or link, PolicyError if nobody can be asked where
    requests go.
    """

    def __init__(
        self,
        simulators: Sequence[Simulator],
        router: Router | RouterBegins,
        decoder: Router | None = None,
        link: Link | None = None,
    ) -> None:
        if not simulators:
            raise InputError("a cluster has no replica; give it one simulator for each")
        self.events = Events()
        self._clock = Clock()
        self.replicas = [Replica(i, simulator, self._clock) for i, simulator in enumerate(simulators)]
        self._route = _begun(router, len(simulators))  # whose answer is checked, whatever it is
        self._is_central = isinstance(self._route, CentralQueue)
        self._line: deque[Request] = deque()  # who waits for a seat anywhere (central queue)
        self._thens: dict[Request, Then] = {}  # of those who have not ended
        self._followers: dict[int, float] = {}  # when each came, by id
        self._touched: list[Replica] = []  # they plan once all has happened now
        self._source: Iterator[Request] = iter(())
        self._last = 0.0  # the latest arrival drawn from it
        self._is_closed = False  # can nobody be submitted any more?
        self._is_over = False  # and can nobody follow either?
        self._num_coming = 0  # arrivals among the events
        self._num_submitted = 0
        self._num_unseen = 0  # requests sent since all replicas were run up to one
        for replica in self.replicas:
            replica.is_sought = self._is_central
        self.handovers: Handovers | None = None
        if decoder is not None:
            if link is None:
                raise InputError("a cluster hands prompts over, but no link is given; give one")
            self.handovers = Handovers(self.replicas, decoder, link, self._touch)

    # --- for users ------------------------------------------------------------

    @property
    def now(self) -> float:
        """How far the clock is, in seconds."""
        return self._clock.now

    @property
    def arrived(self) -> dict[int, float]:
        """When each request came that followed another one, by id."""
        return dict(self._followers)

    def submit(self, r: Request) -> None:
        """Let `r` come to the router at `r.arrival`.  Raises RequestError if that is in the past."""
        if r.arrival < self._clock.now:
            raise RequestError(
                f"request {r.id} arrives at {r.arrival} s, but the clock is at {self._clock.now} s; "
                "submit it earlier"
            )
        if self._is_closed:
            raise RequestError(f"request {r.id} is submitted after drain(); submit it before")
        self._num_submitted += 1
        self._expect(r, self._num_submitted)

    def drain(self) -> None:
        """No more requests can come, but for those that follow others."""
        self._is_closed = True
        self._check_over()

    def feed(self, requests: Iterable[Request]) -> None:
        """Serve `requests`, which come in order of arrival, and their followers, and nobody else.

        They are drawn one at a time.  Raises RequestError if they run backwards, or after `drain`.
        """
        if self._is_closed:
            raise RequestError("requests are fed after drain() or other ones; make a new cluster for them")
        self._source = iter(requests)
        self._last = self._clock.now
        self._is_closed = True
        self._draw()
        self._check_over()

    def run(self, requests: Iterable[Request] = ()) -> None:
        """Serve `requests`, in order of arrival, and all that were submitted, to the end."""
        self.feed(requests)
        self.advance()

    def advance(self, until: float = NEVER) -> None:
        """Let all happen that happens by `until`; steps that are running then stay in flight.

        Raises as `Simulator.advance`, and PolicyError if the router names no replica.
        """
        if isnan(until):
            raise RequestError("the cluster is told to advance until nan; give a time")
        while True:
            while self._touched and self._clock.now < min(self.events.time, until):
                self._start()
            if self.events.time <= until and self.events.time < NEVER:
                self._happen(self.events.pop())
            elif not self._unstick():
                break
        for replica in self.replicas:
            replica.advance(until)
        ends = [replica.simulator.now for replica in self.replicas]
        self._clock.now = max(self._clock.now, until if until < NEVER else max(ends))

    # --- events ---------------------------------------------------------------

    def _happen(self, event: Event) -> None:
        """Let `event` happen."""
        time, kind, number, _, what = event
        if time > self._clock.now:
            self._clock.now = time
        if kind == WAKE:
            assert isinstance(what, Replica)
            self._wake(what, time)
        else:
            assert isinstance(what, Request) and kind == ARRIVAL
            self._num_coming -= 1
            if number < LAST_ID:
                self._draw()
            self._arrive(what)
        self._check_over()

    def _expect(self, r: Request, number: int) -> None:
        """`r` will come.  Who was submitted goes before who follows, if both come at once."""
        self._num_coming += 1
        self.events.push(r.arrival, ARRIVAL, number, r)

    def _draw(self) -> None:
        """Expect the next request of the source.  Raises RequestError if it runs backwards."""
        r = next(self._source, None)
        if r is None:
            return
        if r.arrival < self._last:
            raise RequestError(
                f"request {r.id} arrives at {r.arrival} s, after one of {self._last} s; "
                "sort requests by arrival"
            )
        self._last = r.arrival
        self._num_submitted += 1
        self._expect(r, self._num_submitted)

    def _wake(self, replica: Replica, time: float) -> None:
        """Something may have ended at `replica`, unless it was planned anew since."""
        if time != replica.waking:
            return
        replica.waking = NEVER
        replica.advance(time)
        self._serve_line(replica)
        if replica.is_watched:
            self._touched.append(replica)

    def _start(self) -> None:
        """All has happened that happens now: those whose next end matters plan on."""
        touched, self._touched = self._touched, []
        for replica in touched:
            time = replica.start()
            self._serve_line(replica)  # an end that takes no time may have come with the plan
            if time < NEVER and time != replica.waking:
                replica.waking = time
                self.events.push(time, WAKE, replica.index, replica)
        self._check_over()

    # --- where requests go ----------------------------------------------------

    def _arrive(self, r: Request) -> None:
        index = self._route(r, self.replicas)
        if index == -1 and self._is_central:
            self._line.append(r)
            return
        if not isinstance(index, int) or not 0 <= index < len(self.replicas):
            raise PolicyError(
                f"the router sends request {r.id} to replica {index!r}, but they are 0 to "
                f"{len(self.replicas) - 1}; return one of these"
            )
        self._send(r, self.replicas[index])

    def _send(self, r: Request, replica: Replica) -> None:
        if r.then is not None:
            self._thens[r] = r.then
            r.then = self._seen
        replica.take(r)
        if replica.is_watched:
            self._touched.append(replica)
        self._num_unseen += 1
        if self._num_unseen == AHEAD:
            self._catch_up()

    def _touch(self, replica: Replica) -> None:
        """Something has happened to `replica`: it plans once all has happened now."""
        self._touched.append(replica)

    def _serve_line(self, replica: Replica) -> None:
        """Central queue: `replica` takes who is next, while it has a seat."""
        while self._line and replica.has_seat:
            self._send(self._line.popleft(), replica)

    def _seen(self, r: Request, instant: float) -> Sequence[Request]:
        """The client of `r` has seen its end: its followers come to the router, not to that replica."""
        then = self._thens.pop(r)
        r.then = then
        for follower in then(r, instant):
            if follower.arrival < instant:
                raise RequestError(
                    f"request {follower.id} arrives at {follower.arrival} s, before the end of request "
                    f"{r.id}, which it follows, at {instant} s; let it arrive then or later"
                )
            self._followers[follower.id] = follower.arrival
            self._expect(follower, LAST_ID + len(self._followers))
        return ()

    # --- the end --------------------------------------------------------------

    def _check_over(self) -> None:
        """Tell the replicas once nobody can come any more: who waits for a batch to fill need not."""
        if self._is_over or not self._is_closed or self._num_coming or self._thens or self._line:
            return
        self._is_over = True
        if self.handovers is not None:  # who is handed over comes later
            return
        self._catch_up()
        for replica in self.replicas:
            replica.simulator.drain()
            if replica.is_watched:
                self._touched.append(replica)

    def _catch_up(self) -> None:
        """Run all replicas up to now."""
        self._num_unseen = 0
        for replica in self.replicas:
            replica.advance(self._clock.now)

    def _unstick(self) -> bool:
        """Nothing can happen before one of those that wait is served: let their policies plan; does one?"""
        if self.events.time < NEVER or self._touched:
            return False
        if self.handovers is not None:
            return self.handovers.unstick(self._clock.now)
        if not self._is_closed or not self._thens:
            return False
        self._catch_up()
        stuck = [one for one in self.replicas if one.num_waiting and one.simulator.upcoming == NEVER]
        found = [replica for replica in stuck if replica.simulator.decide_stuck()]
        self._touched += found
        return len(found) > 0


def _begun(router: Router | RouterBegins, num_replicas: int) -> Asked:
    """Who is asked.  Raises PolicyError if that is nobody."""
    asked: object = router
    if isinstance(router, RouterBegins) and not isinstance(router, type):
        asked = router.begin(num_replicas)
    if isinstance(asked, type) or not callable(asked):
        raise PolicyError(
            f"{router!r} is no router; give a function (request, replicas) -> index, or an object "
            "whose begin(num_replicas) returns one"
        )
    return asked
