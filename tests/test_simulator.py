"""The simulator: who may come when, what wakes a policy, what the audit finds, what stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import inf, nan
from random import Random
from typing import Any

import pytest

from batchwright.batch import PAD, STAY, Batch
from batchwright.cost import Constant, Hosted, Linear
from batchwright.errors import CostError, PolicyError, RequestError
from batchwright.history import EngineStep, stays, steps
from batchwright.limits import Limits
from batchwright.log import ABORTED, COMPLETE
from batchwright.policies import Dynamic, Orca, Static, Vllm
from batchwright.request import CANCELLED, ENDED, FINISHED, HELD, PADDED, Request
from batchwright.simulator import Simulator
from batchwright.step import Step
from strategies import for_every_seed, limits_of, requests_of, timed_workload

SECOND = Constant(1.0)
SYNC = Vllm(async_scheduling=False)


def admit_all(b: Batch) -> None:
    """Whoever waits, with the whole prompt; no eye on KV."""
    if b.edits > 0:
        return
    for r in b.waiting.head(b.num_waiting):
        b.admit(r, r.unfilled)


def walk(simulator: Simulator, pads: bool = False) -> list[EngineStep]:
    """Every step, as the engine ran it."""
    blocks = simulator.batch.blocks
    return steps(simulator.log, num_blocks=blocks.size, block_size=blocks.block_size, pads=pads)


def times(requests: list[Request]) -> list[tuple[float, float, int]]:
    return [(r.first_token, r.finished, r.preemptions) for r in requests]


def simulated(policy: Any, *requests: Request, cost: Any = SECOND, **options: Any) -> Simulator:
    simulator = Simulator(policy, cost, **options)
    simulator.run(requests)
    return simulator


# --- a run in pieces --------------------------------------------------------------

POLICIES = {
    "vllm": SYNC,
    "async": Vllm(),
    "orca": Orca(3),
    "static": Static(2, padded=False),
    "padded": Static(3),
    "dynamic": Dynamic(3, window=0.7),
}


def policy_for(name: str, load: dict[str, Any]) -> tuple[Any, Limits]:
    """The policy and limits under which it can start."""
    config = load["config"]
    longest = config["max_model_len"]
    limits = limits_of(config | {"max_num_seqs": 8, "max_num_batched_tokens": max(longest, 32)})
    return POLICIES[name], limits


@pytest.mark.parametrize("name", POLICIES)
@for_every_seed(25)
def test_a_run_in_pieces_is_the_run_in_one(name: str, seed: int) -> None:
    random = Random(seed)
    load = timed_workload(seed)
    policy, limits = policy_for(name, load)
    cost = Linear(0.1, 1e-3, 1e-2, 1e-4)
    whole, pieces = requests_of(load), requests_of(load)
    one = Simulator(policy, cost, limits)
    one.run(whole)
    many = Simulator(policy, cost, limits)
    now = 0.0
    for r in pieces:
        while now < r.arrival and random.random() < 0.7:
            now = min(r.arrival, now + random.choice([0.01, 0.1, 3.0, 50.0]) * random.random())
            many.advance(now)
        many.submit(r)
    many.drain()
    for _ in range(30):
        now += random.choice([0.0, 0.05, 1.0, 20.0]) * random.random()
        many.advance(now)
    many.advance()
    assert times(pieces) == times(whole)
    assert many.log.seconds("times")[-1] == one.log.seconds("times")[-1]
    assert walk(many) == walk(one)


class Doubling:
    """A cost of the user's own with a closed form, which prices no stretch of 0 steps."""

    def seconds(self, step: Step) -> float:
        return 1.0

    def stretch(self, step: Step, steps: int) -> float:
        assert steps > 0
        return float(steps)


def test_a_run_may_stop_inside_the_first_step_of_a_stretch() -> None:
    simulator = Simulator(SYNC, Doubling())
    simulator.feed([Request(0, 0.0, 4, 9)])
    for until in (1.5, 1.75, 2.5):
        simulator.advance(until)
        assert simulator.now == float(int(until))
    simulator.advance()
    assert simulator.now == 9.0


