"""What holds for every workload: the clock is the reference loop, however the simulator is driven.

Each property holds for 100 workloads, those beside the reference loop for 200; all for 2,000 with `-m long`.
"""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from inspect import Parameter, Signature, signature
from itertools import accumulate
from math import inf, nextafter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reference
from batchwright import Batch, Constant, Hosted, Limits, Linear, Request, Roofline, Simulator
from batchwright.batch import PAD
from batchwright.conformance import VLLM_FLAGS, replay, rows
from batchwright.history import EngineStep, Stay, stays, steps
from batchwright.log import STAY
from batchwright.policies import Dynamic, Orca, Static, Vllm
from batchwright.request import CANCELLED, FINISHED, WAITING
from batchwright.step import Step
from peers import PEERS
from strategies import END_TRAP, HELD_TRAP, for_every_seed, limits_of, requests_of, timed_workload, workload

Load = dict[str, Any]
Property = Callable[..., None]

EXAMPLE = Path(__file__).parent.parent / "examples" / "custom_policy.py"
CUSTOM: Callable[[Any], None] = runpy.run_path(str(EXAMPLE))["policy"]
LINEAR = Linear(2**-2, 2**-10, 2**-7, 2**-13, 2**-16)  # reference.linear(): its sums are exact
H100 = Roofline("H100-SXM", "llama-3.1-8b")
POLICIES = ("vllm", "static", "dynamic", "orca", "custom", "paced", *PEERS)
SIMULATED = (*POLICIES, "speculative")  # which walks every step, and runs on no engine
MOST = 20  # requests of a load, where whole logs are compared
COLUMNS = ("steps", "taken", "freed", "chunks", "held", "accepted", "paused", *STAY)
SECONDS = ("times", "first_token", "finished")


def for_seeds(usual: int, test: Property) -> Property:
    """Run a property on `usual` seeds, and on 2,000 with `-m long`."""

    def run(examples: int, **arguments: Any) -> None:
        for_every_seed(examples)(test)(**arguments)

    names = ["examples", *(name for name in signature(test).parameters if name != "seed")]
    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
    )
    return pytest.mark.parametrize("examples", [usual, pytest.param(2_000, marks=pytest.mark.long)])(run)


for_many_seeds = partial(for_seeds, 100)
for_more_seeds = partial(for_seeds, 200)  # where a case is rare
for_each_policy = pytest.mark.parametrize("name", POLICIES)
for_each_simulated = pytest.mark.parametrize("name", SIMULATED)


# --- runs -------------------------------------------------------------------------


def policy_of(name: str, load: Load) -> tuple[Any, Callable[[Load], reference.Policy] | None]:
    """A policy with settings drawn from the load's seed, and the same one for the reference."""
    random = Random(load["seed"] + 2)
    size = min(random.choice([1, 2, 3, 8]), load["config"]["max_num_seqs"])
    if name == "vllm":
        return vllm_of(load["config"]), reference.VllmReference
    if name == "static":
        padded, streamed = random.random() < 0.5, random.random() < 0.5
        return Static(size, padded, streamed), reference.static(size, padded, streamed)
    if name == "dynamic":
        window = random.choice([0.0, 0.25, 2.0, 30.0])
        preferred = random.choice([(), (size,), tuple(range(1, size + 1, 2))])
        return Dynamic(size, window, preferred), reference.dynamic(size, window, preferred)
    if name == "orca":
        return Orca(size), reference.orca(size)
    if name in PEERS:
        return PEERS[name].drawn(random, load["config"])
    if name == "speculative":
        return speculating(random, load["config"]), None  # its reference is in test_speculation
    return CUSTOM if name == "custom" else paced, None


def paced(b: Batch) -> None:
    """Whole prompts alone, the decodes paused, and while others decode every third step at most."""
    if b.edits > 0 or b.num_waiting == 0 or b.num_running == b.limits.max_num_seqs:
        return
    r = b.waiting.first()
    if b.blocks.count(r.prompt + r.max_tokens) > b.spare_blocks:
        return
    if b.num_decoding > 0 and b.tick_count % 3 > 0:
        b.wake_after(3 - b.tick_count % 3)
        return
    b.decodes_run = False
    b.admit(r, r.prompt, reserve=r.prompt + r.max_tokens)


