"""The batch: every move, what it refuses, and counts that a naive model has, too.

A driver's loop, `run_step`, stands in for the simulator, so that every state can be reached.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from random import Random

import pytest

from batchwright.batch import NEVER, Batch
from batchwright.cost import Constant
from batchwright.errors import PolicyError
from batchwright.history import stays
from batchwright.limits import Limits
from batchwright.log import ABORTED, PREEMPTED
from batchwright.request import (
    CANCELLED,
    DECODING,
    ENDED,
    FINISHED,
    HELD,
    PADDED,
    PREFILLING,
    WAITING,
    Request,
)
from batchwright.simulator import Simulator
from batchwright.step import Step
from strategies import for_every_seed

LIMITS = Limits(block_size=4, num_kv_blocks=64)


STEP = (
    "context_tokens", "num_chunks", "num_decodes", "padded_rows", "past_tokens", "prefill_attention",
    "prefill_tokens", "sampled_rows",
)  # fmt: skip


def waiting(batch: Batch, prompt: int = 6, output: int = 100, id: int = 0) -> Request:
    r = Request(id, 0.0, prompt, output)
    batch.enqueue(r)
    return r


def prefilling(batch: Batch, id: int = 0) -> Request:
    """4 of 6 prompt tokens are computed."""
    r = waiting(batch, id=id)
    batch.admit(r, 4)
    run_step(batch)
    return r


def decoding(batch: Batch, prompt: int = 6, id: int = 0, reserve: int = 0) -> Request:
    r = waiting(batch, prompt, id=id)
    batch.admit(r, prompt, reserve=reserve)
    run_step(batch)
    return r


def held(batch: Batch, id: int = 0) -> Request:
    """Held for the coming step."""
    r = decoding(batch, id=id)
    batch.hold(r)
    return r


def ended(batch: Batch, id: int = 0) -> Request:
    r = decoding(batch, id=id)
    batch.stop(r)
    return r


def padded(batch: Batch, id: int = 0) -> Request:
    r = decoding(batch, id=id)
    batch.keep_computing(r)
    return r


def finished(batch: Batch, id: int = 0) -> Request:
    r = decoding(batch, id=id)
    batch.finish(r)
    return r


def cancelled(batch: Batch, id: int = 0) -> Request:
    r = waiting(batch, id=id)
    batch.cancel(r)
    return r


STATES: dict[int, Callable[..., Request]] = {
    WAITING: waiting,
    PREFILLING: prefilling,
    DECODING: decoding,
    HELD: held,
    ENDED: ended,
    PADDED: padded,
    FINISHED: finished,
    CANCELLED: cancelled,
}


def run_step(batch: Batch) -> None:
    """What a driver does in one step, and before the policy is asked again."""
    batch.tick(1)
    for r in batch.chunks:
        if batch.fill(r):
            batch.decode(r)
    for r in batch.held:
        batch.decode(r)
    batch.end_plan()
    batch.edits = 0
    batch.has_preempted = False
    batch.decodes_run = True


def measured(batch: Batch) -> dict[str, float]:
    step = Step()
    batch.measure(step)
    return {name: getattr(step, name) for name in STEP}


def work(**values: float) -> dict[str, float]:
    """What `measured` gives, 0 where nothing is said."""
    return dict.fromkeys(STEP, 0) | values


@pytest.mark.parametrize("state", STATES)
def test_every_state_can_be_reached(state: int) -> None:
    batch = Batch(LIMITS)
    assert STATES[state](batch).state == state
    batch.check()


# --- admit and chunk ----------------------------------------------------------


def test_admission_takes_a_seat_and_the_blocks_of_the_chunk() -> None:
    batch = Batch(LIMITS)
    a, b = waiting(batch, id=0), waiting(batch, id=1)
    batch.admit(b, 5)
    batch.admit(a, 2)
    assert list(batch.running) == list(batch.prefilling) == batch.chunks == [b, a]
    assert (batch.newest(), batch.num_running, batch.num_waiting, batch.edits) == (a, 2, 0, 2)
    assert (b.seat, a.seat) == (1, 2)
    assert (b.planned, b.unfilled, batch.blocks.free) == (5, 6, 64 - 2 - 1)


@pytest.mark.parametrize("state", [state for state in STATES if state != WAITING])
def test_only_a_waiting_request_is_admitted(state: int) -> None:
    batch = Batch(LIMITS)
    r = STATES[state](batch, id=5)
    with pytest.raises(PolicyError, match="request 5 is admitted, but does not wait"):
        batch.admit(r, 1)


@pytest.mark.parametrize("tokens", [-1, 0, 7])
def test_a_chunk_has_a_token_and_no_more_than_its_request_lacks(tokens: int) -> None:
    batch = Batch(LIMITS)
    with pytest.raises(PolicyError, match=f"chunk of {tokens} tokens, but lacks 6; give at least 1"):
        batch.admit(waiting(batch), tokens)
    batch = Batch(LIMITS)
    r = prefilling(batch)
    with pytest.raises(PolicyError, match="chunk of 3 tokens, but lacks 2"):
        batch.chunk(r, 3)
    batch.chunk(r, 2)


def test_a_request_has_one_chunk_a_step() -> None:
    batch = Batch(LIMITS)
    r = waiting(batch)
    batch.admit(r, 2)
    with pytest.raises(PolicyError, match="request 0 has a chunk in the coming step"):
        batch.chunk(r, 2)
    run_step(batch)
    batch.chunk(r, 2)
    assert r.computed == 2


def test_a_chunk_needs_free_blocks() -> None:
    batch = Batch(Limits(block_size=4, num_kv_blocks=2))
    with pytest.raises(PolicyError, match="the step needs 3 KV blocks, but 2 are free"):
        batch.admit(waiting(batch, prompt=9), 9)


def test_a_resumed_request_recomputes_its_output_too() -> None:
    batch = Batch(LIMITS)
    r = decoding(batch, prompt=6)
    run_step(batch)
    batch.preempt(r)
    assert (r.generated, r.unfilled) == (2, 8)
    batch.admit(r, 6)
    assert measured(batch)["sampled_rows"] == 0  # its prompt is complete, but not its prefill
    run_step(batch)
    batch.chunk(r, 2)
    assert measured(batch)["sampled_rows"] == 1
    run_step(batch)
    assert (r.state, batch.context) == (DECODING, 8)


def test_a_reserve_is_taken_at_admission_and_lasts() -> None:
    batch = Batch(LIMITS)
    r = decoding(batch, prompt=4, reserve=17)
    assert batch.blocks.free == 64 - 5
    for _ in range(13):  # up to 17 tokens
        assert batch.decode_blocks() == 0
        run_step(batch)
    assert batch.blocks.free == 64 - 5
    batch.check()
    batch.finish(r)
    assert batch.blocks.free == 64


@pytest.mark.parametrize(("prompt", "steps"), [(16, 0), (14, 2)])
def test_a_reserve_of_the_prompt_is_used_up_by_it(prompt: int, steps: int) -> None:
    batch = Batch(LIMITS)
    r = waiting(batch, prompt)
    batch.admit(r, 4, reserve=prompt)
    run_step(batch)
    assert (r.reserved, batch.blocks.free) == (4, 60)
    batch.chunk(r, prompt - 4)
    run_step(batch)
    for _ in range(steps):  # to the end of the last block
        assert batch.decode_blocks() == 0
        run_step(batch)
    assert (r.reserved, batch.decode_blocks(), batch.blocks.free) == (0, 1, 60)
    run_step(batch)
    assert batch.blocks.free == 59
    batch.check()


def test_needs_counts_blocks_beyond_those_held_or_reserved() -> None:
    batch = Batch(LIMITS)
    r = prefilling(batch)
    assert [batch.needs(r, tokens) for tokens in (1, 2)] == [1, 1]
    other = waiting(batch, prompt=30, id=1)
    batch.admit(other, 8, reserve=13)
    run_step(batch)
    assert [batch.needs(other, tokens) for tokens in (1, 8, 9, 22)] == [0, 0, 1, 4]


def test_a_cached_prefix_is_not_computed_again() -> None:
    batch = Batch(LIMITS)
    keys = array("q", [1, 2])
    a, b = (Request(i, 0.0, 10, 5, prefix=keys) for i in range(2))
    batch.enqueue(a)
    batch.admit(a, 10)
    run_step(batch)
    batch.enqueue(b)
    hit = batch.blocks.lookup(b)
    batch.admit(b, 2, hit)
    assert (len(hit), b.computed, b.cached, batch.blocks.free) == (2, 8, 8, 64 - 3 - 1)
    run_step(batch)
    batch.check()


# --- hold ---------------------------------------------------------------------


def test_a_held_decode_misses_one_step() -> None:
    batch = Batch(LIMITS)
    a, b = decoding(batch, id=0), decoding(batch, id=1)  # a has computed 7, b 6
    batch.hold(a)
    assert (a.state, batch.num_decoding, batch.context) == (HELD, 1, 6)
    run_step(batch)
    assert (a.state, batch.num_decoding, batch.context) == (DECODING, 2, 7 + 7)
    run_step(batch)
    assert batch.context == 8 + 8
    assert list(batch.log.column("held")) == [2, a.seat]
    assert b.seat > a.seat


@pytest.mark.parametrize("state", [state for state in STATES if state != DECODING])
def test_only_a_decode_is_held(state: int) -> None:
    batch = Batch(LIMITS)
    r = STATES[state](batch, id=5)
    with pytest.raises(PolicyError, match="request 5 is held, but does not decode"):
        batch.hold(r)


# --- preempt and release ----------------------------------------------------------


@pytest.mark.parametrize("state", [PREFILLING, DECODING, ENDED])
def test_a_preempted_request_gives_all_back_and_waits_in_front(state: int) -> None:
    batch = Batch(LIMITS)
    r = STATES[state](batch, id=5)
    other = waiting(batch, id=6)
    batch.preempt(r)
    assert (r.state, r.computed, r.preemptions, r.seat > 0) == (WAITING, 0, 1, True)
    assert batch.waiting.head(9) == [r, other]
    assert (batch.num_waiting, batch.num_running, batch.blocks.free) == (2, 0, 64)
    assert (batch.edits, batch.has_preempted) == (1, True)
    assert [stay.how for stay in stays(batch.log)] == [PREEMPTED]
    batch.check()


def test_a_preempted_request_takes_its_chunk_out_of_the_plan() -> None:
    batch = Batch(LIMITS)
    r = waiting(batch)
    batch.admit(r, 4)
    batch.preempt(r)
    assert (batch.chunks, r.planned, r.computed, batch.blocks.free) == ([], 0, 0, 64)
    batch.check()


def test_a_preempted_request_gives_back_its_reserve() -> None:
    batch = Batch(LIMITS)
    r = decoding(batch, reserve=40)
    batch.preempt(r)
    assert (r.reserved, batch.blocks.free) == (0, 64)
    batch.check()


@pytest.mark.parametrize("state", [WAITING, HELD, PADDED, FINISHED, CANCELLED])
def test_who_computes_nothing_is_not_preempted(state: int) -> None:
    batch = Batch(LIMITS)
    r = STATES[state](batch, id=5)
    with pytest.raises(PolicyError, match="request 5 is preempted, but has nothing to give back"):
        batch.preempt(r)


@pytest.mark.parametrize("state", [ENDED, PADDED])
def test_a_released_request_leaves(state: int) -> None:
    batch = Batch(LIMITS)
    r = STATES[state](batch)
    batch.release(r)
    assert (r.state, batch.num_running, batch.num_padded, batch.context) == (FINISHED, 0, 0, 0)
    assert (batch.blocks.free, batch.edits) == (64, 1)
    batch.check()


@pytest.mark.parametrize("state", [state for state in STATES if state not in (ENDED, PADDED)])
def test_only_an_ended_request_is_released(state: int) -> None:
    batch = Batch(LIMITS)
    r = STATES[state](batch, id=5)
    with pytest.raises(PolicyError, match="request 5 is released, but has not ended"):
        batch.release(r)


# --- requests that have ended and stay ----------------------------------------------


def test_an_ended_request_is_not_computed_and_a_padded_one_is() -> None:
    batch = Batch(LIMITS)
    a, b, c = (waiting(batch, prompt, id=prompt) for prompt in (5, 6, 9))
    for r in (a, b, c):
        batch.admit(r, r.prompt)
    run_step(batch)
    batch.stop(a)
    batch.keep_computing(b)
    assert measured(batch) == work(num_decodes=1, padded_rows=1, context_tokens=6 + 9, sampled_rows=1)
    run_step(batch)
    assert measured(batch) == work(num_decodes=1, padded_rows=1, context_tokens=7 + 10, sampled_rows=1)
    assert (a.generated, b.generated, batch.num_running) == (1, 1, 3)
    assert batch.blocks.free == 64 - 2 - 2 - 3  # a padded row takes no more blocks
    batch.check()


# --- padding and measure --------------------------------------------------------------


def test_a_step_is_measured_as_planned() -> None:
    batch = Batch(LIMITS)
    decoding(batch, prompt=9, id=0)
    half = prefilling(batch, id=1)  # meanwhile 0 has computed 10
    whole = waiting(batch, prompt=3, id=2)
    batch.admit(whole, 3)
    batch.chunk(half, 1)
    assert measured(batch) == work(
        prefill_tokens=3 + 1,
        num_chunks=2,
        prefill_attention=3 * (0 + 1.5) + 1 * (4 + 0.5),
        past_tokens=4,
        num_decodes=1,
        context_tokens=10,
        sampled_rows=2,  # the decode and the prompt that completes
    )


def test_padding_is_work_behind_the_chunk_for_one_step() -> None:
    batch = Batch(LIMITS)
    r = waiting(batch, prompt=6)
    batch.admit(r, 6)
    batch.pad(r, 4)
    tokens = measured(batch)
    assert tokens["prefill_tokens"] == 10
    assert tokens["prefill_attention"] == 10 * 5  # as a prompt of 10
    assert (tokens["num_chunks"], tokens["sampled_rows"], batch.edits) == (1, 1, 1)
    run_step(batch)
    assert measured(batch) == work(num_decodes=1, context_tokens=6, sampled_rows=1)


# --- wake-ups -----------------------------------------------------------------------------


def test_of_several_wake_ups_the_earliest_counts() -> None:
    batch = Batch(LIMITS)
    assert (batch.wake_time, batch.wake_tick) == (NEVER, -1)
    for seconds, steps in ((5.0, 7), (3.0, 2), (4.0, 3)):
        batch.wake_at(seconds)
        batch.wake_after(steps)
    assert (batch.wake_time, batch.wake_tick) == (3.0, 2)
    run_step(batch)
    batch.wake_after(5)
    assert batch.wake_tick == 2
    assert batch.edits == 0


# --- cancel -------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [WAITING, PREFILLING, DECODING])
def test_a_client_that_goes_frees_what_its_request_had(state: int) -> None:
    batch = Batch(LIMITS)
    other = decoding(batch, id=9)
    r = STATES[state](batch, id=5)
    assert batch.cancel(r)
    assert r.state == CANCELLED
    assert (batch.num_waiting, list(batch.running), batch.num_decoding) == (0, [other], 1)
    batch.check()
    assert [(stay.id, stay.how) for stay in stays(batch.log)] == [(5, ABORTED)]
    batch.finish(other)
    assert batch.blocks.free == 64


@pytest.mark.parametrize("state", [ENDED, PADDED, FINISHED, CANCELLED])
def test_a_client_that_goes_after_the_last_token_changes_nothing(state: int) -> None:
    batch = Batch(LIMITS)
    r = STATES[state](batch)
    free = batch.blocks.free
    assert not batch.cancel(r)
    assert (r.state, batch.blocks.free) == (state, free)
    batch.check()


def test_a_preempted_request_can_be_cancelled_while_it_waits() -> None:
    batch = Batch(LIMITS)
    r = decoding(batch)
    batch.preempt(r)
    assert batch.cancel(r)
    assert (r.state, batch.num_waiting) == (CANCELLED, 0)
    assert [stay.how for stay in stays(batch.log)] == [PREEMPTED, ABORTED]


# --- steps in which no decode runs ------------------------------------------------------


def test_decodes_pause_in_a_step_that_they_do_not_run_in() -> None:
    batch = Batch(LIMITS)
    r = decoding(batch, prompt=4)  # the coming step needs a block
    new = waiting(batch, prompt=8, id=1)
    batch.decodes_run = False
    batch.admit(new, 8)
    assert measured(batch) == work(prefill_tokens=8, num_chunks=1, prefill_attention=32.0, sampled_rows=1)
    run_step(batch)
    assert (batch.tick_count, batch.clock, batch.context) == (2, 1, 4 + 8)
    assert batch.blocks.free == 64 - 1 - 2
    assert list(batch.log.column("paused")) == [1]
    batch.check()
    run_step(batch)
    batch.finish(r)
    assert r.generated == 2
    assert list(batch.log.column("paused")) == [1]


def test_a_paused_decode_gets_its_tokens_later_not_fewer() -> None:
    def prompts_alone(b: Batch) -> None:
        if b.edits > 0 or b.num_waiting == 0:
            return
        b.admit(b.waiting.first(), b.waiting.first().prompt)
        b.decodes_run = False

    a, b, c = Request(0, 0.0, 4, 3), Request(1, 1.5, 4, 1), Request(2, 2.5, 4, 2)
    simulator = Simulator(prompts_alone, Constant(1.0), audit=True)
    simulator.run([a, b, c])
    # a gets tokens in [0, 1], [1, 2] and, after the prompts of b and c in [2, 3] and [3, 4], in [4, 5].
    assert (a.first_token, b.first_token, c.first_token) == (1.0, 3.0, 4.0)
    assert (a.finished, b.finished, c.finished) == (5.0, 3.0, 5.0)
    assert list(simulator.log.column("paused")) == [0, 2, 3]


# --- what a plan computes, and for how long -----------------------------------------------


def test_a_plan_has_work_if_it_computes_or_changes_anything() -> None:
    batch = Batch(LIMITS)
    assert not batch.has_work
    r = waiting(batch)
    assert not batch.has_work
    batch.admit(r, 4)
    assert batch.has_work  # a chunk
    run_step(batch)
    assert not batch.has_work
    batch.chunk(r, 2)
    run_step(batch)
    assert batch.has_work  # a decode,
    batch.decodes_run = False
    assert not batch.has_work  # unless no decode runs
    batch.decodes_run = True
    batch.hold(r)
    assert batch.has_work  # one that is held
    run_step(batch)
    batch.preempt(r)
    assert batch.has_work  # the shortage that made somebody go


@for_every_seed(300)
def test_quiet_steps_last_as_long_as_the_free_blocks(seed: int) -> None:
    random = Random(seed)
    size = random.choice([1, 2, 3, 4, 16])
    batch = Batch(Limits(block_size=size, num_kv_blocks=20_000))
    contexts = []
    for id in range(random.choice([1, 2, 5, 12])):
        prompt, is_reserved = random.randint(1, 60), random.random() < 0.2
        decoding(batch, prompt, id, reserve=500 if is_reserved else 0)
        contexts = [context + 1 for context in contexts]
        contexts += [] if is_reserved else [prompt]
    batch.blocks.take(batch.blocks.free - random.randint(len(contexts), random.choice([12, 40, 200])))
    if random.random() < 0.3:
        batch.reserve()
    limit = random.choice([1, 2, 5, 17, 150])
    assert batch.quiet_steps(limit) == lasting(contexts, size, batch, limit)


def lasting(contexts: list[int], size: int, batch: Batch, limit: int) -> int:
    """The steps, at most `limit`, that decodes with these contexts can run."""
    free = batch.blocks.free
    for step in range(limit):
        is_paid = step == 0 and batch.is_reserved
        free -= 0 if is_paid else sum((context + step) % size == 0 for context in contexts)
        if free < 0:
            return step
    return limit


def test_many_quiet_steps_are_as_many_single_ones() -> None:
    one, many = Batch(LIMITS), Batch(LIMITS)
    for batch in (one, many):
        for id, prompt in enumerate((3, 4, 9)):
            decoding(batch, prompt, id)
        batch.keep_computing(decoding(batch, 5, id=3))
    for _ in range(21):
        run_step(one)
    many.tick(21)
    for name in ("clock", "tick_count", "context", "num_decoding", "num_padded"):
        assert getattr(one, name) == getattr(many, name)
    assert one.blocks.free == many.blocks.free
    assert one.decode_blocks() == many.decode_blocks()
    many.check()


# --- the audit of the counts ------------------------------------------------------------


def _grow(batch: Batch, name: str) -> None:
    setattr(batch, name, getattr(batch, name) + 1)


CORRUPTIONS: dict[str, Callable[[Batch, list[Request]], None]] = {
    "a decode too many": lambda batch, rows: _grow(batch, "num_decoding"),
    "a padded row too many": lambda batch, rows: _grow(batch, "num_padded"),
    "a KV token too many": lambda batch, rows: _grow(batch, "context"),
    "a tick of the clock too many": lambda batch, rows: _grow(batch, "clock"),
    "a shift": lambda batch, rows: setattr(rows[0], "shift", rows[0].shift + 1),
    "a state": lambda batch, rows: setattr(rows[0], "state", ENDED),
    "two shifts that cancel out": lambda batch, rows: (
        setattr(rows[0], "shift", rows[0].shift + 1),
        setattr(rows[2], "shift", rows[2].shift - 1),
    ),
    "a decode that needs a block": lambda batch, rows: batch._crossing.__setitem__(1, 5),
    "a free block too many": lambda batch, rows: setattr(batch.blocks, "free", batch.blocks.free + 1),
    "a reserve": lambda batch, rows: setattr(rows[1], "reserved", 40),
    "a complete prompt": lambda batch, rows: batch.prefilling.update({rows[0]: None}),
    "a request that is lost": lambda batch, rows: batch.running.clear(),
    "a shared block with another user": lambda batch, rows: setattr(rows[3].blocks[0], "users", 2),
}


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_check_finds(name: str) -> None:
    batch = Batch(LIMITS)
    rows = [decoding(batch, 5), prefilling(batch, 1), decoding(batch, 7, 2)]
    rows.append(Request(3, 0.0, 6, 9, prefix=array("q", [4])))
    batch.enqueue(rows[3])
    batch.admit(rows[3], 6)
    run_step(batch)
    batch.check()
    CORRUPTIONS[name](batch, rows)
    with pytest.raises(AssertionError):
        batch.check()


# --- settings ------------------------------------------------------------------------------


def test_without_a_cost_model_no_step_is_predicted() -> None:
    with pytest.raises(PolicyError, match="this batch has no cost model"):
        Batch(LIMITS).predict(16)


@for_every_seed(100)
def test_who_waits_is_in_the_order_that_was_asked_for(seed: int) -> None:
    random = Random(seed)
    batch = Batch(LIMITS)
    batch.order_by(lambda r: (r.priority, r.id))
    here: list[Request] = []
    for id in range(40):
        r = Request(id, 0.0, 4, 4, priority=random.randint(-3, 3))
        batch.enqueue(r)
        here.append(r)
        here.sort(key=lambda r: (r.priority, r.id))
        if random.random() < 0.6:
            gone = here.pop(random.choice([0, -1, random.randrange(len(here))]))
            assert batch.cancel(gone)
        assert batch.waiting.head(5) == here[:5]
        assert not here or batch.waiting.first() is here[0]


# --- any moves at all ----------------------------------------------------------------------


class Model:
    """The same batch, with one entry per request and nothing clever."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.computed: dict[Request, int] = {}  # who has a seat; tokens with KV
        self.sampled: dict[Request, int] = {}
        self.chunks: dict[Request, int] = {}
        self.held: list[Request] = []

    def decodes(self) -> list[Request]:
        return [r for r in self.computed if r.state == DECODING]

    def compare(self, batch: Batch) -> None:
        size = batch.blocks.block_size
        assert batch.context == sum(self.computed[r] for r in self.decodes())
        assert batch.decode_blocks() == sum(self.computed[r] % size == 0 for r in self.decodes())
        used = sum(-(-(n + self.chunks.get(r, 0)) // size) for r, n in self.computed.items())
        assert batch.blocks.size - batch.blocks.free == used

    def move(self, batch: Batch) -> None:
        """One move at random that fits."""
        r = self.random.choice([*self.computed, *batch.waiting.head(3)])
        if r in self.chunks or r in self.held:
            return
        if self.random.random() < 0.08 and r.state != WAITING:
            self.sampled[r] = self.sampled.get(r, 0)
            del self.computed[r]
            batch.preempt(r)
        elif r.state == DECODING and self.random.random() < 0.3:
            self.held.append(r)
            batch.hold(r)
        elif r.state in (WAITING, PREFILLING):
            lacks = r.prompt + self.sampled.get(r, 0) - self.computed.get(r, 0)
            self.chunks[r] = self.random.randint(1, lacks)
            self.computed.setdefault(r, 0)
            (batch.admit if r.state == WAITING else batch.chunk)(r, self.chunks[r])

    def run_step(self, batch: Batch) -> None:
        for r in self.decodes() if batch.decodes_run else []:
            self.computed[r] += 1
            self.sampled[r] += 1
        for r, tokens in self.chunks.items():
            self.computed[r] += tokens
            if self.computed[r] == r.prompt + self.sampled.get(r, 0):
                self.sampled[r] = self.sampled.get(r, 0) + 1
        self.chunks.clear()
        self.held.clear()
        run_step(batch)

    def leave(self, batch: Batch) -> None:
        r = self.random.choice([*self.computed])
        del self.computed[r]
        if r.state == PREFILLING or self.random.random() < 0.5:
            assert batch.cancel(r)
        else:
            batch.finish(r)
        assert r.generated == self.sampled.get(r, 0)


@for_every_seed(60)
def test_after_any_moves_the_counts_are_those_of_a_naive_model(seed: int) -> None:
    random = Random(seed)
    size = random.choice([1, 2, 4, 16])
    batch = Batch(Limits(block_size=size, num_kv_blocks=20_000, enable_prefix_caching=random.random() < 0.5))
    model = Model(random)
    for id in range(60):
        waiting(batch, random.randint(1, 20), id=id)
        for _ in range(random.randint(0, 4)):
            model.move(batch)
            model.compare(batch)
        batch.decodes_run = random.random() < 0.8
        model.run_step(batch)
        model.compare(batch)
        batch.check()
        if model.computed and random.random() < 0.3:
            model.leave(batch)
            model.compare(batch)