def test_what_comes_next_is_known_before_it_happens() -> None:
    simulator = Simulator(SYNC, SECOND)
    assert simulator.upcoming == inf
    first, second = Request(0, 0.5, 4, 5), Request(1, 2.0, 4, 1)
    simulator.submit(first)
    assert simulator.upcoming == 0.5
    simulator.advance(0.5)
    assert (simulator.upcoming, simulator.num_sent, simulator.pending_tokens) == (0.5, 1, 4)
    assert simulator.plan() == 1.5  # its prompt
    simulator.advance(1.5)
    assert (simulator.plan(), simulator.pending_tokens) == (5.5, 0)  # its last token
    simulator.advance(2.0)
    assert (simulator.now, simulator.upcoming) == (1.5, 5.5)
    simulator.submit(second)
    assert simulator.plan() == 2.5 and simulator.pending_tokens == 4  # the step after which it is seen
    simulator.advance(2.5)
    assert simulator.plan() == 3.5
    simulator.drain()
    simulator.advance()
    assert (first.finished, second.finished, simulator.upcoming) == (5.5, 3.5, inf)


def test_who_has_waited_elsewhere_comes_at_once() -> None:
    simulator = Simulator(SYNC, SECOND)
    simulator.advance(8.0)
    late = Request(0, 3.0, 4, 1)
    simulator.take(late)
    simulator.drain()
    simulator.advance()
    assert (late.arrival, late.finished) == (3.0, 9.0)


@pytest.mark.parametrize("name", POLICIES)
@for_every_seed(25)
def test_an_audited_run_is_the_same_run(name: str, seed: int) -> None:
    load = timed_workload(seed)
    policy, limits = policy_for(name, load)
    cost = Linear(2**-3, 2**-10, 2**-7, 2**-13)
    plain, audited, walked = requests_of(load), requests_of(load), requests_of(load)
    Simulator(policy, cost, limits).run(plain)
    Simulator(policy, cost, limits, audit=True).run(audited)
    Simulator(policy, cost, limits, skip=False).run(walked)
    assert times(audited) == times(plain) == times(walked)


def test_a_step_that_does_not_end_by_the_instant_stays_in_flight() -> None:
    r = Request(0, 0.0, 4, 3)
    simulator = Simulator(admit_all, SECOND)
    simulator.submit(r)
    for until, now in ((0.5, 0.0), (0.99, 0.0), (1.0, 1.0), (1.5, 1.0), (2.5, 2.0)):
        simulator.advance(until)
        assert simulator.now == now
    late = Request(1, 2.5, 4, 1)
    simulator.submit(late)
    simulator.drain()
    simulator.advance()
    assert (r.finished, late.finished) == (3.0, 4.0)


def test_the_clock_does_not_run_backwards() -> None:
    simulator = simulated(admit_all, Request(0, 0.0, 4, 3))
    simulator.advance(1.0)
    assert simulator.now == 3.0


# --- what is refused ---------------------------------------------------------------


def test_nobody_arrives_in_the_past() -> None:
    simulator = Simulator(admit_all, SECOND)
    simulator.advance(5.0)
    with pytest.raises(RequestError, match=r"request 3 arrives at 4\.5 s, but the clock is at 5\.0 s"):
        simulator.submit(Request(3, 4.5, 4, 4))
    simulator.submit(Request(4, 5.0, 4, 4))


def test_nobody_goes_in_the_past_or_at_no_time() -> None:
    simulator = Simulator(admit_all, SECOND)
    r = Request(3, 1.0, 4, 400)
    simulator.submit(r)
    simulator.advance(5.0)
    for at in (4.5, nan, inf):
        with pytest.raises(RequestError, match=f"request 3 is cancelled at {at} s, but the clock is at"):
            simulator.cancel(r, at)
    simulator.cancel(r, 5.0)