def drawn(random: Random, names: Sequence[str] = SIMULATED) -> str:
    """A policy; vLLM, which has most rules, comes up more often."""
    return random.choice(("vllm", "vllm", *names))


def vllm_of(config: Load) -> Vllm:
    flags = {flag: config[flag] for flag in VLLM_FLAGS if flag in config}
    return Vllm(async_scheduling=config["async_scheduling"], **flags)


def speculating(random: Random, config: Load) -> Vllm:
    """vLLM with drafts, some of them free, and chunks that are never shorter than a decode."""
    k, threshold = random.choice([1, 2, 5]), config["long_prefill_token_threshold"]
    plain = vllm_of(config | {"long_prefill_token_threshold": max(threshold, k + 1) if threshold else 0})
    drafts = {"acceptance": random.choice([0.2, 0.7, 1.0]), "draft": random.choice([0.0, 0.1])}
    return replace(plain, num_speculative_tokens=k, **drafts)


def real_valued(seed: int, fast: bool = True) -> Load:
    """A load with arrivals off every grid; `fast`: at the pace of a GPU, not of `LINEAR`."""
    random = Random(seed + 3)
    load = timed_workload(seed, headroom=random.random() < 0.5)
    del load["requests"][MOST:]
    factor = 10 ** random.uniform(-2, 0.3) * (0.05 if fast else 1)
    for request in load["requests"]:
        request["arrival"] *= factor
    return load


def simulator_of(name: str, load: Load, cost: Any = LINEAR, **options: Any) -> Simulator:
    return Simulator(policy_of(name, load)[0], cost, limits_of(load["config"]), **options)


def run(name: str, load: Load, cost: Any = LINEAR, **options: Any) -> tuple[Simulator, list[Request]]:
    simulator, requests = simulator_of(name, load, cost, **options), requests_of(load)
    simulator.run(requests)
    return simulator, requests


def outcome(requests: list[Request]) -> list[tuple[str, str, int, int]]:
    return [(r.first_token.hex(), r.finished.hex(), r.preemptions, r.state) for r in requests]


def expanded(simulator: Simulator) -> tuple[list[EngineStep], list[Stay], list[tuple[int, float]]]:
    """The log, but for how its quiet steps were grouped."""
    log, b = simulator.log, simulator.batch
    jumps = [jump for jump in zip(log.jumps, log.jump_times, strict=True) if jump[0] < b.tick_count]
    found = steps(log, b.blocks.size, b.blocks.block_size, pads=b.on_end == PAD)
    return found, sorted(stays(log), key=lambda stay: (stay.until, stay.seat, stay.id)), jumps


def ends(simulator: Simulator) -> dict[int, float]:
    """When the last step of each stretch ended."""
    log = simulator.log
    return dict(zip(accumulate(log.column("steps")), log.seconds("times"), strict=True))


def assert_same(quick: tuple[Simulator, list[Request]], other: tuple[Simulator, list[Request]]) -> None:
    """Two runs gave the same bits: requests, steps, and the ends of all stretches."""
    assert outcome(quick[1]) == outcome(other[1])
    assert expanded(quick[0]) == expanded(other[0])
    assert ends(quick[0]) == ends(other[0])
    assert quick[0].now == other[0].now


def assert_over(simulator: Simulator, requests: list[Request]) -> None:
    """Nothing is left: requests and blocks are conserved."""
    b = simulator.batch
    b.check()
    assert b.blocks.free == b.blocks.size
    assert (b.num_running, b.num_waiting, b.num_decoding, b.num_padded, b.context) == (0, 0, 0, 0, 0)
    assert not (b.running or b.prefilling or b.chunks or b.held)
    for r in requests:
        assert r.state in (FINISHED, CANCELLED)
        assert r.state == CANCELLED or r.arrival < r.first_token <= r.finished <= simulator.now


