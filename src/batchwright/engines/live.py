"""Run a policy on an engine, on its clock: the moves of the simulator, and the same log.

The loop is: deliver what has come, let the policy edit the batch, run the step that it left.  As
in the simulator the policy is asked after events only, and never sees how long an output will be.
Tokens are known before the next step is planned, so scheduling is synchronous, whatever the policy says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from batchwright.batch import Batch
from batchwright.contract import Begins, Policy
from batchwright.cost import CostModel
from batchwright.driver import Driver
from batchwright.engines.engine import Engine
from batchwright.engines.numbered import NumberedBlocks
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.errors import BatchwrightError, PolicyError, RequestError
from batchwright.limits import Limits
from batchwright.log import Log
from batchwright.prediction import Lengths
from batchwright.request import CANCELLED, DECODING, NEVER, PADDED, PREFILLING, Block, Request
from batchwright.step import Step


class Synchronous:
    """A policy whose steps are planned when the tokens of the last one are known."""

    def __init__(self, policy: Policy | Begins) -> None:
        self.policy = policy

    def begin(self, batch: Batch) -> Policy:
        asked = self.policy.begin(batch) if isinstance(self.policy, Begins) else self.policy
        batch.overlap = False
        return asked


def unknown(step: Step) -> float:
    """The cost of a server that has none."""
    raise PolicyError(
        "the policy asks what a step takes, but no cost is known here; calibrate the engine first"
    )


class Live(Driver):
    """One replica under `policy` on `engine`.

    `sequence_of`: makes the sequence of a request that comes, its length too; without it only
    those of `add` may come.  `cost`: what policies are told that a step takes.
    Raises LimitError if the engine has less than `limits` say.
    """

    def __init__(
        self,
        policy: Policy | Begins,
        engine: Engine,
        limits: Limits,
        cost: CostModel = unknown,
        sequence_of: Callable[[Request], Sequence] | None = None,
    ) -> None:
        self.engine = engine
        self.sampled: list[Sequence] = []  # got a token in the last step; never changed, but replaced
        self.ended: list[Sequence] = []  # their clients have seen their end; the caller clears it
        self._policy = policy
        self._sequence_of = sequence_of
        self._sequences: dict[Request, Sequence] = {}
        settled = engine.capacity.settle(limits)
        self._work = Work(settled.blocks)
        self._begin(cost, settled)

    def _begin(self, cost: CostModel, limits: Limits) -> None:
        self.blocks = NumberedBlocks.of(limits)
        super().__init__(self._policy, cost, limits, self.blocks)
        self._sees_all = True
        self._are_listed = False
        self._was_idle = False

    def _begun(self, policy: Policy | Begins) -> Policy:
        asked = super()._begun(policy)
        if self.batch.drafts is not None:
            raise PolicyError(
                "the policy speculates, which is simulated only: engines here verify no drafts; "
                "leave num_speculative_tokens out"
            )
        if self.batch.host is not None:
            raise PolicyError(
                f"{policy!r} swaps KV to host memory, which the engines here cannot; let it recompute"
            )
        self.batch.overlap = False
        if isinstance(self.batch.predictor, Lengths):
            raise PolicyError(
                f"{policy!r} asks how long outputs will be, which only a simulator knows; give a predictor "
                "of your own, or none"
            )
        return asked

    # --- for users ------------------------------------------------------------

    def add(self, s: Sequence) -> None:
        """Let `s` come at its arrival.  Raises RequestError as `submit`."""
        self._sequences[s.request] = s
        self.submit(s.request)
        if s.request.state == CANCELLED:  # rejected
            self._close(s)

    def run(self, requests: Iterable[Request] = ()) -> None:
        """Serve `requests`, in order of arrival, and all that were added, to the end.

        Raises PolicyError as the simulator, and what the engine raises.
        """
        self.feed(requests)
        while self.step() or self.wait():
            for s in self.ended:
                if s.error is not None:
                    raise s.error
            self.ended.clear()
        self.flush()

    def step(self) -> bool:
        """Run the coming step; False if there is none before the next event.

        What the engine raises ends the sequences of the step, with their `error`.
        Raises PolicyError as the simulator: then `restart`.
        """
        b = self.batch
        self.sampled = []
        b.now = max(b.now, self.engine.now())
        if self._alarm <= b.now:
            self._deliver()
        if not b.running and b.num_waiting == 0:
            self._was_idle = True
            return False
        if not self._holds or b.spare_blocks < 0:
            self._decide()
            self._holds = True
        if b.edits == 0 and not self._runs() and not self._unstick():
            self._was_idle = True
            return False
        if self._kept:
            self._follow_kept()
        if b.has_work:
            self._check_progress()
            self._run_step()
        else:  # requests were released, and nothing else
            self._interrupt()
        return True

    def wait(self) -> bool:
        """Sleep until the next event, or a little less; False if none is known."""
        if self._alarm == NEVER:
            return False
        self.engine.sleep(self._alarm)
        return True

    @property
    def alarm(self) -> float:
        """The next event that is known, in seconds; never, if there is none."""
        return self._alarm

    def flush(self) -> None:
        """Tell the engine at once who has lost its KV, not with the next step."""
        self._collect_left()
        if self._work.released:
            self._work.clear()
            self._are_listed = False
            self.engine.run(self._work)
            self._work.released.clear()

    @property
    def num_computed(self) -> int:
        """Tokens of the last step, padding included."""
        return len(self._work.tokens)

    def restart(self, error: Exception) -> None:
        """End all sequences with `error`, and begin with an empty batch."""
        self._collect_left()
        for s in list(self._sequences.values()):
            if s.request in self.blocks.tables:
                self._work.released.append(s)
            s.table = []
            s.is_closed = True
            self._fail(s, error)
            self.ended.append(s)
        self._sequences.clear()
        self._begin(self.cost, self.batch.limits)

    def forget(self) -> None:
        """Begin an empty log, so that a server can run for ever."""
        log = Log(self.blocks.free)
        log.num_seats = self.batch.log.num_seats
        self.batch.log = log

    # --- events ---------------------------------------------------------------

    def _enqueue(self, r: Request) -> None:
        s = self._sequences.get(r)
        if s is None:
            assert self._sequence_of is not None, "a request came that was not added"
            s = self._sequences[r] = self._sequence_of(r)
        s.length = min(s.length, r.max_tokens)
        r.true_output = 0
        try:
            super()._enqueue(r)
        except BatchwrightError as error:  # it has no place in the queue; the others are not to blame
            r.state = CANCELLED
            self._fail(s, RequestError(str(error)))
            self._close(s)

    def _interrupt(self) -> None:
        super()._interrupt()
        self._are_listed = False

    def _expect(self, r: Request) -> None:
        raise PolicyError(f"request {r.id} is admitted with KV that the engine does not have; prefill it")

    def _follow(self, r: Request, instant: float) -> None:
        self._close(self._sequences[r])
        if r.then is not None:
            super()._follow(r, instant)

    def _close(self, s: Sequence) -> None:
        """The client of `s` has seen its end, or has gone."""
        s.is_closed = True
        s.finish_reason = s.finish_reason or "abort"
        self.ended.append(s)
        self._collect_left()
        if s.request not in self.blocks.tables:
            self._sequences.pop(s.request, None)

    def _collect_left(self) -> None:
        """Tell the engine, with the next step, who has lost its KV."""
        for r in self.blocks.left:
            s = self._sequences[r]
            s.table = []
            self._work.released.append(s)
            if s.is_closed:
                del self._sequences[r]
        self.blocks.left.clear()

    def _runs(self) -> bool:
        return self.batch.num_decoding > 0 and self.batch.decodes_run

    def _unstick(self) -> bool:
        """Nothing runs: True if that was because a policy waits for requests that cannot come.

        Raises PolicyError if nothing more can happen.
        """
        self._check_wake()
        if self._alarm == NEVER and self._arrivals.are_stuck:
            self._decide_stuck()
            if self.batch.edits > 0:
                return True
        if self._alarm == NEVER and self._arrivals.is_closed:
            self._starve()
        return False

    # --- steps ----------------------------------------------------------------

    def _run_step(self) -> None:
        b, work = self.batch, self._work
        if self._was_idle:
            self._was_idle = False
            b.log.jump(b.tick_count, b.now)
        self._compose()
        tokens: list[int] = []
        if work.rows:  # else requests are held or preempted, and nothing else
            try:
                tokens = self.engine.run(work)
            except Exception as error:
                self._fail_step(error)
                return
            work.released.clear()
        b.now = self.engine.now()
        b.tick(1)
        free = b.blocks.free
        self._take(tokens)
        if self._done:
            self._finish()
            self._interrupt()
        self._end_step(free)

    def _end_step(self, free: int) -> None:
        b = self.batch
        if b.edits > 0:
            b.edits = 0
            self._interrupt()
        b.log.stretch(1, b.now, free, b.blocks.free)
        self._end_wake()

    def _take(self, tokens: list[int]) -> None:
        """Give `sampled` their tokens: the chunks first, then the decodes."""
        assert len(tokens) == len(self._work.sampled), "the engine gave another number of tokens"
        self._tokens = tokens
        self._num_taken = 0
        if self.batch.edits > 0:
            self._end_plan()
        sampled = self._work.sampled
        for i in range(self._num_taken, len(tokens)):
            s = sampled[i]
            if s.take(tokens[i]):
                self._done.append(s.request)
        self.sampled = sampled

    def _is_done(self, r: Request) -> bool:
        token = self._tokens[self._num_taken]
        self._num_taken += 1
        return self._sequences[r].take(token)

    def _fail_step(self, error: Exception) -> None:
        """The engine has raised: end the sequences of the step; what it has written is void."""
        b, work = self.batch, self._work
        work.released.clear()
        b.now = max(b.now, self.engine.now())
        void: list[Block] = []
        for r in b.chunks:
            void += r.blocks[r.computed // b.blocks.block_size :]
        b.tick(1)
        free = b.blocks.free
        for r in b.chunks:
            if b.fill(r):
                b.decode(r)
        for r in b.held:
            b.decode(r)
        b.end_plan()
        for s in work.rows:
            if s.request.state == PREFILLING or s.request.state == DECODING:
                self._fail(s, error)
                self._cancel(s.request, b.now)
        self.blocks.void(void)
        work.sampled = []
        self._interrupt()
        self._end_step(free)

    def _fail(self, s: Sequence, error: Exception) -> None:
        s.error = error
        s.finish_reason = "error"

    # --- the columns of a step ------------------------------------------------

    def _compose(self) -> None:
        """Write the plan into `_work`."""
        b, work = self.batch, self._work
        self._collect_left()
        if b.decodes_run:
            b.reserve()
        if b.edits == 0 and self._are_listed:
            self._repeat()
            return
        work.clear()
        self._add_chunks()
        if b.decodes_run:
            self._add_decodes()
        self._are_listed = b.edits == 0 and b.num_padded == 0

    def _add_chunks(self) -> None:
        b, work = self.batch, self._work
        pads = dict(b.pads)
        for r in b.chunks:
            if r.brought > 0:
                self._expect(r)
            s = self._sequences[r]
            end = r.computed + r.planned
            pad = pads.get(r, 0)
            s.table = self.blocks.extend(r, end)
            if s.started < 0:
                s.started = b.now
            work.add(s, r.computed, s.ids(r.computed, end), pad, end == r.prompt + r.generated)

    def _add_decodes(self) -> None:
        b = self.batch
        padded: list[Sequence] = []
        for r in b.running:
            if r.state == DECODING:
                self._add_decode(self._sequences[r], b.clock + r.shift)
            elif r.state == PADDED:
                padded.append(self._sequences[r])
        for s in padded:  # writes over its last block when there is no room behind it
            r = s.request
            room = max(len(s.table), r.reserved) * b.blocks.block_size
            past = min(b.clock + r.shift, room - 1)
            self.blocks.extend(r, past + 1)
            self._work.add(s, past, [], 1, False)

    def _add_decode(self, s: Sequence, past: int) -> None:
        self.blocks.extend(s.request, past + 1)
        self._work.add(s, past, s.tokens[-1:], 0, True)

    def _repeat(self) -> None:
        """The rows of the last step again, one token further."""
        work, size = self._work, self.blocks.block_size
        work.past = [past + 1 for past in work.past]
        work.tokens = [s.tokens[-1] for s in work.rows]
        for i in range(len(work.rows)):
            s = work.rows[i]
            if work.past[i] >= len(s.table) * size:
                self.blocks.extend(s.request, work.past[i] + 1)