def test_a_source_must_be_sorted() -> None:
    with pytest.raises(RequestError, match=r"request 1 arrives at 1\.0 s, after one of 2\.0 s; sort"):
        simulated(admit_all, Request(0, 2.0, 4, 4), Request(1, 1.0, 4, 4))


def test_a_source_does_not_start_before_now() -> None:
    simulator = Simulator(admit_all, SECOND)
    simulator.advance(5.0)
    with pytest.raises(RequestError, match="request 1 arrives"):
        simulator.run([Request(1, 1.0, 4, 4)])


def test_a_request_runs_once() -> None:
    r = Request(7, 0.0, 4, 4)
    simulated(admit_all, r)
    with pytest.raises(RequestError, match="request 7 has been run before; make a new one"):
        Simulator(admit_all, SECOND).submit(r)
    with pytest.raises(RequestError, match="request 7 has been run before; make a new one"):
        simulated(admit_all, r)


def test_a_request_is_submitted_once() -> None:
    r = Request(7, 0.0, 4, 4)
    simulator = Simulator(admit_all, SECOND)
    with pytest.raises(RequestError, match="request 7"):
        simulator.submit(r)
        simulator.submit(r)
        simulator.drain()
        simulator.advance()


def test_nobody_is_submitted_after_the_last() -> None:
    simulator = Simulator(admit_all, SECOND)
    simulator.drain()
    with pytest.raises(RequestError, match="request 7 is submitted after drain"):
        simulator.submit(Request(7, 0.0, 4, 4))


def test_a_client_of_nobody_cannot_go() -> None:
    simulator = Simulator(admit_all, SECOND)
    with pytest.raises(RequestError, match="request 7 is cancelled, but was never submitted"):
        simulator.cancel(Request(7, 0.0, 4, 4))
        simulator.run([Request(8, 0.0, 4, 4)])


def test_the_kv_cache_must_hold_every_request_alone() -> None:
    limits = Limits(block_size=4, num_kv_blocks=2)
    simulator = Simulator(admit_all, SECOND, limits)
    fits = Request(0, 0.0, 6, 2)
    simulator.submit(fits)
    with pytest.raises(RequestError, match="request 1: prompt of 6 and output of 3 tokens cannot fit 2 bl"):
        simulator.submit(Request(1, 0.0, 6, 3))
    simulator.run()
    assert fits.finished == 2.0


def test_a_front_end_rejects_long_prompts_and_cuts_long_outputs() -> None:
    limits = Limits(max_model_len=8)
    short, cut, long = Request(0, 0.0, 4, 4), Request(1, 0.0, 6, 4), Request(2, 0.0, 8, 1)
    simulator = Simulator(admit_all, SECOND, limits)
    simulator.run([short, cut, long])
    assert (simulator.rejected, simulator.num_cut) == ([2], 1)
    assert (short.generated, cut.generated, long.generated) == (4, 2, 0)
    assert (short.finished, cut.finished) == (4.0, 2.0)
    assert (cut.max_tokens, long.first_token) == (2, 0.0)


def test_the_clients_own_limit_cuts_its_output() -> None:
    cut, free = Request(0, 0.0, 4, 9, max_tokens=3), Request(1, 0.0, 4, 3, max_tokens=9)
    simulator = simulated(admit_all, cut, free)
    assert (simulator.num_cut, cut.generated, free.generated) == (1, 3, 3)


def test_a_rejected_request_can_be_cancelled_and_nothing_happens() -> None:
    simulator = Simulator(admit_all, SECOND, Limits(max_model_len=8))
    long, other = Request(0, 0.0, 8, 1), Request(1, 0.0, 4, 4)
    simulator.submit(long)
    simulator.submit(other)
    simulator.cancel(long, 2.0)
    simulator.run()
    assert (other.finished, simulator.rejected) == (4.0, [0])


# --- sources -----------------------------------------------------------------------------