# --- the reference loop -----------------------------------------------------------


def assert_replays(load: Load) -> None:
    recorded = reference.replay(load)
    expected = [
        {key: value for key, value in step.items() if key != "step"}
        | {"scheduled": list(step["scheduled"].items())}
        for step in recorded
    ]
    skipped, walked = replay(load), replay(load, skip=False)
    assert rows(load, skipped) == expected
    assert rows(load, walked) == expected
    if not load["config"]["async_scheduling"]:  # else a row may be a call that runs no step
        assert all(second == recorded[tick - 1]["step"] + 1 for tick, second in ends(walked).items())


@for_more_seeds
def test_vllm_schedules_every_step_as_the_reference_does(seed: int) -> None:
    """Synchronous and asynchronous, skipped and walked."""
    assert_replays(workload(seed))


@pytest.mark.parametrize("load", [END_TRAP, HELD_TRAP], ids=["end", "held"])
def test_vllm_schedules_the_rare_cases_as_the_reference_does(load: Load) -> None:
    assert_replays(load)


def assert_timed(name: str, load: Load) -> None:
    """Exactly the reference's times."""
    expected = reference.timed(load, reference.linear(), policy_of(name, load)[1])
    simulator, requests = run(name, load)
    assert_over(simulator, requests)
    for r, row in zip(requests, expected.values(), strict=True):
        times = {"arrival": r.arrival, "first_token": r.first_token, "finished": r.finished}
        assert times | {"preemptions": r.preemptions} == row


@for_more_seeds
def test_vllm_takes_the_time_that_the_reference_takes(seed: int) -> None:
    """Synchronous and asynchronous."""
    assert_timed("vllm", timed_workload(seed))


@pytest.mark.parametrize("name", ["static", "dynamic", "orca", *PEERS])
@for_more_seeds
def test_the_other_policies_take_the_time_that_the_reference_takes(seed: int, name: str) -> None:
    assert_timed(name, timed_workload(seed, headroom=True))


# --- skipped = walked -------------------------------------------------------------


def curved(step: Step) -> float:
    """A cost without closed form."""
    return 0.004 + 3e-5 * step.prefill_tokens + 1e-6 * (step.context_tokens + 100 * step.num_decodes) ** 1.2


COSTS = (
    Linear(0.0043, 3.1e-5, 1.7e-4, 1.3e-6, 1.1e-8),
    H100,
    Hosted(H100, 1e-3, 1e-3),  # the host is slower than the device from about 8 running on
    Hosted(curved, 1e-3, 1e-3),
    curved,
)


@for_more_seeds
def test_skipped_steps_give_the_bits_of_walked_ones(seed: int) -> None:
    load, random = real_valued(seed), Random(seed)
    name, cost = drawn(random), random.choice(COSTS)
    quick, walked = run(name, load, cost), run(name, load, cost, skip=False)
    assert_same(quick, walked)
    assert quick[0].num_decisions <= walked[0].num_decisions


@for_each_policy
def test_skipping_asks_less_often_than_there_are_steps(name: str) -> None:
    runs = [run(name, real_valued(seed), COSTS[0])[0] for seed in range(40)]
    asked = sum(simulator.num_decisions for simulator in runs)
    assert 2 * asked < sum(simulator.batch.tick_count for simulator in runs)


# --- driven another way -----------------------------------------------------------


def instants(random: Random, load: Load, end: float) -> Iterator[float]:
    """Where to stop: anywhere, at arrivals, again, and in tiny steps."""
    now = 0.0
    arrivals = [request["arrival"] for request in load["requests"]]
    while now < end:
        yield now
        way = random.random()
        if way < 0.2:
            now = nextafter(now, inf)
        elif way < 0.4:
            now = max(now, random.choice(arrivals))
        elif way < 0.9:
            now += random.random() * end / 30
        # else the same instant again


