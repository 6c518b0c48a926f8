"""Run a policy against a cost model in simulated time.

The loop is: deliver what has come, let the policy edit the batch, advance.  A step that the
policy edited runs alone; after a step without an edit nothing can change before the next
event, so time jumps there.  Inside such a quiet stretch

    now = anchor + seconds of k quiet steps

whether the k steps are skipped or walked, so both give the same bits.

Under speculative decoding each step brings each request its own number of tokens: every step is
walked, and the policy asked, as if it had been edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf, isnan, nextafter

from batchwright.blocks import Blocks
from batchwright.contract import Begins, Policy
from batchwright.cost import CostModel, Linear
from batchwright.drafts import Drafts
from batchwright.driver import Driver, shown
from batchwright.errors import PolicyError, RequestError
from batchwright.limits import Limits
from batchwright.request import DECODING, NEVER, Request
from batchwright.speculation import Guesses
from batchwright.step import Step


class Simulator(Driver):
    """One replica under `policy`, with times from `cost`.

    `skip`: jump over quiet steps (the result is the same without).
    `ahead`: where scheduling is asynchronous, a step is planned when the one before it begins, so that
    who comes during a step is seen one step later than by an idle engine.
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
        ahead: bool = False,
    ) -> None:
        settled = limits or Limits()
        super().__init__(policy, cost, settled, Blocks.of(settled))
        self._linear = self.cost if isinstance(self.cost, Linear) else None
        drafts = self.batch.drafts
        self._guesses = None if drafts is None else Guesses(drafts.speculation)
        self.skip = skip and not audit
        self._audit = audit
        self._ahead = ahead and self.batch.overlap
        self._last_begin = NEVER  # when the step that has just ended began, if somebody asks; NEVER: none has
        self._in_flight = NEVER  # end of the edited step that is running
        self._step = Step()
        self._anchor = 0.0  # start of the quiet stretch
        self._length = 0  # its steps so far; 0: a new one starts
        self._stretch_end = NEVER  # when it ends if nothing comes before, where it is cut off
        self._is_quiet = False  # has the policy nothing to edit until the next event? (audit)
        self._due: dict[int, list[Request]] = {}  # by the clock of their last token
        self._dues: list[int] = []  # the keys of `_due`, a heap

    # --- for users ------------------------------------------------------------

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
        self._run(until, until)
        self._horizon = max(self._horizon, until if until < NEVER else self.batch.now)

    def plan(self) -> float:
        """Let all happen that happens by now, the policy's plan for the coming step included: `upcoming`."""
        now = self.batch.now
        self._run(now, nextafter(now, inf))
        return self.upcoming

    def _run(self, until: float, before: float) -> None:
        """Run every step that ends by `until`, and plan none at or after `before`."""
        b = self.batch
        is_running = self._resume(until)
        while is_running and b.now < before:
            if self._alarm <= b.now:
                self._deliver()
            if not b.running and b.num_waiting == 0 and b.num_swapped == 0:
                is_running = self._jump(until)
                continue
            if not self._holds:
                self._decide()
            self._holds = False
            if b.edits > 0 or (self._guesses is not None and b.has_work):
                is_running = self._edited_step(until)
            elif (b.num_decoding > 0 and b.decodes_run) or self._ended:
                is_running = self._quiet_stretch(until)
            else:
                is_running = self._idle(until)

    @property
    def upcoming(self) -> float:
        """When the next thing happens here by itself: a step or quiet stretch ends, or the policy wakes.

        Until then only the decodes change, token by token.  `now`: the policy is to be asked first;
        NEVER: nothing happens unless somebody comes.  It holds until a request is submitted.
        """
        b = self.batch
        if self._in_flight < NEVER:
            return self._in_flight
        if not b.running and b.num_waiting == 0 and b.num_swapped == 0:
            return self._alarm
        return self._stretch_end if self._holds and self._alarm > b.now else b.now

    def decide_stuck(self) -> bool:
        """Let the policy plan as if nobody came, and start that step; False if it plans none.

        For those who know that nobody comes before one of the waiting is served.
        """
        self._decide_stuck()
        if self.batch.edits == 0:
            return False
        self._edited_step(self.batch.now)
        return True

    def _interrupt(self) -> None:
        """Something happened: the stretch ends, and the policy may edit again."""
        self._length = 0
        self._holds = False
        self._is_quiet = False

    def _planned(self) -> float:
        return min(self.batch.now, self._last_begin) if self._ahead else self.batch.now

    # --- deciding -------------------------------------------------------------

    def _decide(self) -> None:
        may_edit = not self._is_quiet or (self._audit and self.batch.spare_blocks < 0)
        super()._decide()
        if self._audit:
            self._check_contract(may_edit)

    def _check_contract(self, may_edit: bool) -> None:
        """Raises PolicyError if the policy edited without an event, or edits its own plan."""
        b = self.batch
        if b.edits > 0 and not may_edit:
            raise PolicyError(
                f"policy made {b.edits} edits at {shown(b.now)} s though nothing happened since it made "
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
        if self._last_begin < NEVER and self._arrivals.time <= b.now:  # nothing was planned ahead of them
            self._last_begin = NEVER
            return True
        if self._alarm == NEVER and self._arrivals.are_stuck:
            self._decide_stuck()
            if b.edits > 0:
                return self._edited_step(until)
        self._check_wake()
        if self._alarm == NEVER and (until == NEVER or self._arrivals.is_closed):
            self._starve()
        self._holds = not self._jump(until)
        self._stretch_end = self._alarm
        return not self._holds

    def _jump(self, until: float) -> bool:
        """Let time pass to the next timed event, at most to `until`; False if there is none by then."""
        b = self.batch
        self._last_begin = NEVER
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
        self._check_progress()
        if not b.chunks and not b.has_work:  # requests were released or swapped, and nothing else
            self._interrupt()
            return True
        b.measure(self._step)
        if not b.chunks and self._step.num_decodes == 0 and self._step.padded_rows == 0:
            self._in_flight = b.now + self._empty  # the device has nothing to run
        elif self._linear is not None:
            self._in_flight = b.now + self._linear.stretch(self._step, 1)
        else:
            self._in_flight = b.now + self.stretch(self._step, 1)
        return self._resume(until)

    def _resume(self, until: float) -> bool:
        """End the step that is in flight, if there is one; False if it does not end by `until`."""
        end = self._in_flight
        if end == NEVER:
            return True
        if end > until:
            return False
        self._in_flight = NEVER
        b = self.batch
        if self._ahead:
            self._last_begin = b.now
        b.now = end
        b.tick(1)
        free = b.blocks.free
        if self._guesses is not None and b.drafts is not None:
            self._verify(self._guesses, b.drafts)
        elif self._dues and self._dues[0] <= b.clock:
            self._collect_due()
        self._end_plan()
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
            if b.extremes is not None:
                b.extremes.measure(self._step, b.clock)
            self._anchor = b.now
        steps = 1
        if self.skip and not self._ended:
            most = self._dues[0] - b.clock
            if b.wake_tick >= 0:
                most = min(most, b.wake_tick - b.tick_count)
            steps = b.quiet_steps(most)
        end = b.now + self._empty
        if b.num_decoding > 0 and b.decodes_run:
            end = self._at(steps)
            self._barren = 0
        if steps > 1 and end >= self._alarm:
            steps = self._steps_to(self._alarm, steps, end)
            end = self._at(steps)
        if end > until:
            self._holds = True
            self._stretch_end = end
            steps, end = self._steps_by(until, steps, end)
            if steps == 0:
                return False
        if self._ahead:
            self._last_begin = self._at(steps - 1) if steps > 1 else b.now
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
        return steps, self._at(steps) if steps > 0 else self.batch.now

    def _end(self) -> None:
        """A stretch has ended with a wake-up, or under audit."""
        self._end_wake()
        if self._audit:
            self.batch.check()

    # --- tokens ---------------------------------------------------------------

    def _collect_due(self) -> None:
        """Find the decodes whose last token came with the step that has just run."""
        clock = self.batch.clock
        heappop(self._dues)
        for r in self._due.pop(clock):
            if r.due == clock and r.state == DECODING:  # else preempted or held since
                r.due = -1
                self._done.append(r)

    def _verify(self, guesses: Guesses, drafts: Drafts) -> None:
        """Give the decodes of the step that has just run their right guesses."""
        b = self.batch
        if b.decodes_run:
            for r in b.running:
                if r.state == DECODING:
                    self._accept(r, guesses, drafts.tokens(r, b.clock - 1) - 1)
        drafts.trimmed.clear()

    def _accept(self, r: Request, guesses: Guesses, drafts: int) -> None:
        """Let the decode `r`, which has verified so many drafts, keep the right ones up to its end."""
        b = self.batch
        generated = b.clock + r.shift - r.prompt + 1  # with the token that the clock gave
        left = r.true_output - generated
        right = guesses.accepted(r, generated - 1, min(drafts, left))
        b.accept(r, right)
        if right == left:
            r.guessed = b""
            self._done.append(r)

    def _decode(self, r: Request) -> None:
        self.batch.decode(r)
        self._expect(r)

    def _expect(self, r: Request) -> None:
        """`r` decodes: note when its last token is due."""
        b = self.batch
        if self._guesses is not None:
            return
        r.due = b.clock + r.true_output - r.generated
        due = self._due.get(r.due)
        if due is None:
            self._due[r.due] = [r]
            heappush(self._dues, r.due)
        else:
            due.append(r)