def test_a_generator_is_drawn_as_requests_come() -> None:
    drawn = 0

    def endless() -> Iterator[Request]:
        nonlocal drawn
        while True:
            drawn += 1
            yield Request(drawn, float(drawn), 4, 1)

    simulator = Simulator(admit_all, Constant(0.5))
    simulator.feed(endless())
    assert 0 < drawn <= 256
    simulator.advance(10_000.0)
    assert 10_000 <= drawn <= 10_256
    assert not simulator.batch.draining
    assert len(simulator.log.column("id")) == 9_999


@for_every_seed(20)
def test_who_was_submitted_and_who_is_drawn_come_in_one_order(seed: int) -> None:
    random = Random(seed)
    arrivals = sorted(random.uniform(0.0, 900.0) for _ in range(600))
    requests = [Request(i, at, 4, 1) for i, at in enumerate(arrivals)]
    chosen = set(random.sample(range(600), random.choice([1, 10, 300])))
    simulator = Simulator(admit_all, Constant(2**-10))
    for i in chosen:
        simulator.submit(requests[i])
    simulator.run(r for i, r in enumerate(requests) if i not in chosen)
    assert max(r.first_token - r.arrival for r in requests) <= 2 * 2**-10 + 1e-9


def test_draining_is_known_when_the_last_request_comes() -> None:
    seen: list[tuple[float, bool]] = []

    def note(b: Batch) -> None:
        seen.append((b.now, b.draining))
        admit_all(b)

    simulated(note, Request(0, 0.0, 4, 1), Request(1, 5.0, 4, 2))
    assert seen == [(0.0, False), (5.0, True), (6.0, True)]


def test_a_run_without_requests_ends_at_once() -> None:
    simulator = simulated(admit_all)
    assert (simulator.now, simulator.num_decisions, simulator.batch.draining) == (0.0, 0, True)


# --- cancelling ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "num_steps"),
    [(0.0, 0), (0.5, 0), (1.0, 0), (1.25, 1), (1.5, 1), (1.75, 2), (2.0, 2), (2.75, 4), (4.5, 4)],
)
def test_a_client_that_goes_is_seen_at_the_next_step(at: float, num_steps: int) -> None:
    # It comes at 1.0, when a step of another ends, and runs in those that start at 1.0, 1.5, 2.0 and 2.5.
    other, r = Request(0, 0.5, 4, 9), Request(1, 1.0, 4, 4)
    simulator = Simulator(SYNC, Constant(0.5), audit=True)
    simulator.submit(other)
    simulator.submit(r)
    simulator.cancel(r, at)
    simulator.run()
    assert (r.state, other.finished) == (FINISHED if num_steps == 4 else CANCELLED, 5.0)
    how = [stay.how for stay in stays(simulator.log) if stay.id == 1]
    assert how == [COMPLETE if num_steps == 4 else ABORTED]
    ran = [step for step in walk(simulator) if 1 in dict(step.scheduled)]
    assert len(ran) == num_steps


def test_to_cancel_twice_or_after_the_end_is_to_cancel_once() -> None:
    a, b = Request(0, 0.0, 4, 9), Request(1, 0.0, 4, 2)
    simulator = Simulator(admit_all, SECOND)
    for r in (a, b):
        simulator.submit(r)
        simulator.cancel(r, 3.0)
        simulator.cancel(r, 3.0)
        simulator.cancel(r, 4.0)
    simulator.run()
    assert (a.state, b.state, b.finished, simulator.now) == (CANCELLED, FINISHED, 2.0, 4.0)


def test_a_client_can_go_now() -> None:
    r = Request(0, 0.0, 4, 100)
    simulator = Simulator(admit_all, SECOND)
    simulator.submit(r)
    simulator.advance(2.5)
    simulator.cancel(r)
    simulator.run()
    assert (r.state, simulator.batch.tick_count, simulator.now) == (CANCELLED, 3, 3.0)