@for_many_seeds
def test_a_run_in_pieces_is_the_same_run(seed: int) -> None:
    load, random = real_valued(seed), Random(seed)
    name, cost = drawn(random), random.choice(COSTS)
    whole = run(name, load, cost)
    simulator, requests = simulator_of(name, load, cost, skip=random.random() < 0.8), requests_of(load)
    simulator.feed(requests)
    for until in instants(random, load, whole[0].now):
        simulator.advance(until)
        assert simulator.now <= until
    simulator.advance()
    assert_same(whole, (simulator, requests))


@for_many_seeds
def test_pieces_of_exact_steps_stop_at_their_ends(seed: int) -> None:
    load, name = real_valued(seed, fast=False), drawn(Random(seed))
    whole = run(name, load, skip=False)
    simulator, requests = simulator_of(name, load), requests_of(load)
    simulator.feed(requests)
    for second in whole[0].log.seconds("times"):
        simulator.advance(second)
        assert simulator.now == second
        simulator.batch.check()
    simulator.advance()
    assert_same(whole, (simulator, requests))


@for_many_seeds
def test_a_request_may_be_submitted_just_before_it_comes(seed: int) -> None:
    load, random = real_valued(seed), Random(seed)
    name = drawn(random)
    whole = run(name, load, H100)
    simulator, requests = simulator_of(name, load, H100), requests_of(load)
    for r in requests:
        before = random.choice([r.arrival, max(nextafter(r.arrival, 0.0), simulator.now)])
        simulator.advance(before)
        simulator.submit(r)
    simulator.drain()
    simulator.advance()
    assert_same(whole, (simulator, requests))


@for_many_seeds
def test_requests_submitted_in_any_order_come_in_order_of_arrival(seed: int) -> None:
    load, random = real_valued(seed), Random(seed)
    for i, request in enumerate(load["requests"]):
        request["arrival"] += i * 2**-20  # no ties: the order of submission would settle them
    name = drawn(random)
    whole = run(name, load, H100)
    simulator, requests = simulator_of(name, load, H100), requests_of(load)
    for r in random.sample(requests, len(requests)):
        simulator.submit(r)
    simulator.run()
    assert outcome(requests) == outcome(whole[1])


@for_many_seeds
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    name = drawn(Random(seed))
    first, second = run(name, real_valued(seed), H100), run(name, real_valued(seed), H100)
    assert outcome(first[1]) == outcome(second[1])
    for column in COLUMNS:
        assert first[0].log.column(column).tobytes() == second[0].log.column(column).tobytes()
    for column in SECONDS:
        assert first[0].log.seconds(column).tobytes() == second[0].log.seconds(column).tobytes()
    assert (first[0].log.jumps, first[0].log.jump_times) == (second[0].log.jumps, second[0].log.jump_times)


# --- cancels ----------------------------------------------------------------------


def cancels_of(random: Random, load: Load, end: float) -> list[tuple[float, int]]:
    """When clients go, and which: before they came, twice, at arrivals, and after the end."""
    count = len(load["requests"])
    at = [random.uniform(0, 1.1 * end) for _ in range(random.randint(0, count))]
    at += [random.choice(load["requests"])["arrival"] for _ in range(random.randint(0, 3))]
    return [(instant, random.randrange(count)) for instant in at]


def cancelling(name: str, load: Load, cancels: list[tuple[float, int]], **options: Any) -> Any:
    simulator, requests = simulator_of(name, load, H100, **options), requests_of(load)
    for at, i in cancels:
        simulator.cancel(requests[i], at)
    simulator.run(requests)
    return simulator, requests


