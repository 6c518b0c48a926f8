"""What every driver of a batch does, on a virtual clock or a real one.

A driver delivers what has come, lets the policy edit the batch, and runs the step that it left:

    simulator      the step's time comes from a cost model
    engines.live   the step runs on a model

Both make the same moves, in the same order, and write the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import isfinite

from batchwright.arrivals import Arrivals
from batchwright.batch import LEAVE, PAD, Batch
from batchwright.blocks import Blocks
from batchwright.contract import Begins, Policy
from batchwright.cost import CostModel, empty_seconds, reads_extremes, stretch_of
from batchwright.drafted import drafted
from batchwright.errors import PolicyError, RequestError
from batchwright.extremes import Extremes
from batchwright.host_link import host_link
from batchwright.limits import Limits
from batchwright.log import Log
from batchwright.prediction import predicted
from batchwright.request import FINISHED, MOVING_IN, NEVER, NEW, Request
from batchwright.step import Step
from batchwright.swapping import land

BARREN = 1000  # steps that may come to nothing before a token does, beside one per request


def _seat(r: Request) -> int:
    return r.seat


def shown(seconds: float) -> float:
    """To the microsecond, for messages."""
    return round(seconds, 6) if isfinite(seconds) else seconds


class Driver:
    """One replica under `policy`; `cost` tells policies, and reports, what a step takes.

    `plain`: the time of quiet steps that verify no drafts, without the draft's.
    """

    def __init__(self, policy: Policy | Begins, cost: CostModel, limits: Limits, blocks: Blocks) -> None:
        self.batch = Batch(limits, blocks)
        self.batch.link = host_link(cost)
        if reads_extremes(cost):
            self.batch.extremes = Extremes()
        self._ask = self._begun(policy)
        self.cost = drafted(cost, self.batch.drafts)
        self.stretch: Callable[[Step, int], float] = stretch_of(self.cost, self.batch.overlap)
        self.plain = self.stretch if self.cost is cost else stretch_of(cost, self.batch.overlap)
        self._empty = empty_seconds(cost)
        self.batch.predict = self._predict
        self.num_decisions = 0
        self.hand_over: Callable[[Request], bool] | None = None  # does who has its prompt go on elsewhere?
        self._arrivals = Arrivals(limits)
        self._cancels: list[tuple[float, int, Request]] = []  # a heap: when, how many before it, who
        self._num_cancels = 0
        self._alarm = NEVER  # the next timed event
        self._horizon = 0.0  # what comes earlier comes too late
        self._holds = False  # does the policy's last answer still hold?
        self._sees_all = False  # does every end matter, or only those that others follow?
        self._barren = 0  # steps since the last token that came to nothing
        self._done: list[Request] = []  # their last token came with the step that has just run
        self._ended: list[Request] = []  # their last token is out, but not yet seen (overlap)
        self._kept: list[Request] = []  # their client sees all at the end, which has not come

    def _begun(self, policy: Policy | Begins) -> Policy:
        """Who is asked.  Raises PolicyError if that is nobody, or its settings contradict each other."""
        if isinstance(policy, type):
            raise PolicyError(f"{policy.__name__} is a class, not a policy; make an object of it, with ()")
        asked = policy.begin(self.batch) if isinstance(policy, Begins) else policy
        if not callable(asked):
            raise PolicyError(
                f"{policy!r} is no policy: {asked!r} cannot be asked; give a function of the batch, "
                "or an object whose begin(batch) returns one"
            )
        if self.batch.overlap and self.batch.on_end != LEAVE:
            raise PolicyError(
                f"{policy!r} sets both overlap and on_end; a request leaves when its end is seen"
            )
        return asked

    # --- for users ------------------------------------------------------------

    @property
    def now(self) -> float:
        """How far the clock is: the end of the last step, or later where nothing ran since."""
        return self.batch.now

    @property
    def rejected(self) -> list[int]:
        """Ids of requests that the front end refused: their prompt is over `max_model_len`."""
        return self._arrivals.rejected

    @property
    def num_cut(self) -> int:
        """Requests whose output was cut, to `max_model_len` or to their own `max_tokens`."""
        return self._arrivals.num_cut

    @property
    def arrived(self) -> dict[int, float]:
        """When each request came that followed another one, by id: known once that one has ended."""
        return dict(zip(self._arrivals.follower_ids, self._arrivals.follower_times, strict=True))

    @property
    def num_sent(self) -> int:
        """Requests that are here and have not left, those among them that have not come yet."""
        b = self.batch
        found = self._arrivals.num_coming + b.num_waiting + len(b.running)
        found += b.num_swapped + b.num_coming + len(b.movers.offered)
        if b.host is not None:  # those on their way to it
            found += sum([1 for r in b.movers.leaving if r in b.host.places])
        return found

    @property
    def pending_tokens(self) -> int:
        """Tokens that prefills still have to compute, of all requests that are here; O(those that wait)."""
        b = self.batch
        found = sum([r.unfilled for r in b.prefilling])
        known = b.movers.elsewhere  # whose prompts are computed
        found += sum([r.unfilled for r in b.waiting.head(b.num_waiting) if r not in known])
        return found + sum([r.prompt for r in self._arrivals.coming()])

    @property
    def num_open(self) -> int:
        """Requests whose end others wait for, and that have not ended."""
        return self._arrivals.num_open

    @property
    def log(self) -> Log:
        """What happened."""
        return self.batch.log

    def submit(self, r: Request) -> None:
        """Let `r` arrive at `r.arrival`.

        Raises RequestError if that is in the past or after `drain`, if `r` has been submitted
        before, or if the KV cache cannot hold it.
        """
        if r.arrival < self._horizon:
            raise RequestError(
                f"request {r.id} arrives at {r.arrival} s, but the clock is at {self._horizon} s; "
                "submit it earlier"
            )
        if self._arrivals.is_closed:
            raise RequestError(f"request {r.id} is submitted after drain(); submit it before")
        self.take(r)

    def take(self, r: Request) -> None:
        """Let `r` arrive at `r.arrival`, or at once if that has passed: it has waited elsewhere.

        Raises RequestError as `submit`, but for the time.
        """
        self._arrivals.add(r)
        self._set_alarm()

    def cancel(self, r: Request, at: float | None = None) -> None:
        """Let the client of `r` go at `at` seconds (None: now), or when it comes, if that is later.

        Raises RequestError if that is in the past.
        """
        instant = self._horizon if at is None else at
        if not isfinite(instant) or instant < self._horizon:
            raise RequestError(
                f"request {r.id} is cancelled at {instant} s, but the clock is at {self._horizon} s; "
                "give a later time"
            )
        self._num_cancels += 1
        heappush(self._cancels, (max(instant, r.arrival), self._num_cancels, r))
        self._set_alarm()

    def drain(self) -> None:
        """No more requests can come, but for those that follow others."""
        self._arrivals.is_closed = True
        self._drain_batch()

    def feed(self, requests: Iterable[Request]) -> None:
        """Serve `requests`, which come in order of arrival, and their followers, and nobody else.

        They are drawn a few at a time, so a generator of millions costs no memory.
        Raises RequestError if they run backwards, or the ones fed before have not all come.
        """
        self._arrivals.feed(requests, self._horizon)
        self.batch.draining = False
        self._set_alarm()
        self._drain_batch()

    # --- arrivals and other timed events --------------------------------------

    def _deliver(self) -> None:
        """Let everything that is due by now happen."""
        b = self.batch
        self._interrupt()
        while b.transfer_time <= b.now:
            self._land()
        planned = self._planned()
        while self._arrivals.time <= planned:
            self._enqueue(self._arrivals.pop())
        while self._cancels and self._cancels[0][0] <= b.now:
            instant, _, r = heappop(self._cancels)
            self._cancel(r, instant)
        while self._arrivals.time <= planned:  # those that followed a cancelled one
            self._enqueue(self._arrivals.pop())
        if b.wake_time <= b.now:
            b.wake_time = NEVER
        if self._arrivals.time == NEVER:
            self._drain_batch()
        self._set_alarm()

    def _planned(self) -> float:
        """When the coming step is planned: who has come by then is seen."""
        return self.batch.now

    def _land(self) -> None:
        """A transfer has ended: KV is in host memory, or back."""
        r = land(self.batch)
        if r.state == MOVING_IN:
            self._decode(r)

    def offer(self, r: Request, tokens: int, at: float) -> None:
        """Let `r` come at second `at`, with the KV of `tokens` tokens on another replica."""
        movers = self.batch.movers
        movers.elsewhere[r] = tokens
        movers.offered[r] = None
        if r.then is not None:
            self._arrivals.num_open += 1
        self._land_at(r, at)

    def recomputes(self, r: Request, at: float) -> None:
        """The KV of the waiting `r` is elsewhere no longer, from second `at` on."""
        del self.batch.movers.elsewhere[r]
        self.batch.wake_at(at)
        self._set_alarm()

    def frees(self, stand_in: Request, end: float) -> None:
        """The KV that `stand_in` keeps for another replica has gone at second `end`."""
        self._land_at(stand_in, end)

    def _land_at(self, r: Request, end: float) -> None:
        b = self.batch
        b.movers.end_at(r, end)
        b.transfer_time = b.movers.time
        self._set_alarm()

    def _enqueue(self, r: Request) -> None:
        """`r` has just come."""
        if self.batch.predictor is not None:
            r.predicted = predicted(self.batch.predictor, r)
        self.batch.enqueue(r)

    def _cancel(self, r: Request, instant: float) -> None:
        if r.queued == NEW:
            raise RequestError(f"request {r.id} is cancelled, but was never submitted; submit it first")
        if self.batch.cancel(r) and (r.then is not None or self._sees_all):
            self._follow(r, instant)

    def _follow(self, r: Request, instant: float) -> None:
        """The client of `r` has seen its end: let its followers come."""
        self._arrivals.ended(r, instant)
        self.batch.draining = False
        self._set_alarm()
        self._drain_batch()

    def _follow_kept(self) -> None:
        """Let the followers come of those requests that have left since."""
        left = [r for r in self._kept if r.state == FINISHED]
        self._kept = [r for r in self._kept if r.state != FINISHED]
        left.sort(key=_seat)
        for r in left:
            self._follow(r, r.finished)

    def _end_wake(self) -> None:
        """A step has ended: is it the one after which the policy asked to be woken?"""
        if self.batch.tick_count == self.batch.wake_tick:
            self.batch.wake_tick = -1
            self._interrupt()

    def _drain_batch(self) -> None:
        if self._arrivals.are_over:
            self.batch.draining = True
            self._interrupt()

    def _set_alarm(self) -> None:
        alarm = min(self._arrivals.time, self.batch.wake_time)
        if self.batch.transfer_time < alarm:
            alarm = self.batch.transfer_time
        self._alarm = min(alarm, self._cancels[0][0]) if self._cancels else alarm

    def _interrupt(self) -> None:
        """Something happened: the policy may edit again."""
        self._holds = False

    # --- deciding -------------------------------------------------------------

    def _decide(self) -> None:
        """Let the policy plan the coming step."""
        b = self.batch
        b.edits = 0
        b.has_preempted = False
        b.decodes_run = True
        self._ask(b)
        self.num_decisions += 1
        if b.joined:
            for r in b.joined:
                self._expect(r)
            b.joined.clear()
        if b.wake_time < self._alarm:
            self._alarm = b.wake_time
        if b.transfer_time < self._alarm:
            self._alarm = b.transfer_time

    def _decide_stuck(self) -> None:
        """Nobody comes before one of those that wait is served: let the policy plan as if nobody came."""
        self._interrupt()
        self.batch.draining = True
        self._decide()
        self.batch.draining = False

    def _check_wake(self) -> None:
        """Raises PolicyError if the policy asks to be woken at a time that has passed."""
        if self._alarm <= self.batch.now:
            wake, now = shown(self._alarm), shown(self.batch.now)
            raise PolicyError(f"policy asks to be woken at {wake} s, which has passed at {now} s")

    def _starve(self) -> None:
        """Raises PolicyError: requests are there, and nothing can happen any more."""
        b = self.batch
        raise PolicyError(
            f"policy starves {b.num_waiting + len(b.running) + b.num_swapped} requests at {shown(b.now)} s: "
            "no step runs and nothing more can happen; admit a request, or ask to be woken with wake_at"
        )

    def _check_progress(self) -> None:
        """Raises PolicyError if step after step ends without a token, and takes back what it computed."""
        b = self.batch
        if b.num_decoding > 0 and b.decodes_run:
            self._barren = 0
        elif b.has_preempted or not b.chunks:
            self._barren += 1
        if self._barren > BARREN + b.num_running + b.num_waiting:
            raise PolicyError(
                f"policy has preempted or computed nothing in {self._barren} steps without a token, at "
                f"{shown(b.now)} s; do not preempt what it has just admitted"
            )

    # --- ends -----------------------------------------------------------------

    def _end_plan(self) -> None:
        """The step that the policy edited has run: its chunks are computed, its held decodes go on."""
        b = self.batch
        for r in b.chunks:
            if not b.fill(r):
                continue
            self._barren = 0
            if r.generated == 1:
                r.first_token = b.now
            if self._is_done(r):
                self._done.append(r)
            elif self.hand_over is None or not self._goes_on(r):
                self._decode(r)
        for r in b.held:
            self._decode(r)
        b.end_plan()

    def _goes_on(self, r: Request) -> bool:
        """Does `r`, whose prompt is complete, decode elsewhere?"""
        if self.hand_over is None or not self.hand_over(r):
            return False
        if r.then is not None:
            self._arrivals.num_open -= 1
        return True

    def _is_done(self, r: Request) -> bool:
        """Has `r`, whose prompt is complete, all its tokens?"""
        return r.generated == r.true_output

    def _decode(self, r: Request) -> None:
        self.batch.decode(r)

    def _expect(self, r: Request) -> None:
        """`r` has joined the decodes with KV of its own."""

    def _finish(self) -> None:
        """The requests of `_done` have all their tokens."""
        b = self.batch
        done = self._done
        if len(done) > 1:
            done.sort(key=_seat)
        for r in done:
            r.finished = b.now
            if r.then is not None or self._sees_all:
                self._seen(r)
        if b.overlap:
            for r in done:
                b.stop(r)
            self._done, self._ended = self._ended, done  # an end is seen a step late
        elif b.on_end != LEAVE:
            self._keep()
        for r in self._done:
            b.finish(r)
        self._done.clear()
        if self._kept:
            self._follow_kept()

    def _seen(self, r: Request) -> None:
        """The last token of `r` is out: does its client see it now, or when `r` leaves?"""
        if self.batch.is_streamed:
            self._follow(r, r.finished)
        else:
            self._kept.append(r)

    def _keep(self) -> None:
        """Let the requests of `_done` stay until the policy releases them."""
        b = self.batch
        for r in self._done:
            if b.on_end == PAD:
                b.keep_computing(r)
            else:
                b.stop(r)
        self._done.clear()

    # --- predictions ----------------------------------------------------------

    def _predict(self, tokens: int) -> float:
        """Seconds of the coming step with `tokens` more prompt tokens."""
        step = Step()
        self.batch.measure(step)
        if tokens == step.num_chunks == step.num_decodes == step.padded_rows == 0:
            return self._empty
        step.prefill_tokens += tokens
        step.num_chunks += 1 if tokens > 0 else 0
        step.prefill_attention += 0.5 * tokens * tokens
        return self.stretch(step, 1)