@for_every_seed(60)
def test_blocks_and_requests_are_conserved_whoever_goes_when(seed: int) -> None:
    random = Random(seed)
    load = timed_workload(seed)
    requests = requests_of(load)
    flags = load["config"]
    policy = Vllm(async_scheduling=flags["async_scheduling"], policy=flags["policy"])
    limits = limits_of(flags | {"max_num_batched_tokens": 640})
    simulator = Simulator(policy, Linear(0.1, 1e-3, 1e-2), limits)
    for r in requests:
        simulator.submit(r)
        if random.random() < 0.5:
            simulator.cancel(r, r.arrival + random.choice([0.0, 0.1, 2.0, 20.0]) * random.random())
    simulator.run()
    assert {r.state for r in requests} <= {FINISHED, CANCELLED}
    assert all(r.generated == r.true_output for r in requests if r.state == FINISHED)
    assert simulator.batch.blocks.free == limits.blocks
    assert (simulator.batch.num_decoding, simulator.batch.context, simulator.batch.num_waiting) == (0, 0, 0)
    simulator.batch.check()


# --- wake-ups --------------------------------------------------------------------------------


def asked(wake: Callable[[Batch], None], cost: Any, **options: Any) -> list[tuple[float, int]]:
    """When, and after how many steps, a policy that calls `wake` once is asked."""
    calls: list[tuple[float, int]] = []

    def policy(b: Batch) -> None:
        if b.edits > 0:
            return
        calls.append((b.now, b.tick_count))
        if b.tick_count == 1 and len(calls) == 2:
            wake(b)
        admit_all(b)

    simulated(policy, Request(0, 0.0, 4, 60), cost=cost, **options)
    return calls


@for_every_seed(100)
def test_a_policy_is_woken_at_the_first_step_that_starts_at_or_after_its_time(seed: int) -> None:
    random = Random(seed)
    cost = Linear(random.choice([0.1, 0.3, 2**-4]), context=random.choice([0.0, 1e-3, 0.1]))
    ends = [now for now, _ in asked(lambda b: None, cost, skip=False)]
    instant = random.choice([random.uniform(ends[1], 1.1 * ends[-1]), *ends[2:]])
    calls = asked(lambda b: b.wake_at(instant), cost)
    later = [(now, tick) for tick, now in enumerate(ends) if now >= instant and tick >= 2]
    assert calls == [(0.0, 0), (ends[1], 1), *later[:1]]


@pytest.mark.parametrize("after", [1, 2, 7, 58])
def test_a_policy_is_woken_after_so_many_steps(after: int) -> None:
    calls = asked(lambda b: b.wake_after(after), Constant(0.5))
    assert calls == [(0.0, 0), (0.5, 1), (0.5 * (1 + after), 1 + after)]


def test_a_wake_up_after_the_end_is_never_seen() -> None:
    for wake in (lambda b: b.wake_after(59), lambda b: b.wake_at(1e9)):
        assert asked(wake, Constant(0.5)) == [(0.0, 0), (0.5, 1)]


def test_a_wake_up_is_for_later() -> None:
    with pytest.raises(PolicyError, match="woken after 0 steps; give a whole number of at least 1"):
        asked(lambda b: b.wake_after(0), SECOND)


def test_a_policy_that_waits_is_woken_while_nothing_runs() -> None:
    def wait(b: Batch) -> None:
        if b.now < 2.3 and b.num_waiting > 0:
            b.wake_at(2.3)
            return
        admit_all(b)

    r = Request(0, 0.5, 4, 1)
    simulated(wait, r)
    assert r.finished == 2.3 + 1.0


# --- policies that break the contract ----------------------------------------------------------


def test_a_policy_that_admits_nobody_is_told_so() -> None:
    message = (
        r"policy starves 2 requests at 1\.5 s: no step runs and nothing more can happen; "
        "admit a request, or ask to be woken with wake_at"
    )
    with pytest.raises(PolicyError, match=message):
        simulated(lambda b: None, Request(0, 1.0, 4, 4), Request(1, 1.5, 4, 4))


def test_a_policy_may_wait_for_requests_that_can_still_come() -> None:
    simulator = Simulator(lambda b: None, SECOND)
    simulator.submit(Request(0, 1.0, 4, 4))
    simulator.advance(9.0)
    assert (simulator.now, simulator.batch.num_waiting) == (9.0, 1)
    simulator.drain()
    with pytest.raises(PolicyError, match=r"policy starves 1 requests at 9\.0 s"):
        simulator.advance(10.0)


