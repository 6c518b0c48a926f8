"""The batch: which requests wait, which run, and the KV blocks they hold.

Decoding gives every decoding request exactly one token per step, so the batch keeps one
decode clock, and each decoding request its offset to it:

    r.computed        = clock + r.shift
    r needs a block   when (clock + r.shift) % block_size == 0

`_crossing[phase]` counts the decodes that need a block when `clock % block_size == phase`.
A step that changes nothing costs O(1), whatever the batch size.

The batch persists from step to step.  Policies edit it with moves (`admit`, `chunk`, `hold`,
`preempt`, `release`, `pad`, `wake_at`, `wake_after`, and `reserve` and `grant` for policies that walk)
and say with `decodes_run` whether decodes take part; drivers, simulated or live, call `enqueue`,
`cancel`, `measure`, `tick`, `fill`, `decode`, `stop` or `keep_computing`, `finish`, `end_plan`.
Where there is host memory (`host`), `swapping` has two moves more.

Under speculative decoding (`speculate`) a step may bring a decode more than one token: the clock
gives it one, `accept` adds the others to its offset, and its blocks are counted in `drafts`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from batchwright.blocks import Blocks
from batchwright.drafts import Drafts
from batchwright.errors import PolicyError
from batchwright.extremes import Extremes
from batchwright.host_memory import HostMemory
from batchwright.limits import Limits
from batchwright.link import Link
from batchwright.log import ABORTED, DROPPED, PREEMPTED, Log
from batchwright.movers import Movers
from batchwright.prediction import Predictor
from batchwright.refusals import refuse_computed, refuse_seat
from batchwright.request import (
    CANCELLED,
    DECODING,
    ENDED,
    FINISHED,
    HELD,
    MOVING_IN,
    MOVING_OUT,
    NEVER,
    NO_BLOCKS,
    PADDED,
    PREFILLING,
    SWAPPED,
    WAITING,
    Block,
    Request,
)
from batchwright.speculation import Speculation
from batchwright.step import Step
from batchwright.tally import Tally
from batchwright.waiting import Key, Line, Waiting

LEAVE: Final = 0  # a request that has all its tokens leaves at once,
STAY: Final = 1  # or keeps seat and blocks until it is released,
PAD: Final = 2  # or is computed, too, until it is released


def _no_prediction(tokens: int) -> float:
    raise PolicyError("this batch has no cost model, so it predicts no step; give its driver one")


class Batch:
    """Requests in flight on one replica.  Times in seconds, lengths in tokens."""

    __slots__ = (  # a misspelt setting is an error, interpreted or compiled
        "_crossing", "_num_crossing", "_padding", "_padding_attention", "blocks", "chunks", "clock",
        "context", "decodes_run", "drafts", "draining", "edits", "extremes", "has_preempted", "held", "host",
        "is_reserved", "is_streamed", "joined", "limits", "link", "log", "max_running", "movers", "now",
        "num_coming", "num_decoding", "num_padded", "num_swapped", "num_waiting", "on_end", "overlap", "pads",
        "predict", "predictor", "prefilling", "running", "tally", "tick_count", "transfer_time", "waiting",
        "wake_tick", "wake_time",
    )  # fmt: skip

    def __init__(self, limits: Limits, blocks: Blocks | None = None) -> None:
        self.limits = limits
        self.blocks = Blocks.of(limits) if blocks is None else blocks
        self.log = Log(self.blocks.free)
        self.now = 0.0
        self.draining = False  # can no more requests come, or none before one that waits is served?
        self.waiting = Waiting()
        self.num_waiting = 0
        self.running: dict[Request, None] = {}  # in admission order
        self.prefilling: dict[Request, None] = {}  # those whose prompt is incomplete
        self.num_decoding = 0
        self.num_padded = 0
        self.context = 0  # KV tokens of decodes and padded rows
        self.tick_count = 0  # steps so far
        self.clock = 0  # steps so far in which decodes ran
        self.predict: Callable[[int], float] = _no_prediction  # the coming step with n more prompt tokens
        self.link: Link | None = None  # to host memory, where the driver knows one
        self.num_swapped = 0  # requests that wait in host memory
        self.movers = Movers()  # KV on its way, and its blocks
        self.num_coming = 0  # requests whose KV comes, and a seat is kept for each
        self.transfer_time = NEVER  # when the next one has come or gone
        self.extremes: Extremes | None = None  # of the contexts, if the cost model asks for them
        # Settings, which a policy makes when it begins.
        self.max_running = limits.max_num_seqs
        self.overlap = False  # is a step planned before the last one's tokens are known?
        self.on_end = LEAVE
        self.is_streamed = True  # does the client see a token when its step ends?
        self.drafts: Drafts | None = None  # that decodes verify, under speculation
        self.predictor: Predictor | None = None  # of output lengths, which the driver asks
        self.tally: Tally | None = None  # of the tokens of each client, if somebody counts them
        self.host: HostMemory | None = None  # None: nobody is swapped out
        # The plan of the coming step.
        self.edits = 0  # moves made for it
        self.has_preempted = False
        self.decodes_run = True
        self.is_reserved = False  # have its decodes their blocks?
        self.chunks: list[Request] = []
        self.held: list[Request] = []  # decodes that miss it
        self.joined: list[Request] = []  # decodes that have come with their KV
        self.pads: list[tuple[Request, int]] = []  # chunks with tokens of padding behind them
        self._padding = 0  # the sum of those tokens
        self._padding_attention = 0.0
        self.wake_time = NEVER
        self.wake_tick = -1  # none
        self._crossing = [0] * (2 * limits.block_size)  # decodes by block phase, twice
        self._num_crossing = 0  # decodes that take blocks as they grow

    # --- settings, for a policy that begins -----------------------------------

    def order_by(self, key: Key) -> None:
        """Admit the waiting request with the least `key` first, not the one that came first."""
        assert self.num_waiting == 0, "the order is set before requests come"
        self.waiting = Waiting(key)

    def speculate(self, speculation: Speculation) -> None:
        """Let decodes verify draft tokens.  The policy is then asked before every step."""
        self.drafts = Drafts(speculation, self.blocks, self.limits.longest)

    def wait_in(self, line: Line) -> None:
        """Let requests wait in `line`, whose order may change while they do."""
        assert self.num_waiting == 0, "the order is set before requests come"
        self.waiting = Waiting(line=line)

    # --- reads ----------------------------------------------------------------

    @property
    def num_running(self) -> int:
        """Requests that have a seat, whatever they do with it."""
        return len(self.running)

    @property
    def spare_blocks(self) -> int:
        """Free KV blocks that the decodes of the coming step do not need."""
        return self.blocks.free - self.decode_blocks()

    def newest(self) -> Request:
        """The running request that was admitted last.  Raises PolicyError if none runs."""
        if not self.running:
            raise PolicyError("the policy asks for the newest request, but none runs; check num_running")
        return next(reversed(self.running))

    def decode_blocks(self) -> int:
        """Blocks that the decodes still need for the coming step."""
        if self.is_reserved:
            return 0
        if self.drafts is not None:
            return self.drafts.needs(self.running, self.clock)
        return self._crossing[self.clock % self.blocks.block_size]

    def decode_tokens(self) -> int:
        """Tokens that the decodes compute in the coming step, their drafts included."""
        return self.num_decoding if self.drafts is None else self.drafts.all_tokens(self.running, self.clock)

    def row_tokens(self, r: Request) -> int:
        """Tokens that the decode `r` computes in the coming step: 1, and the drafts that it verifies."""
        return 1 if self.drafts is None else self.drafts.tokens(r, self.clock)

    def needs(self, r: Request, tokens: int) -> int:
        """Blocks that `r` needs for `tokens` more tokens."""
        size = self.blocks.block_size
        have = (r.computed + size - 1) // size
        if r.reserved > have:
            have = r.reserved
        need = (r.computed + tokens + size - 1) // size - have
        return need if need > 0 else 0

    def room(self, r: Request) -> int:
        """Tokens that the blocks of `r`, and the spare ones, can still hold."""
        have = max(self.blocks.count(r.computed), r.reserved)
        return (have + self.spare_blocks) * self.blocks.block_size - r.computed

    def quiet_steps(self, limit: int) -> int:
        """How many steps, at most `limit`, the free blocks last; the first is reserved."""
        spare = self.blocks.free
        if not self.is_reserved:
            spare -= self.decode_blocks()
        if spare >= self.num_decoding * (limit // self.blocks.block_size + 1):
            return limit
        if self._num_crossing == 0:
            return limit
        size = self.blocks.block_size  # as many steps take a block for each
        whole = max(0, spare // self._num_crossing * size)
        low, high = min(limit, whole), min(limit, whole + size)
        return bisect_right(range(limit), spare, low, high, key=self._taken_after)

    def _taken_after(self, steps: int) -> int:
        """Blocks taken by the decodes in the `steps` steps that follow the coming one."""
        size = self.blocks.block_size
        phase = (self.clock + 1) % size
        taken = steps // size * self._num_crossing
        for i in range(phase, phase + steps % size):
            taken += self._crossing[i]
        return taken

    # --- moves, for policies --------------------------------------------------

    def reserve(self) -> None:
        """Take the blocks that the decodes need for the coming step."""
        if self.is_reserved:
            return
        self.is_reserved = True
        if self.drafts is not None:
            self.drafts.reserve(self.running, self.clock)
            return
        need = self._crossing[self.clock % self.blocks.block_size]
        if need > 0:
            self.blocks.take(need)

    def admit(
        self, r: Request, tokens: int, hit: list[Block] = NO_BLOCKS, reserve: int = 0, computed: int = 0
    ) -> None:
        """Start the waiting request `r` with a chunk, on the cached blocks `hit`.

        `reserve`: tokens whose blocks are set aside now: of the whole stay, or of the prompt alone;
        then `r` takes blocks as it decodes.
        `computed`: tokens whose KV comes with it; if that is all but its newest one, `tokens` may be 0:
        then it decodes in the coming step.
        Raises PolicyError if `r` does not wait, or as many run as may, or it cannot come with so much.
        """
        if r.state != WAITING:
            raise PolicyError(f"request {r.id} is admitted, but does not wait; admit waiting requests only")
        if len(self.running) + self.num_coming >= self.max_running:
            refuse_seat(r, len(self.running) + self.num_coming, self.max_running)
        if computed != 0 and (hit or not 0 < computed < r.prompt + r.generated):
            refuse_computed(r, computed)
        self.waiting.take(r)
        self.num_waiting -= 1
        r.state = PREFILLING
        self.log.num_seats += 1
        r.seat = self.log.num_seats
        self.running[r] = None
        self.prefilling[r] = None
        if hit:
            self.blocks.share(r, hit)
            r.computed = len(hit) * self.blocks.block_size
        r.admitted = self.tick_count
        r.cached = r.computed
        r.brought = computed
        if computed > 0:
            self.blocks.take(self.blocks.count(computed))
            r.computed = computed
        if reserve > 0:
            self._set_aside(r, reserve)
        if tokens == 0 and 0 < computed == r.prompt + r.generated - 1 and r.generated > 0:
            self._join(r)
        else:
            self.chunk(r, tokens)

    def chunk(self, r: Request, tokens: int) -> None:
        """Run `tokens` more prompt tokens of `r` in the coming step.

        Raises PolicyError if `r` has a chunk already, lacks fewer tokens, or blocks are short.
        """
        if r.state != PREFILLING or r.planned > 0 or not 0 < tokens <= r.prompt + r.generated - r.computed:
            self._refuse_chunk(r, tokens)
        need = self.needs(r, tokens)
        if need > 0:
            self.blocks.take(need)
        if self.blocks.caching and r.prefix:
            self.blocks.publish(r, r.computed + tokens)
        r.planned = tokens
        self.chunks.append(r)
        self.edits += 1

    def pad(self, r: Request, tokens: int) -> None:
        """Compute `tokens` tokens of padding behind the chunk of `r` in the coming step.

        Raises PolicyError if `r` has no chunk, or `tokens` is below 1.
        """
        if r.planned < 1 or tokens < 1:
            raise PolicyError(
                f"request {r.id} is padded by {tokens} tokens behind {r.planned}; pad a chunk by at least 1"
            )
        past = r.computed + r.planned
        self.pads.append((r, tokens))
        self._padding += tokens
        self._padding_attention += tokens * (past + tokens / 2)

    def grant(self, r: Request, tokens: int = 1) -> None:
        """Let the decode `r` take part in the coming step (walks only).

        `tokens`: under speculation at most `row_tokens`; fewer drafts are verified if it is less.
        Raises PolicyError if `r` does not decode, or on another number of tokens.
        """
        if r.state != DECODING:
            raise PolicyError(f"request {r.id} is granted a step, but does not decode; grant decodes only")
        most = self.row_tokens(r)
        if not 0 < tokens <= most:
            raise PolicyError(
                f"request {r.id} is granted {tokens} tokens; give a decode at least 1 and at most {most}"
            )
        need = self.needs(r, tokens)
        if self.drafts is not None:
            self.drafts.take(r, need)
            if tokens < most:
                self.drafts.trimmed[r] = tokens
                self.edits += 1
        elif need > 0:
            self.blocks.take(need)
        r.planned = tokens

    def hold(self, r: Request) -> None:
        """Let the decode `r` miss the coming step.  Raises PolicyError if `r` does not decode."""
        if r.state != DECODING:
            raise PolicyError(f"request {r.id} is held, but does not decode; hold decodes only")
        self._stop_clock(r)
        r.state = HELD
        self.log.held += (self.tick_count, r.seat)
        self.held.append(r)
        self.edits += 1

    def preempt(self, r: Request) -> None:
        """Take back the blocks of `r` and let it wait again; it recomputes from zero.

        Raises PolicyError if `r` has no seat to lose.
        """
        if r.state == DECODING:
            self._stop_clock(r)
        elif r.state == PREFILLING:
            r.since = -1
            if r.planned > 0:
                self.chunks.remove(r)
        elif r.state != ENDED:
            raise PolicyError(f"request {r.id} is preempted, but has nothing to give back; choose another")
        r.until = self.tick_count
        self.log.stay(r, PREEMPTED)
        self._leave(r, True)
        r.reserved = 0
        r.state = WAITING
        r.computed = 0
        r.preemptions += 1
        self.has_preempted = True
        self.edits += 1
        self.waiting.push(r)
        self.num_waiting += 1

    def release(self, r: Request) -> None:
        """Let `r`, which has all its tokens and stayed, leave.  Raises PolicyError if it has not."""
        if r.state != ENDED and r.state != PADDED:
            raise PolicyError(f"request {r.id} is released, but has not ended; release ended requests only")
        free = self.blocks.free
        self.finish(r)
        self.log.freed_late(self.blocks.free - free)
        self.edits += 1

    def wake_at(self, seconds: float) -> None:
        """Ask the policy again at the first step boundary at or after `seconds`.

        Raises PolicyError if that is not a time.
        """
        if not seconds >= 0:
            raise PolicyError(f"the policy asks to be woken at {seconds} s; give a time, or do not ask")
        if seconds < self.wake_time:
            self.wake_time = seconds

    def wake_after(self, steps: int) -> None:
        """Ask the policy again when `steps` more steps have run.  Raises PolicyError below 1."""
        if not isinstance(steps, int) or steps < 1:
            raise PolicyError(
                f"the policy asks to be woken after {steps} steps; give a whole number of at least 1"
            )
        tick = self.tick_count + steps
        if self.wake_tick < 0 or tick < self.wake_tick:
            self.wake_tick = tick

    # --- for drivers ----------------------------------------------------------

    def enqueue(self, r: Request) -> None:
        """Let `r`, which has just come, wait."""
        r.queued = self.tick_count
        self.waiting.push(r)
        self.num_waiting += 1

    def cancel(self, r: Request) -> bool:
        """The client of `r` has gone; False if all its tokens were out."""
        if r.state == WAITING:
            self.waiting.take(r)
            self.num_waiting -= 1
            r.seat = 0
            r.until = self.tick_count
            self.log.stay(r, ABORTED)
        elif r.state == DECODING or r.state == PREFILLING:
            self._abort(r)
        elif r.state == MOVING_OUT or r.state == SWAPPED or r.state == MOVING_IN:
            self._abort_swapped(r)
        else:
            return False
        r.state = CANCELLED
        return True

    @property
    def has_work(self) -> bool:
        """Does the plan compute or change anything?"""
        return (
            len(self.chunks) > 0 or (self.num_decoding > 0 and self.decodes_run)
            or self.has_preempted or len(self.held) > 0
        )  # fmt: skip

    def measure(self, step: Step) -> None:
        """Write into `step` what the coming step computes."""
        prefill = past = 0
        attention = 0.0
        sampled = 0
        for r in self.chunks:
            prefill += r.planned
            past += r.computed
            attention += r.planned * (r.computed + 0.5 * r.planned)
            if r.computed + r.planned == r.prompt + r.generated:
                sampled += 1
        if self._padding > 0:
            prefill += self._padding
            attention += self._padding_attention
        runs = self.decodes_run
        step.prefill_tokens = prefill
        step.num_chunks = len(self.chunks)
        step.past_tokens = past
        step.prefill_attention = attention
        step.num_decodes = self.num_decoding if runs else 0
        step.padded_rows = self.num_padded if runs else 0
        step.context_tokens = self.context if runs else 0
        step.sampled_rows = sampled + step.num_decodes
        if self.drafts is not None:
            self.drafts.measure(self.running if runs else (), self.clock, step)
        if self.extremes is not None:
            self.extremes.measure(step, self.clock)

    def tick(self, steps: int) -> None:
        """`steps` steps: every decoding request gains one token in each."""
        if self.decodes_run:
            if not self.is_reserved:
                self.reserve()
            if steps > 1 and self._num_crossing > 0:
                taken = self._taken_after(steps - 1)
                if taken > 0:
                    self.blocks.take(taken)
            self.clock += steps
            self.context += steps * (self.num_decoding + self.num_padded)
        else:
            self.log.paused.append(self.tick_count)
        self.tick_count += steps
        self.is_reserved = False

    def end_plan(self) -> None:
        """The edited step has run: clear its chunks and its padding."""
        self.chunks.clear()
        if self.held:
            self.held.clear()
        if self._padding > 0:
            self.pads.clear()
            self._padding = 0
            self._padding_attention = 0.0

    def fill(self, r: Request) -> bool:
        """Mark the chunk of `r` as computed; True if that completes its prompt."""
        tokens = r.planned
        r.computed += tokens
        r.planned = 0
        if r.prompt + r.generated > r.computed:
            self.log.chunks += (self.tick_count - 1, r.seat, tokens)
            return False
        r.generated += 1
        r.since = self.tick_count
        r.filled = r.computed
        if r.reserved > 0 and r.reserved == self.blocks.count(r.computed):
            r.reserved = 0  # the prompt has used it up
        del self.prefilling[r]
        if self.tally is not None:
            self.tally.first(r)
        return True

    def decode(self, r: Request) -> None:
        """Put `r`, whose prompt is complete, on the decode clock."""
        if r.state == HELD:
            r.filled = r.computed + 1  # under `overlap`: its last token is known by now
        r.state = DECODING
        r.shift = r.computed - self.clock
        if r.reserved == 0:
            if self.drafts is None:
                self._cross(r, 1)
            else:
                self.drafts.join(r)
        self.num_decoding += 1
        self.context += r.computed
        if self.extremes is not None:
            self.extremes.join(r)
        if self.tally is not None:
            self.tally.start(r)

    def accept(self, r: Request, tokens: int) -> None:
        """The step that has run brought the decode `r` so many tokens beside the one of the clock."""
        r.gained = tokens + 1
        if tokens > 0:
            r.shift += tokens
            self.context += tokens
            if self.extremes is not None:
                self.extremes.join(r)
            self.log.accepted += (self.tick_count - 1, r.seat, tokens)

    def stop(self, r: Request) -> None:
        """Take `r`, which has all its tokens, off the clock; it keeps its seat and blocks."""
        if r.state == DECODING:
            self._stop_clock(r)
        r.state = ENDED
        r.stopped = self.tick_count

    def keep_computing(self, r: Request) -> None:
        """`r` has all its tokens, but stays a row of the batch, until it is released."""
        self.stop(r)
        r.state = PADDED
        r.shift = r.computed - self.clock
        self.num_padded += 1
        self.context += r.computed
        if self.extremes is not None:
            self.extremes.join(r)

    def finish(self, r: Request) -> None:
        """Take `r` out of the batch for good."""
        if r.state == WAITING:  # preempted before its end was seen
            self.waiting.take(r)
            self.num_waiting -= 1
            r.until = self.tick_count
            self.log.stay(r, DROPPED)
        else:
            self._finish_running(r)
        r.state = FINISHED

    def check(self) -> None:
        """Recompute counts, clock and blocks from the requests.  For tests and audits."""
        decodes = [r for r in self.running if r.state == DECODING]
        padded = [r for r in self.running if r.state == PADDED]
        assert len(decodes) == self.num_decoding and len(padded) == self.num_padded
        contexts = [self.clock + r.shift for r in decodes + padded]
        assert self.context == sum(contexts)
        if self.extremes is not None and contexts:
            step = Step()
            step.num_decodes = len(contexts)
            self.extremes.measure(step, self.clock)
            assert step.least_context == min(contexts) and step.greatest_context == max(contexts)
        assert all(r.state == PREFILLING and r.unfilled > 0 for r in self.prefilling)
        size = self.blocks.block_size
        for phase in range(size):
            due = sum(1 for r in decodes if r.reserved == 0 and -r.shift % size == phase)
            assert due == self._crossing[phase] == self._crossing[phase + size]
        assert self._num_crossing == sum(self._crossing[:size])
        holders = [*self.running, *self.movers.requests]
        used = 0
        for r in holders:
            tokens = self.clock + r.shift if r.state == DECODING else r.computed
            used += max(self.blocks.count(tokens), r.reserved)
        self.blocks.check(holders, used)
        assert self.num_coming == len(self.movers.coming)
        if self.host is not None:
            self.host.check()
            assert self.num_swapped == len(self.host.swapped)

    # --- inside ---------------------------------------------------------------

    def _set_aside(self, r: Request, tokens: int) -> None:
        """Take the blocks of `tokens` tokens for `r`, beyond those that it shares."""
        total = self.blocks.count(tokens)
        self.blocks.take(total - self.blocks.count(r.computed))
        r.reserved = total

    def _refuse_chunk(self, r: Request, tokens: int) -> None:
        if r.state != PREFILLING:
            raise PolicyError(f"request {r.id} is given a chunk, but does not prefill; admit it first")
        if r.planned > 0:
            raise PolicyError(f"request {r.id} has a chunk in the coming step; give it one chunk a step")
        raise PolicyError(
            f"request {r.id} is given a chunk of {tokens} tokens, but lacks {r.unfilled}; "
            "give at least 1 and at most what it lacks"
        )

    def _cross(self, r: Request, change: int) -> None:
        size = self.blocks.block_size
        phase = -r.shift % size
        self._crossing[phase] += change
        self._crossing[phase + size] += change
        self._num_crossing += change

    def _stop_clock(self, r: Request) -> None:
        """Freeze what the clock knew of the decode `r`."""
        r.computed = self.clock + r.shift
        r.generated = r.computed - r.prompt + 1
        if r.reserved == 0:
            self._cross(r, -1)
        self.num_decoding -= 1
        self.context -= r.computed
        if self.tally is not None:
            self.tally.stop(r)

    def _join(self, r: Request) -> None:
        """Let `r`, which has come with its KV, decode in the coming step."""
        if self.is_reserved:
            self.blocks.take(self.needs(r, 1))
        del self.prefilling[r]
        r.since = self.tick_count
        r.filled = r.computed
        self.decode(r)
        self.joined.append(r)
        self.edits += 1

    def _abort_swapped(self, r: Request) -> None:
        """What moves goes on moving, and holds its blocks until it has come."""
        if r.state == SWAPPED:
            assert self.host is not None
            self.host.drop(r)
            self.num_swapped -= 1
        r.seat = 0
        r.until = self.tick_count
        self.log.stay(r, ABORTED)

    def _finish_running(self, r: Request) -> None:
        if r.state == PADDED:
            self.num_padded -= 1
            self.context -= self.clock + r.shift
        elif r.state != ENDED:
            self.stop(r)
        if not self.is_streamed:
            r.first_token = self.now
            r.finished = self.now
        r.until = self.tick_count
        self.log.complete(r)
        r.filled = 0  # all its tokens are known
        self._leave(r, False)

    def _abort(self, r: Request) -> None:
        if r.state == DECODING:
            self._stop_clock(r)
        else:
            r.since = -1
        r.until = self.tick_count
        self.log.stay(r, ABORTED)
        self._leave(r, False)

    def _leave(self, r: Request, again: bool) -> None:
        del self.running[r]
        if r.state == PREFILLING:
            self.prefilling.pop(r, None)
        tokens = r.computed + r.planned
        known = min(tokens, r.prompt + r.generated)
        if self.overlap and tokens > r.filled > 0:
            known = max(known - r.gained, r.filled)
        self.blocks.release(r, tokens, known, again)
        r.filled = 0
        r.planned = 0