@for_many_seeds
def test_clients_that_go_leave_no_blocks_behind_and_others_are_served(seed: int) -> None:
    load, random = real_valued(seed), Random(seed)
    name = drawn(random)
    cancels = cancels_of(random, load, run(name, load, H100)[0].now)
    quick, walked = cancelling(name, load, cancels), cancelling(name, load, cancels, skip=False)
    assert_same(quick, walked)
    assert_over(*quick)
    gone = {i for _, i in cancels}
    assert all(r.state == FINISHED for r in quick[1] if r.id not in gone)
    assert outcome(cancelling(name, load, cancels, audit=True)[1]) == outcome(quick[1])
    assert outcome(standing(name, load, sorted(cancels))) == outcome(quick[1])


def standing(name: str, load: Load, cancels: list[tuple[float, int]]) -> list[Request]:
    """The same cancels, each told when its time has come."""
    simulator, requests = simulator_of(name, load, H100), requests_of(load)
    simulator.feed(requests)
    for at, i in cancels:
        simulator.advance(at)
        simulator.cancel(requests[i])
    simulator.advance()
    return requests


# --- audits -----------------------------------------------------------------------


@for_each_simulated
@for_many_seeds
def test_every_policy_keeps_its_contract(seed: int, name: str) -> None:
    """All counts, and with prefix caching the free list, are recomputed after every step."""
    load = real_valued(seed)
    simulator, requests = run(name, load, H100, audit=True)
    assert_over(simulator, requests)
    assert outcome(requests) == outcome(run(name, load, H100)[1])
    assert simulator.num_decisions >= simulator.batch.tick_count


@for_many_seeds
def test_no_step_exceeds_the_limits_and_no_token_is_computed_in_vain(seed: int) -> None:
    name = drawn(Random(seed))
    simulator, requests = run(name, workload(seed), Constant(1.0))
    limits = simulator.batch.limits
    computed = dict.fromkeys(range(len(requests)), 0)
    first: dict[int, int] = {}  # tokens of the first chunk
    for step in expanded(simulator)[0]:
        assert len({id for id, _ in step.scheduled}) == len(step.scheduled)
        tokens = sum(tokens for _, tokens in step.scheduled)
        assert name != "vllm" or tokens <= limits.max_num_batched_tokens
        assert 0 <= step.running + len(step.finished) - step.dropped <= limits.max_num_seqs
        assert 0 <= step.free_blocks_sched <= step.free_blocks <= limits.blocks
        for id, tokens in [*step.scheduled, *step.admitted]:
            computed[id] += tokens
            first.setdefault(id, tokens)
    for r in requests:  # once, and once more per preemption at most
        longest = r.prompt + r.true_output - 1
        assert longest <= computed[r.id] <= longest * (r.preemptions + 1)
        assert name in ("vllm", "speculative", "custom", *PEERS) or first[r.id] == r.prompt


# --- small cases ------------------------------------------------------------------


def test_a_rejected_request_may_be_cancelled() -> None:
    limits = Limits(max_model_len=32)
    long, short = Request(0, 0.0, prompt=32, output=1), Request(1, 0.0, prompt=3, output=5)
    simulator = Simulator(Vllm(), Constant(1.0), limits)
    simulator.cancel(long, 2.0)
    simulator.run([long, short])
    assert simulator.rejected == [0]
    assert (long.state, short.finished) in ((WAITING, 5.0), (CANCELLED, 5.0))


def test_the_example_policy_uses_the_room_in_the_last_block_of_a_prompt() -> None:
    requests = [Request(0, 0.0, prompt=8, output=1), Request(1, 0.0, prompt=28, output=1)]
    simulator = Simulator(CUSTOM, Constant(1.0), Limits(num_kv_blocks=2))  # chunks of 8, 8 + 16, 4
    simulator.run(requests)
    assert [r.finished for r in requests] == [1.0, 3.0]


def test_a_preemption_for_want_of_blocks_keeps_the_contract() -> None:
    requests = [Request(i, 0.0, prompt=4, output=8) for i in range(2)]
    limits = Limits(block_size=4, num_kv_blocks=4, enable_prefix_caching=False)
    simulator = Simulator(Vllm(async_scheduling=False), Constant(1.0), limits, audit=True)
    simulator.run(requests)
    assert [r.preemptions for r in requests] == [0, 1]