@pytest.mark.parametrize("back", [0.0, 0.5])
def test_a_policy_is_not_woken_in_the_past(back: float) -> None:
    at = 1.0 - back
    with pytest.raises(PolicyError, match=rf"woken at {at} s, which has passed at 1\.0 s"):
        simulated(lambda b: b.wake_at(b.now - back), Request(0, 1.0, 4, 4))


def test_a_policy_that_admits_without_looking_runs_out_of_blocks() -> None:
    limits = Limits(block_size=4, num_kv_blocks=4)
    with pytest.raises(PolicyError, match="the step needs 2 KV blocks, but 1 are free"):
        simulated(admit_all, *[Request(i, 0.0, 12 if i == 0 else 5, 2) for i in range(2)], limits=limits)


def test_nobody_is_asked_if_the_policy_is_none() -> None:
    class Broken:
        def begin(self, batch: Batch) -> Any:
            return None

    for broken in (Broken(), 7):
        with pytest.raises(PolicyError, match="is no policy"):
            Simulator(broken, SECOND)  # type: ignore[arg-type]


def test_the_audit_finds_an_edit_without_an_event() -> None:
    def late(b: Batch) -> None:
        if b.edits == 0 and b.num_waiting > 0 and b.tick_count in (0, 3):
            b.admit(b.waiting.first(), 4)

    load = [Request(i, 0.0, 4, 9) for i in range(2)]
    with pytest.raises(PolicyError, match=r"policy made 1 edits at 3\.0 s though nothing happened since"):
        simulated(late, *load, audit=True)


def test_the_audit_finds_a_policy_that_edits_its_own_plan() -> None:
    def greedy(b: Batch) -> None:
        if b.num_waiting > 0:
            b.admit(b.waiting.first(), 4)

    load = [Request(i, 0.0, 4, 9) for i in range(3)]
    with pytest.raises(PolicyError, match="policy made 1 more edits when asked twice before a step"):
        simulated(greedy, *load, audit=True)


def test_the_audit_lets_a_policy_edit_when_kv_is_short() -> None:
    # Both need a fifth block of four in the step that starts at 5.0, in the middle of a quiet stretch.
    limits = Limits(block_size=4, num_kv_blocks=4)
    requests = [Request(i, 0.0, 4, 6) for i in range(2)]
    simulated(SYNC, *requests, limits=limits, audit=True)
    assert [r.preemptions for r in requests] == [0, 1]


def test_the_audit_lets_a_policy_edit_after_an_end_and_after_a_cancel() -> None:
    def one_seat(b: Batch) -> None:
        if b.edits == 0 and b.num_running == 0 and b.num_waiting > 0:
            b.admit(b.waiting.first(), b.waiting.first().prompt)

    a, b, c = Request(0, 0.0, 4, 3), Request(1, 1.5, 4, 9), Request(2, 2.0, 4, 2)
    simulator = Simulator(one_seat, SECOND, audit=True)
    simulator.cancel(b, 5.5)
    simulator.run([a, b, c])
    # 0 ends at 3.0, 1 goes at 5.5 in the middle of a step, and 2 starts after it.
    assert (a.finished, b.first_token, b.state, c.first_token, c.finished) == (3.0, 4.0, CANCELLED, 7.0, 8.0)


@pytest.mark.parametrize("by_time", [False, True])
def test_the_audit_lets_a_policy_edit_when_it_is_woken(by_time: bool) -> None:
    held: list[float] = []

    def hold_late(b: Batch) -> None:
        if b.edits > 0 or b.num_running + b.num_waiting == 0:
            return
        if b.tick_count == 0:
            b.wake_at(4.0) if by_time else b.wake_after(4)
            admit_all(b)
        elif b.now == 4.0 and not held:
            held.append(b.now)
            b.hold(b.newest())

    r = Request(0, 0.0, 4, 9)
    simulated(hold_late, r, audit=True)
    assert (held, r.finished) == ([4.0], 9.0)  # the step that it missed computed nothing


