"""Run a policy against a cost model in simulated time.

The loop is: deliver what has come, let the policy edit the batch, advance.  A step that the
policy edited runs alone; after a step without an edit nothing can change before the next
event, so time jumps there.  Inside such a quiet stretch

    now = anchor + seconds of k quiet steps

whether the k steps are skipped or walked, so both give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from math import isfinite, isnan

from batchwright.arrivals import Arrivals
from batchwright.batch import LEAVE, PAD, Batch
from batchwright.contract import Begins, Policy
from batchwright.cost import CostModel, Linear, empty_seconds, stretch_of
from batchwright.errors import PolicyError, RequestError
from batchwright.limits import Limits
from batchwright.log import Log
from batchwright.request import DECODING, FINISHED, NEVER, NEW, Request
from batchwright.step import Step

BARREN = 1000  # steps that may come to nothing before a token does, beside one per request


def _seat(r: Request) -> int:
    return r.seat


def _shown(seconds: float) -> float:
    """To the microsecond, for messages."""
    return round(seconds, 6) if isfinite(seconds) else seconds


class Simulator:
    """One replica under `policy`, with times from `cost`.

    `skip`: jump over quiet steps (the result is the same without).
    `audit`: ask the policy at every step, twice, check all counts, and raise PolicyError
    if it edits a step without an event since it was last asked.
    """

    def __init__(
        self,
        policy: Policy | Begins,
        cost: CostModel,
        limits: Limits | None = None,
        skip: bool = True,
        audit: bool = False,
    ) -> None:
        self.batch = Batch(limits or Limits())
        self._ask = self._begun(policy)
        self.stretch: Callable[[Step, int], float] = stretch_of(cost, self.batch.overlap)
        self._linear = cost if isinstance(cost, Linear) else None
        self._empty = empty_seconds(cost)
        self.batch.predict = self._predict
        self.cost = cost
        self.skip = skip and not audit
        self._audit = audit
        self.num_decisions = 0
        self._arrivals = Arrivals(self.batch.limits)
        self._cancels: list[tuple[float, int, Request]] = []  # a heap: when, how many before it, who
        self._num_cancels = 0
        self._alarm = NEVER  # the next timed event
        self._horizon = 0.0  # what comes earlier comes too late
        self._in_flight = NEVER  # end of the edited step that is running
        self._step = Step()
        self._barren = 0  # steps since the last token that came to nothing
        self._anchor = 0.0  # start of the quiet stretch
        self._length = 0  # its steps so far; 0: a new one starts
        self._holds = False  # does the policy's last answer still hold, after a pause of `advance`?
        self._is_quiet = False  # has the policy nothing to edit until the next event? (audit)
        self._done: list[Request] = []  # their last token came with the step that has just run
        self._ended: list[Request] = []  # their last token is out, but not yet seen (overlap)
        self._kept: list[Request] = []  # followed by others once their client sees all at the end
        self._due: dict[int, list[Request]] = {}  # by the clock of their last token
        self._dues: list[int] = []  # the keys of `_due`, a heap

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

    def run(self, requests: Iterable[Request] = ()) -> None:
        """Serve `requests`, in order of arrival, and all that were submitted, to the end."""
        self.feed(requests)
        self.advance()

    def advance(self, until: float = NEVER) -> None:
        """Run every step that ends by `until`; the one that is running then stays in flight.

        Raises PolicyError if the policy leaves requests waiting for ever or breaks a rule, RequestError
        if a request is cancelled that was never submitted, CostError on an impossible step time.
        """
        if isnan(until):
            raise RequestError("the simulator is told to advance until nan; give a time")
        b = self.batch
        is_running = self._resume(until)
        while is_running and b.now < until:
            if self._alarm <= b.now:
                self._deliver()
            if not b.running and b.num_waiting == 0:
                is_running = self._jump(until)
                continue
            if not self._holds:
                self._decide()
            self._holds = False
            if b.edits > 0:
                is_running = self._edited_step(until)
            elif (b.num_decoding > 0 and b.decodes_run) or self._ended:
                is_running = self._quiet_stretch(until)
            else:
                is_running = self._idle(until)
        self._horizon = max(self._horizon, until if until < NEVER else b.now)

    # --- arrivals and other timed events --------------------------------------

    def _deliver(self) -> None:
        """Let everything that is due by now happen."""
        b = self.batch
        self._interrupt()
        while self._arrivals.time <= b.now:
            b.enqueue(self._arrivals.pop())
        while self._cancels and self._cancels[0][0] <= b.now:
            instant, _, r = heappop(self._cancels)
            self._cancel(r, instant)
        while self._arrivals.time <= b.now:  # those that followed a cancelled one
            b.enqueue(self._arrivals.pop())
        if b.wake_time <= b.now:
            b.wake_time = NEVER
        if self._arrivals.time == NEVER:
            self._drain_batch()
        self._set_alarm()

    def _cancel(self, r: Request, instant: float) -> None:
        if r.queued == NEW:
            raise RequestError(f"request {r.id} is cancelled, but was never submitted; submit it first")
        if self.batch.cancel(r) and r.then is not None:
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

    def _drain_batch(self) -> None:
        if self._arrivals.are_over:
            self.batch.draining = True
            self._interrupt()

    def _set_alarm(self) -> None:
        alarm = min(self._arrivals.time, self.batch.wake_time)
        self._alarm = min(alarm, self._cancels[0][0]) if self._cancels else alarm

    def _interrupt(self) -> None:
        """Something happened: the stretch ends, and the policy may edit again."""
        self._length = 0
        self._holds = False
        self._is_quiet = False

    # --- deciding -------------------------------------------------------------

    def _decide(self) -> None:
        """Let the policy plan the coming step."""
        b = self.batch
        b.edits = 0
        b.has_preempted = False
        b.decodes_run = True
        may_edit = not self._is_quiet or (self._audit and b.spare_blocks < 0)
        self._ask(b)
        self.num_decisions += 1
        if b.wake_time < self._alarm:
            self._alarm = b.wake_time
        if self._audit:
            self._check_contract(may_edit)

    def _decide_stuck(self) -> None:
        """Nobody comes before one of those that wait is served: let the policy plan as if nobody came."""
        self._interrupt()
        self.batch.draining = True
        self._decide()
        self.batch.draining = False

    def _check_contract(self, may_edit: bool) -> None:
        """Raises PolicyError if the policy edited without an event, or edits its own plan."""
        b = self.batch
        if b.edits > 0 and not may_edit:
            raise PolicyError(
                f"policy made {b.edits} edits at {_shown(b.now)} s though nothing happened since it made "
                "none; edit after events only, or ask for one with wake_at or wake_after"
            )
        self._is_quiet = b.edits == 0
        edits = b.edits
        self._ask(b)
        if b.edits != edits:
            raise PolicyError(
                f"policy made {b.edits - edits} more edits when asked twice before a step; "
                "return at once while batch.edits is over 0"
            )

    def _idle(self, until: float) -> bool:
        """Nothing runs: wait for the next event.  Raises PolicyError if there is none."""
        b = self.batch
        if self._alarm == NEVER and self._arrivals.are_stuck:
            self._decide_stuck()
            if b.edits > 0:
                return self._edited_step(until)
        if self._alarm <= b.now:
            wake, now = _shown(self._alarm), _shown(b.now)
            raise PolicyError(f"policy asks to be woken at {wake} s, which has passed at {now} s")
        if self._alarm == NEVER and (until == NEVER or self._arrivals.is_closed):
            raise PolicyError(
                f"policy starves {b.num_waiting + len(b.running)} requests at {_shown(b.now)} s: no step "
                "runs and nothing more can happen; admit a request, or ask to be woken with wake_at"
            )
        self._holds = not self._jump(until)
        return not self._holds

    def _jump(self, until: float) -> bool:
        """Let time pass to the next timed event, at most to `until`; False if there is none by then."""
        b = self.batch
        instant = min(self._alarm, until)
        if instant == NEVER:
            return False
        if instant > b.now:
            b.now = instant
            b.log.jump(b.tick_count, instant)
        return self._alarm <= until

    # --- steps ----------------------------------------------------------------

    def _edited_step(self, until: float) -> bool:
        """Start the one step that the policy has just edited; False if it does not end by `until`."""
        b = self.batch
        if self._kept:
            self._follow_kept()
        if not b.chunks and not b.has_work:  # requests were released, and nothing else
            self._interrupt()
            return True
        if b.num_decoding > 0 and b.decodes_run:
            self._barren = 0
        elif b.has_preempted or not b.chunks:
            self._check_progress()
        b.measure(self._step)
        if not b.chunks and self._step.num_decodes == 0 and self._step.padded_rows == 0:
            self._in_flight = b.now + self._empty  # the device has nothing to run
        elif self._linear is not None:
            self._in_flight = b.now + self._linear.stretch(self._step, 1)
        else:
            self._in_flight = b.now + self.stretch(self._step, 1)
        return self._resume(until)

    def _check_progress(self) -> None:
        """Raises PolicyError if step after step ends without a token, and takes back what it computed."""
        b = self.batch
        self._barren += 1
        if self._barren > BARREN + b.num_running + b.num_waiting:
            raise PolicyError(
                f"policy has preempted or computed nothing in {self._barren} steps without a token, at "
                f"{_shown(b.now)} s; do not preempt what it has just admitted"
            )

    def _resume(self, until: float) -> bool:
        """End the step that is in flight, if there is one; False if it does not end by `until`."""
        end = self._in_flight
        if end == NEVER:
            return True
        if end > until:
            return False
        self._in_flight = NEVER
        b = self.batch
        b.now = end
        b.tick(1)
        free = b.blocks.free
        if self._dues and self._dues[0] <= b.clock:
            self._collect_due()
        for r in b.chunks:
            if not b.fill(r):
                continue
            self._barren = 0
            if r.generated == 1:
                r.first_token = end
            if r.generated == r.true_output:
                self._done.append(r)
            else:
                self._decode(r)
        for r in b.held:
            self._decode(r)
        b.end_plan()
        if self._done or self._ended:
            self._finish()
        self._length = 0
        self._is_quiet = False
        b.log.stretch(1, end, free, b.blocks.free)
        if b.tick_count == b.wake_tick or self._audit:
            self._end()
        return True

    def _quiet_stretch(self, until: float) -> bool:
        """Run the steps until the next event, or one of them if nothing may be skipped."""
        b = self.batch
        if self._length == 0:
            self._step.quiet(b.num_decoding, b.num_padded, b.context)
            self._anchor = b.now
        steps = 1
        if self.skip and not self._ended:
            most = self._dues[0] - b.clock
            if b.wake_tick >= 0:
                most = min(most, b.wake_tick - b.tick_count)
            steps = b.quiet_steps(most)
        end = self._at(steps) if b.num_decoding > 0 else b.now + self._empty
        if steps > 1 and end >= self._alarm:
            steps = self._steps_to(self._alarm, steps, end)
            end = self._at(steps)
        if end > until:
            self._holds = True
            steps, end = self._steps_by(until, steps, end)
            if steps == 0:
                return False
        is_new = self._length == 0
        self._length += steps
        b.now = end
        b.tick(steps)
        free = b.blocks.free
        if self._dues and self._dues[0] <= b.clock:
            self._collect_due()
        if self._done or self._ended:
            self._finish()
            self._interrupt()
        if is_new:
            b.log.stretch(steps, end, free, b.blocks.free)
        else:
            b.log.lengthen(steps, end, free, b.blocks.free)
        if b.tick_count == b.wake_tick or self._audit:
            self._end()
        return True

    def _at(self, steps: int) -> float:
        """When `steps` more steps of the stretch have run."""
        if self._linear is not None:  # a direct call: ten times as fast in the compiled core
            return self._anchor + self._linear.stretch(self._step, self._length + steps)
        return self._anchor + self.stretch(self._step, self._length + steps)

    def _steps_to(self, instant: float, most: int, end: float) -> int:
        """The fewest steps, at most `most` (which end at `end`), that reach `instant`."""
        now = self.batch.now
        steps = min(max(int((instant - now) / (end - now) * most), 1), most)
        reached = self._at(steps)  # a step grows longer, so the guess is low; the next one is not
        steps = min(max(steps + int((instant - reached) / (reached - now) * steps), 1), most)
        while steps < most and self._at(steps) < instant:
            steps += 1
        while steps > 1 and self._at(steps - 1) >= instant:
            steps -= 1
        return steps

    def _steps_by(self, until: float, most: int, end: float) -> tuple[int, float]:
        """The most steps, fewer than `most` (which end at `end`), that end by `until`, and their end."""
        if most == 1:
            return 0, self.batch.now
        steps = self._steps_to(until, most, end)
        if self._at(steps) > until:
            steps -= 1
        return steps, self._at(steps)

    def _end(self) -> None:
        """A stretch has ended with a wake-up, or under audit."""
        b = self.batch
        if b.tick_count == b.wake_tick:
            b.wake_tick = -1
            self._interrupt()
        if self._audit:
            b.check()

    # --- tokens ---------------------------------------------------------------

    def _collect_due(self) -> None:
        """Find the decodes whose last token came with the step that has just run."""
        clock = self.batch.clock
        heappop(self._dues)
        for r in self._due.pop(clock):
            if r.due == clock and r.state == DECODING:  # else preempted or held since
                r.due = -1
                self._done.append(r)

    def _finish(self) -> None:
        """The requests of `_done` have all their tokens."""
        b = self.batch
        done = self._done
        if len(done) > 1:
            done.sort(key=_seat)
        for r in done:
            r.finished = b.now
            if r.then is not None:
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

    def _decode(self, r: Request) -> None:
        b = self.batch
        b.decode(r)
        r.due = b.clock + r.true_output - r.generated
        due = self._due.get(r.due)
        if due is None:
            self._due[r.due] = [r]
            heappush(self._dues, r.due)
        else:
            due.append(r)

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
