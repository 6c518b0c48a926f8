"""The driver on an engine: the simulator's moves on the engine's clock, and every token in its place.

The engine is `Mock`, whose tokens follow from what the KV blocks hold, on a virtual clock.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from batchwright import Batch, Limits, Linear, Request, Simulator
from batchwright.engines.live import Live, Synchronous
from batchwright.engines.mock import Mock
from batchwright.engines.sampling import Sampling
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.errors import LimitError, PolicyError
from batchwright.policies import Vllm
from batchwright.request import CANCELLED, DECODING
from batchwright.step import Step
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_closed_loop import closed_workload, linked, roots, times
from test_properties import (
    LINEAR,
    POLICIES,
    assert_over,
    drawn,
    ends,
    expanded,
    for_each_policy,
    outcome,
    policy_of,
)

VOCABULARY = 5000
ROWS = Linear(2**-2, 2**-10, 2**-7)  # a step's time without what it reads: padded rows read less, live


def prompt_of(r: Request, block_size: int) -> list[int]:
    """Token ids that start alike where the keys of KV blocks do."""
    shared = [(key * block_size + i) * 31 % VOCABULARY for key in r.prefix for i in range(block_size)]
    random = Random(r.id)
    return shared + [random.randrange(VOCABULARY) for _ in range(r.prompt - len(shared))]


def engine_of(limits: Limits, cost: Any = LINEAR) -> Mock:
    return Mock(
        cost,
        num_kv_blocks=limits.blocks,
        block_size=limits.block_size,
        vocab_size=VOCABULARY,
        is_real=False,
    )


class Recorded:
    """Makes sequences, and keeps them."""

    def __init__(self, block_size: int, **options: Any) -> None:
        self.block_size = block_size
        self.options = options
        self.sequences: dict[int, Sequence] = {}

    def __call__(self, r: Request) -> Sequence:
        length = min(r.true_output, r.max_tokens)
        found = Sequence(r, prompt_of(r, self.block_size), length, **self.options)
        self.sequences[r.id] = found
        return found


class Wrapped:
    """An engine that does something more."""

    def __init__(self, engine: Mock) -> None:
        self.engine = engine
        self.capacity = engine.capacity

    def run(self, work: Work) -> list[int]:
        return self.engine.run(work)

    def now(self) -> float:
        return self.engine.now()

    def sleep(self, until: float) -> None:
        self.engine.sleep(until)


class Failing(Wrapped):
    """Fails at random, before or after it has written."""

    def __init__(self, engine: Mock, random: Random, share: float) -> None:
        super().__init__(engine)
        self.random, self.share = random, share

    def run(self, work: Work) -> list[int]:
        if self.random.random() >= self.share:
            return super().run(work)
        if self.random.random() < 0.5:
            super().run(work)
        raise RuntimeError("the device is gone")


class Slots(Wrapped):
    """Gives each sequence a slot, as engines without block tables do."""

    def __init__(self, engine: Mock) -> None:
        super().__init__(engine)
        self.holding: dict[int, int] = {}  # KV tokens by slot

    def run(self, work: Work) -> list[int]:
        for s in work.released:
            del self.holding[s.slot]
            s.slot = -1
        for s, count, past, padding in zip(work.rows, work.counts, work.past, work.padding, strict=True):
            if s.slot < 0:
                s.slot = next(i for i in range(10**6) if i not in self.holding)
                self.holding[s.slot] = past  # 0, or what it shares
            if count > padding:
                assert self.holding[s.slot] == past
                self.holding[s.slot] += count - padding
        return super().run(work)


class Measured(Wrapped):
    """Checks that the step computes what the batch says."""

    live: Live

    def run(self, work: Work) -> list[int]:
        expected, found = Step(), Step()
        self.live.batch.measure(expected)
        work.measure(found)
        if expected.padded_rows:
            expected.context_tokens = found.context_tokens  # which stay within their own blocks
        assert found.same(expected)
        return super().run(work)


def live_of(policy: Any, limits: Limits, cost: Any = LINEAR) -> tuple[Live, Recorded]:
    made = Recorded(limits.block_size)
    return Live(policy, engine_of(limits, cost), limits, cost, made), made


def assert_over_live(live: Live) -> None:
    """Nothing is left in the batch, its tables or the driver."""
    live.batch.check()
    assert live.blocks.free == live.blocks.size
    assert not live.blocks.tables
    assert (live.batch.num_running, live.batch.num_waiting) == (0, 0)


def alone(s: Sequence, limits: Limits) -> list[int]:
    """What the engine gives `s` when nothing else is there."""
    whole = Limits(max_num_batched_tokens=1 << 20, num_kv_blocks=limits.blocks, block_size=limits.block_size)
    live = Live(Vllm(), engine_of(whole), whole)
    length = max(len(s.tokens), 1)
    r = Request(0, 0.0, len(s.prompt), length)
    only = Sequence(r, s.prompt, length, s.stop_ids, s.min_tokens, sampling=s.sampling)
    live.add(only)
    live.drain()
    while live.step() or live.wait():
        pass
    return only.tokens


# --- beside the simulator -----------------------------------------------------------


@for_each_policy
def test_a_live_run_is_the_simulation_step_by_step(name: str) -> None:
    @for_every_seed(60)
    def check(seed: int) -> None:
        load = timed_workload(seed, headroom=True)
        limits, policy = limits_of(load["config"]), policy_of(name, load)[0]
        cost = ROWS if name == "static" else LINEAR
        simulator, simulated = Simulator(Synchronous(policy), cost, limits), requests_of(load)
        simulator.run(simulated)
        live, made = live_of(policy, limits, cost)
        lived = requests_of(load)
        live.run(lived)
        assert_over(live, lived)
        assert outcome(simulated) == outcome(lived)
        assert expanded(simulator) == expanded(live)
        assert ends(simulator).items() <= ends(live).items()
        lengths = {id: len(s.tokens) for id, s in made.sequences.items()}
        assert lengths == {r.id: r.true_output for r in simulated if r.state != CANCELLED}

    check()


@for_each_policy
def test_every_output_is_that_of_the_request_alone(name: str) -> None:
    @for_every_seed(40)
    def check(seed: int) -> None:
        load = timed_workload(seed)
        limits, policy = limits_of(load["config"]), policy_of(name, load)[0]
        live, made = live_of(policy, limits)
        live.run(requests_of(load))
        for s in made.sequences.values():
            assert s.tokens == alone(s, limits)
            assert s.finish_reason == "length"

    check()


@for_each_policy
def test_clients_that_go_and_outputs_that_stop_leave_nothing_behind(name: str) -> None:
    """Some hang up at random steps, some steps fail, and some outputs end with a stop token."""

    @for_every_seed(60)
    def check(seed: int) -> None:
        load, random = timed_workload(seed), Random(seed)
        limits, policy = limits_of(load["config"]), policy_of(name, load)[0]
        stop_ids = frozenset(random.sample(range(VOCABULARY), VOCABULARY // 20))
        engine = Failing(engine_of(limits, LINEAR), random, 0.02)
        made = Recorded(limits.block_size, stop_ids=stop_ids, min_tokens=random.choice([0, 3]))
        live = Live(policy, engine, limits, LINEAR, made)
        requests = requests_of(load)
        live.feed(requests)
        ended: list[Sequence] = []
        while live.step() or live.wait():
            live.batch.check()
            if random.random() < 0.1:
                live.cancel(random.choice(requests), max(live.now, engine.now()))
            ended += live.ended
            live.ended.clear()
        ended += live.ended
        assert_over_live(live)
        came = [s for s in made.sequences.values() if s.request.queued >= 0]
        assert sorted(map(id, ended)) == sorted(map(id, came)), "every sequence ends once"
        for s in ended:
            expected = alone(s, limits)
            assert s.tokens == expected[: len(s.tokens)]
            assert (s.error is not None) == (s.finish_reason == "error")
            if s.finish_reason == "stop":
                assert s.tokens[-1] in stop_ids
            assert not stop_ids.intersection(s.tokens[: s.min_tokens])

    check()


# --- what engines are told --------------------------------------------------------


@for_each_policy
def test_an_engine_is_told_once_of_every_sequence_that_leaves(name: str) -> None:
    @for_every_seed(30)
    def check(seed: int) -> None:
        load = timed_workload(seed)
        limits, policy = limits_of(load["config"]), policy_of(name, load)[0]
        engine = Slots(engine_of(limits))
        live = Live(policy, engine, limits, LINEAR, Recorded(limits.block_size))
        live.run(requests_of(load))
        assert not engine.holding

    check()


def test_an_engine_is_told_of_who_has_left_after_steps_that_compute_nothing() -> None:
    """A step that only holds decodes has no rows, so the engine does not see it."""

    def policy(b: Batch) -> None:
        if b.edits > 0:
            return
        while b.num_waiting > 0:
            b.admit(b.waiting.first(), b.waiting.first().prompt)
        if 2 < b.tick_count < 7:
            for r in [r for r in b.running if r.state == DECODING]:
                b.hold(r)

    engine = Slots(engine_of(LIMITS))
    live = Live(policy, engine, LIMITS)
    live.add(sequence(0, length=3))
    live.add(sequence(1, length=9))
    live.drain()
    while live.step():
        assert live.batch.tick_count < 9 or len(engine.holding) == 1
    assert [len(s.tokens) for s in live.ended] == [3, 9]


def test_a_step_carries_what_the_simulator_prices() -> None:
    @for_every_seed(40)
    def check(seed: int) -> None:
        load = timed_workload(seed)
        limits = limits_of(load["config"])
        policy = policy_of(drawn(Random(seed), POLICIES), load)[0]
        live = Live(policy, Measured(engine_of(limits, ROWS)), limits, ROWS, Recorded(limits.block_size))
        live.engine.live = live  # type: ignore[attr-defined]
        live.run(requests_of(load))

    check()


@for_each_policy
def test_a_closed_loop_runs_live_as_it_is_simulated(name: str) -> None:
    @for_every_seed(25)
    def check(seed: int) -> None:
        load = closed_workload(seed)
        limits, policy = limits_of(load["config"]), policy_of(name, load)[0]
        cost = ROWS if name == "static" else LINEAR
        simulator, simulated = Simulator(Synchronous(policy), cost, limits), linked(load)
        simulator.run(roots(load, simulated))
        live, lived = live_of(policy, limits, cost)[0], linked(load)
        live.run(roots(load, lived))
        assert times(simulated) == times(lived)
        assert simulator.arrived == live.arrived
        assert expanded(simulator) == expanded(live)

    check()


# --- ends ---------------------------------------------------------------------------

LIMITS = Limits(max_num_seqs=4, num_kv_blocks=64)


def sequence(id: int, length: int = 5, prompt: int = 20, **options: Any) -> Sequence:
    return Sequence(Request(id, 0.0, prompt, length), range(prompt), **options)


def finished(live: Live) -> list[Sequence]:
    """Runs to the end; those that ended, in that order."""
    live.drain()
    while live.step() or live.wait():
        pass
    return live.ended


def test_stop_strings_end_a_sequence_with_the_token_that_completes_them() -> None:
    live = Live(Vllm(), engine_of(LIMITS), LIMITS)
    live.add(sequence(0, watch=lambda tokens: len(tokens) == 3))
    live.add(sequence(1))
    assert [(s.request.id, len(s.tokens), s.finish_reason) for s in finished(live)] == [
        (0, 3, "stop"),
        (1, 5, "length"),
    ]


def test_tokens_are_chosen_by_the_seed_of_the_request() -> None:
    live = Live(Vllm(), engine_of(LIMITS), LIMITS)
    for id, seed in enumerate([1, 2, 1]):
        live.add(sequence(id, sampling=Sampling(seed=seed)))
    one, two, again = (s.tokens for s in finished(live))
    assert one == again != two


def test_a_prompt_that_is_too_long_is_rejected_and_ends() -> None:
    live = Live(Vllm(), engine_of(LIMITS), replace(LIMITS, max_model_len=30))
    live.add(sequence(0, prompt=30))
    live.add(sequence(1, prompt=29, length=9))
    assert [(s.request.id, len(s.tokens)) for s in finished(live)] == [(0, 0), (1, 1)]
    assert live.rejected == [0]


def test_a_policy_that_fails_ends_all_requests_and_the_next_ones_are_served() -> None:
    calls = 0

    def policy(b: Batch) -> None:
        nonlocal calls
        calls += 1
        while b.num_waiting > 0 and b.num_running < 4:
            b.admit(b.waiting.first(), 7)
        for r in list(b.prefilling):
            if r.planned == 0:
                b.chunk(r, r.unfilled)
        if calls == 3:
            raise ZeroDivisionError("a bug of the policy")

    live = Live(policy, Slots(engine_of(LIMITS)), LIMITS)
    for id in range(6):
        live.add(sequence(id))
    with pytest.raises(ZeroDivisionError) as caught:
        while live.step():
            pass
    live.restart(caught.value)
    assert len(live.ended) == 6 and all(s.error is caught.value for s in live.ended)
    live.ended.clear()
    live.batch.check()
    live.add(sequence(7))
    assert [(s.request.id, len(s.tokens), s.error) for s in finished(live)] == [(7, 5, None)]
    assert len(live.engine.holding) == 1  # type: ignore[attr-defined]


def test_what_an_engine_raises_ends_a_run() -> None:
    live = Live(Vllm(), Failing(engine_of(LIMITS), Random(0), 1.0), LIMITS, LINEAR, Recorded(16))
    with pytest.raises(RuntimeError, match="the device is gone"):
        live.run([Request(0, 0.0, 20, 5)])


def test_a_policy_that_serves_nobody_is_told_so() -> None:
    live = Live(lambda b: None, engine_of(LIMITS), LIMITS, LINEAR, Recorded(16))
    with pytest.raises(PolicyError, match="starves 1 requests"):
        live.run([Request(0, 0.0, 20, 5)])


def test_a_server_without_a_cost_predicts_no_step() -> None:
    live = Live(lambda b: b.predict(1), engine_of(LIMITS), LIMITS)  # type: ignore[arg-type,return-value]
    live.add(sequence(0))
    with pytest.raises(PolicyError, match="no cost is known here"):
        live.step()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_kv_blocks": 65}, "num_kv_blocks is 65, but the engine was loaded with 64"),
        ({"max_model_len": 1025, "num_kv_blocks": 80}, "num_kv_blocks is 80"),
        ({"block_size": 32, "num_kv_blocks": 32}, "the engine has blocks of 16 tokens"),
    ],
)
def test_limits_beyond_the_engine_are_refused(changed: dict[str, int], message: str) -> None:
    with pytest.raises(LimitError, match=message):
        Live(Vllm(), engine_of(LIMITS), replace(LIMITS, **changed))


def test_a_server_forgets_its_log_and_goes_on() -> None:
    live = Live(Vllm(), engine_of(LIMITS), LIMITS)
    for id in range(40):
        live.add(sequence(id))
    steps = 0
    while live.step():
        steps += 1
        if steps % 3 == 0:
            live.forget()
    assert len(live.ended) == 40 and sum(live.log.column("steps")) < 3
    live.batch.check()


def test_padding_goes_to_the_scratch_block_of_the_engine_whatever_the_limits_leave_open() -> None:
    engine = engine_of(LIMITS)
    seen: list[int] = []

    class Watched(Wrapped):
        def run(self, work: Work) -> list[int]:
            seen.append(work.scratch)
            return super().run(work)

    live = Live(Vllm(), Watched(engine), Limits(max_num_seqs=4))
    live.add(sequence(0))
    assert len(finished(live)) == 1
    assert set(seen) == {engine.capacity.num_kv_blocks}