# --- the three kinds of requests that stay ------------------------------------------------------


class Keeper:
    """Admits all; ended requests stay, in the way of `on_end`, until `release_at`."""

    def __init__(self, on_end: int, release_at: float) -> None:
        self.on_end = on_end
        self.release_at = release_at

    def begin(self, batch: Batch) -> Callable[[Batch], None]:
        batch.on_end = self.on_end
        return self.ask

    def ask(self, b: Batch) -> None:
        if b.edits > 0:
            return
        admit_all(b)
        b.wake_at(self.release_at) if b.now < self.release_at else None
        for r in [r for r in b.running if r.state in (ENDED, PADDED)]:
            if b.now >= self.release_at:
                b.release(r)


@pytest.mark.parametrize(("on_end", "rows"), [(STAY, [1, 1, 1]), (PAD, [2, 2, 1])])
def test_an_ended_request_stays_until_it_is_released(on_end: int, rows: list[int]) -> None:
    # 0 ends at 4.0 = 1 + (1 + 2).  Steps of 1 + rows: 6.0 and 8.0, or 7.0 and 10.0, when it leaves.
    a, b = Request(0, 0.0, 4, 2), Request(1, 0.0, 4, 5)
    cost = Linear(1.0, decode=1.0)
    plain = simulated(Keeper(on_end, 8.0), a, b, cost=cost)
    expanded = walk(plain, pads=on_end == PAD)
    assert [step.padded_rows for step in expanded] == [0, 0, *[row - 1 for row in rows]][:5]
    assert a.finished == 4.0
    assert b.finished == 4.0 + sum(1 + row for row in rows)
    assert a.state == b.state == FINISHED
    assert stays(plain.log)[0].until > stays(plain.log)[0].stopped


@pytest.mark.parametrize("on_end", [STAY, PAD])
def test_an_ended_request_that_nobody_releases_starves(on_end: int) -> None:
    with pytest.raises(PolicyError, match=r"policy starves 1 requests at 2\.0 s"):
        simulated(Keeper(on_end, inf), Request(0, 0.0, 4, 2))


def test_a_held_request_gets_its_token_a_step_later() -> None:
    def hold_once(b: Batch) -> None:
        if b.edits > 0:
            return
        admit_all(b)
        first = next(iter(b.running))
        if b.tick_count == 3:
            b.hold(first)
            assert first.state == HELD
        elif b.tick_count < 3:
            b.wake_after(1)

    a, b = Request(0, 0.0, 4, 6), Request(1, 0.0, 4, 6)
    simulator = simulated(hold_once, a, b, audit=True)
    assert (a.finished, b.finished) == (7.0, 6.0)
    assert [dict(step.scheduled) for step in walk(simulator)][3] == {1: 1}


def test_an_end_that_is_seen_late_holds_its_seat_for_a_step() -> None:
    a, b = Request(0, 0.0, 4, 2), Request(1, 0.0, 4, 2)
    simulator = simulated(Vllm(max_num_seqs=1), a, b)
    assert (a.finished, b.first_token) == (2.0, 3.0)  # a step that computes nothing takes no time
    kept = {stay.id: stay.until - stay.stopped for stay in stays(simulator.log)}
    assert kept == {0: 1, 1: 1}


def test_an_end_that_is_seen_late_cannot_stay_too() -> None:
    class Both:
        def begin(self, batch: Batch) -> Callable[[Batch], None]:
            batch.overlap = True
            batch.on_end = PAD
            return admit_all

    with pytest.raises(PolicyError, match="sets both overlap and on_end"):
        Simulator(Both(), SECOND)


# --- costs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize(
    "cost",
    [Constant(0.5), Linear(0.1, 1e-2, 1e-1, 1e-3, 1e-4), Hosted(Linear(0.1, 1e-3), 0.09, 0.02)],
    ids=["constant", "linear", "hosted"],
)
def test_the_predicted_seconds_are_those_that_the_step_takes(cost: Any, overlap: bool) -> None:
    predicted: list[tuple[float, float, int]] = []

    class Predicting:
        def begin(self, batch: Batch) -> Callable[[Batch], None]:
            batch.overlap = overlap
            return self.ask

        def ask(self, b: Batch) -> None:
            if b.edits > 0:
                return
            if b.num_waiting == 0:
                seconds = b.predict(0) if b.num_decoding > 0 else None
            else:
                r = b.waiting.first()
                seconds = b.predict(r.prompt)
                b.admit(r, r.prompt)
                assert b.predict(0) == seconds  # now that it is planned
            if seconds is not None:
                predicted.append((b.now, seconds, b.tick_count))

    load = [Request(i, 0.3 * i, 5 + 7 * i, 3 + i) for i in range(6)]
    simulator = simulated(Predicting(), *load, cost=cost, skip=False)
    assert len(predicted) > 10
    for (now, seconds, tick), (following, _, later) in pairwise(predicted):
        if later == tick + 1 and tick + 1 not in simulator.log.jumps:
            assert following == pytest.approx(now + seconds, rel=1e-12)
    now, seconds, tick = predicted[-1]
    if tick + 1 == simulator.batch.tick_count:
        assert simulator.now == pytest.approx(now + seconds, rel=1e-12)


def test_the_error_of_a_users_own_cost_is_passed_on() -> None:
    def broken(step: Step) -> float:
        return 1.0 / (step.num_decodes - 1)

    with pytest.raises(ZeroDivisionError):
        simulated(admit_all, Request(0, 0.0, 4, 3), cost=lambda step: abs(broken(step)))


@pytest.mark.parametrize("value", [nan, inf, -inf, 0.0, -1.0, None, "1"])
def test_a_step_takes_a_time(value: object) -> None:
    message = "of 4 prompt tokens in 1 chunks and 0 decodes over 0 KV tokens is .* seconds"
    with pytest.raises(CostError, match=message):
        simulated(admit_all, Request(0, 0.0, 4, 3), cost=lambda step: value)


def test_a_cost_that_fails_in_a_quiet_stretch_says_for_which_step() -> None:
    def cost(step: Step) -> float:
        return 1.0 if step.context_tokens < 7 else nan

    with pytest.raises(CostError, match="0 prompt tokens in 0 chunks and 1 decodes over 7 KV tokens is nan"):
        simulated(admit_all, Request(0, 0.0, 4, 9), cost=cost)


@for_every_seed(15)
def test_a_users_own_cost_gives_the_times_of_the_same_cost_in_closed_form(seed: int) -> None:
    load = timed_workload(seed)
    closed = Linear(2**-2, 2**-10, 2**-7, 2**-13, 2**-16)
    policy, limits = policy_for("async", load)
    ours, theirs = requests_of(load), requests_of(load)
    Simulator(policy, closed, limits).run(ours)
    Simulator(policy, lambda step: closed.seconds(step), limits).run(theirs)
    assert times(ours) == times(theirs)


class Paused:
    """Asynchronous; no decode runs before 5.0."""

    def begin(self, batch: Batch) -> Paused:
        batch.overlap = True
        return self

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        admit_all(b)
        if not b.chunks and b.now < 5.0:
            b.decodes_run = False
            b.wake_at(5.0)


def test_an_end_that_is_seen_while_decodes_pause_takes_no_step_of_theirs() -> None:
    # 0 ends at 1.0 and is seen with the next call, which computes nothing; 1 decodes from 5.0 to 7.0.
    requests = [Request(0, 0.0, 4, 1), Request(1, 0.0, 4, 3)]
    simulator = Simulator(Paused(), Constant(1.0), skip=False)
    simulator.run(requests)
    assert list(simulator.log.seconds("times"))[:2] == [1.0, 1.0]
    assert [r.finished for r in requests] == [1.0, 7.0]
