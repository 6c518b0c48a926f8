"""Speculative decoding: the draws, the schedule, the cost, and what a run says of its tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import ceil, sqrt
from random import Random
from typing import Any

import numpy as np
import pytest

import batchwright as bw
import reference
import speculative
from batchwright.conformance import VLLM_FLAGS
from batchwright.history import EngineStep, stays, steps
from batchwright.log import DROPPED
from batchwright.speculation import mean_tokens
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_properties import for_seeds

LINEAR = bw.Linear(2**-2, 2**-10, 2**-7, 2**-13, 2**-16)  # reference.linear(): its sums are exact
COST = bw.Linear(base=2**-2, prefill=2**-4, decode=2**-3, context=2**-6)
NO_CACHE = bw.Limits(block_size=4, num_kv_blocks=16, enable_prefix_caching=False)


def speculating(k: int, acceptance: float, **flags: Any) -> Any:
    return bw.vllm(
        num_speculative_tokens=k, acceptance=acceptance, **{"async_scheduling": False, **flags}
    )


def request(id: int, prompt: int, guessed: str, arrival: float = 0.0) -> bw.Request:
    """One character for each token of the output: 1 if a draft guesses it."""
    r = bw.Request(id, arrival, prompt, len(guessed))
    r.guessed = bytes(int(guess) for guess in guessed)
    return r


def run(policy: Any, requests: list[bw.Request], cost: Any = COST, limits: bw.Limits = NO_CACHE) -> Any:
    simulator = bw.Simulator(policy, cost, limits, audit=True)
    simulator.run(requests)
    assert simulator.batch.blocks.free == simulator.batch.blocks.size
    return simulator


def walk(simulator: bw.Simulator) -> list[EngineStep]:
    blocks = simulator.batch.blocks
    return steps(simulator.log, blocks.size, blocks.block_size)


def scheduled(simulator: bw.Simulator) -> list[dict[int, int]]:
    """Tokens by id of every step, without the drafts that were rejected."""
    return [dict(step.scheduled) for step in walk(simulator)]


def ends(simulator: bw.Simulator) -> list[float]:
    return list(simulator.log.seconds("times"))


# --- schedules worked out by hand ----------------------------------------------------------

# step       tokens          seconds                                        until
# prompt     4               1/4 + 4/16                         = 0.5       0.5
# 2 drafts   1 of 2 right    1/4 + 1/8 + 2/16 + 4 read / 64     = 0.5625    1.0625
# 2 drafts   2 of 2 right    1/4 + 1/8 + 2/16 + 6 read / 64     = 0.59375   1.65625


def alone() -> tuple[bw.Request, Any]:
    r = request(0, prompt=4, guessed="010111")
    return r, run(speculating(2, 0.5), [r])


def test_a_step_brings_the_right_guesses_and_one_token_more() -> None:
    r, simulator = alone()
    assert scheduled(simulator) == [{0: 4}, {0: 2}, {0: 3}]
    assert ends(simulator) == [0.5, 1.0625, 1.65625]
    assert (r.first_token, r.finished) == (0.5, 1.65625)
    assert simulator.log.column("accepted").tolist() == [1, 1, 1, 2, 1, 2]


def test_blocks_hold_the_drafts_and_those_of_wrong_ones_are_used_again() -> None:
    # 4 tokens; 4 + 3; 6 + 3, of which 7 lay in the blocks of the step before
    _, simulator = alone()
    assert [step.free_blocks_sched for step in walk(simulator)] == [15, 14, 13]
    assert walk(simulator)[-1].free_blocks == 16


def test_a_draft_past_the_end_brings_nothing() -> None:
    r = request(0, prompt=4, guessed="0111")
    simulator = run(speculating(8, 0.5), [r])
    assert scheduled(simulator) == [{0: 4}, {0: 3}]
    assert r.finished == 0.5 + 0.25 + 0.125 + 8 / 16 + 4 / 64


def test_the_budget_trims_the_drafts_of_those_behind_and_holds_the_rest() -> None:
    # Three decodes of up to 3 tokens in a budget of 4: 3 + 1, and nothing for the third.
    requests = [request(i, prompt=1, guessed="01111") for i in range(3)]
    limits = bw.Limits(max_num_seqs=3, max_num_batched_tokens=4, block_size=4, num_kv_blocks=16)
    simulator = run(speculating(2, 0.5), requests, bw.Constant(1.0), limits)
    assert scheduled(simulator) == [
        {0: 1, 1: 1, 2: 1},
        {0: 3, 1: 1},
        {0: 1, 1: 1},  # 0 has one token left, but computes 3 to find out
        {1: 2, 2: 1},
        {2: 3},
    ]


def test_who_computes_how_many_tokens_does_not_show_how_many_are_left() -> None:
    r = request(0, prompt=4, guessed="0111")
    seen: list[int] = []

    class Watching:
        def begin(self, b: bw.Batch) -> Callable[[bw.Batch], None]:
            self.asked = speculating(2, 0.5).begin(b)
            return self

        def __call__(self, b: bw.Batch) -> None:
            self.asked(b)
            seen.append(b.decode_tokens())

    run(Watching(), [r])
    assert set(seen) == {0, 3}


def test_drafts_may_preempt_where_single_tokens_would_not() -> None:
    limits = bw.Limits(block_size=4, num_kv_blocks=4, enable_prefix_caching=False)
    for k, preemptions in ((0, [0, 0]), (4, [0, 1])):
        requests = [request(i, prompt=4, guessed="0000") for i in range(2)]
        policy = speculating(k, 0.5) if k else bw.vllm(async_scheduling=False)
        run(policy, requests, bw.Constant(1.0), limits)
        assert [r.preemptions for r in requests] == preemptions


def test_the_longest_request_is_drafted_up_to_its_last_token_and_no_further() -> None:
    limits = bw.Limits(block_size=4, num_kv_blocks=2, max_model_len=8, enable_prefix_caching=False)
    r = request(0, prompt=3, guessed="01111")  # 7 tokens are computed, the eighth never is
    assert scheduled(run(speculating(9, 0.5), [r], limits=limits)) == [{0: 3}, {0: 4}]
    assert r.finished == 0.25 + 3 / 16 + 0.25 + 0.125 + 3 / 16 + 3 / 64


def test_an_end_is_seen_a_step_late_where_scheduling_is_asynchronous() -> None:
    requests = [request(0, prompt=4, guessed="011"), request(1, prompt=4, guessed="00")]
    limits = bw.Limits(block_size=4, num_kv_blocks=16, max_num_seqs=1)
    simulator = run(speculating(2, 0.5, async_scheduling=True), requests, bw.Constant(1.0), limits)
    assert [r.first_token for r in requests] == [1.0, 3.0]  # a step in which nothing runs takes no time
    assert scheduled(simulator) == [{0: 4}, {0: 2}, {}, {1: 4}, {1: 1}, {}]


@pytest.mark.parametrize(("asynchronous", "found"), [(False, 4), (True, 2)])
def test_a_preempted_decode_finds_the_tokens_that_were_known_when_it_lost_its_blocks(
    asynchronous: bool, found: int
) -> None:
    # Blocks of one token, 12 of them.  Both prompts: 2 + 2.  Both decodes: 5 + 5, all guesses right.
    # Then 8 are needed for each, and the second loses its 5.  The first takes 3, the 2 that were free
    # and the last of the 5; so 4 are found again.  If asynchronous, the 3 tokens of the step before are
    # not known yet: 2 are found.
    requests = [request(0, prompt=2, guessed="0110110"), request(1, prompt=2, guessed="0110110")]
    limits = bw.Limits(block_size=1, num_kv_blocks=12, max_num_seqs=2)
    run(speculating(2, 0.5, async_scheduling=asynchronous), requests, bw.Constant(1.0), limits)
    assert [(r.preemptions, r.cached) for r in requests] == [(0, 0), (1, found)]


# --- the reference loop ----------------------------------------------------------------------


def drawn(seed: int) -> tuple[dict[str, Any], int, dict[str, Any]]:
    """A load, drafts a decode, and how they are guessed."""
    random = Random(seed + 5)
    load, k = timed_workload(seed, headroom=random.random() < 0.5), random.choice([1, 2, 3, 7])
    threshold = load["config"]["long_prefill_token_threshold"]
    load["config"]["long_prefill_token_threshold"] = max(threshold, k + 1) if threshold else 0
    acceptance = random.choice([0.0, 0.3, 0.7, 0.9, 1.0])
    spread = random.choice([0.0, 0.1]) if 0.0 < acceptance < 1.0 else 0.0
    return load, k, {"acceptance": acceptance, "acceptance_spread": spread, "acceptance_seed": seed % 3}


def policy_of(load: dict[str, Any], k: int, guess: dict[str, Any], draft: float = 0.0) -> Any:
    config = load["config"]
    flags = {flag: config[flag] for flag in VLLM_FLAGS if flag in config}
    asynchronous = config["async_scheduling"]
    return bw.vllm(async_scheduling=asynchronous, num_speculative_tokens=k, draft=draft, **guess, **flags)


def served(seed: int, draft: float = 0.0, **options: Any) -> tuple[Any, list[bw.Request]]:
    load, k, guess = drawn(seed)
    requests = requests_of(load)
    simulator = bw.Simulator(policy_of(load, k, guess, draft), LINEAR, limits_of(load["config"]), **options)
    simulator.run(requests)
    return simulator, requests


@partial(for_seeds, 80)
def test_the_simulator_takes_the_time_that_the_reference_takes(seed: int) -> None:
    """Synchronous and asynchronous, with every flag of vLLM."""
    load, k, guess = drawn(seed)
    draft = Random(seed).choice([0.0, 0.25])
    expected = speculative.timed(
        load,
        speculative.with_draft(reference.linear(), draft, k),
        k,
        speculative.guesses(guess["acceptance"], guess["acceptance_spread"], guess["acceptance_seed"]),
    )
    simulator, requests = served(seed, draft)
    decodes = [0] * len(requests)
    for stay in stays(simulator.log):
        if stay.since >= 0 and stay.how != DROPPED:
            decodes[stay.id] += stay.stopped - stay.since
    held = simulator.log.column("held").tolist()
    ids = {stay.seat: stay.id for stay in stays(simulator.log)}
    for seat in held[1::2]:
        decodes[ids[seat]] -= 1
    found = [
        {"first_token": r.first_token, "finished": r.finished, "preemptions": r.preemptions, "steps": count}
        for r, count in zip(requests, decodes, strict=True)
    ]
    assert found == expected


@for_every_seed(40)
def test_walked_audited_and_repeated_runs_give_the_same_bytes(seed: int) -> None:
    first, requests = served(seed)
    assert first.batch.blocks.free == first.batch.blocks.size
    for options in ({}, {"skip": False}, {"audit": True}):
        again, others = served(seed, **options)
        assert [(r.first_token.hex(), r.finished.hex()) for r in others] == [
            (r.first_token.hex(), r.finished.hex()) for r in requests
        ]
        for column in ("steps", "taken", "freed", "chunks", "held", "accepted"):
            assert again.log.column(column).tobytes() == first.log.column(column).tobytes()
        assert again.log.seconds("times").tobytes() == first.log.seconds("times").tobytes()


# --- laws ------------------------------------------------------------------------------------


def crowd(random: Random, count: int = 12) -> list[tuple[int, int]]:
    return [(random.randint(1, 60), random.randint(1, 50)) for _ in range(count)]


def all_at_once(shapes: list[tuple[int, int]], policy: Any) -> Any:
    requests = [bw.Request(i, 0.0, prompt, output) for i, (prompt, output) in enumerate(shapes)]
    return run(policy, requests, COST, bw.Limits(enable_prefix_caching=False))


@for_every_seed(30)
def test_if_no_guess_is_right_the_steps_are_those_without_speculation_but_dearer(seed: int) -> None:
    shapes, k = crowd(Random(seed)), Random(seed).choice([1, 3, 5])
    plain = all_at_once(shapes, bw.vllm(async_scheduling=False))
    wrong = all_at_once(shapes, speculating(k, 0.0))
    assert scheduled(wrong) == scheduled(plain)
    decodes = [step.num_decodes for step in walk(plain)]
    cost = [COST.base + COST.decode * step.num_decodes + COST.prefill * step.prefill_tokens
            + COST.context * step.context_tokens for step in walk(plain)]  # fmt: skip
    dearer = np.array(cost) + k * COST.prefill * np.array(decodes)
    assert ends(wrong) == np.cumsum(dearer).tolist()


@for_every_seed(30)
def test_if_all_guesses_are_right_a_request_takes_the_fewest_steps(seed: int) -> None:
    """The first token comes with the prompt, the others k + 1 at a time."""
    shapes, k = crowd(Random(seed)), Random(seed).choice([1, 3, 5])
    for stay in stays(all_at_once(shapes, speculating(k, 1.0)).log):
        assert stay.stopped - stay.since == ceil((shapes[stay.id][1] - 1) / (k + 1))


@pytest.mark.parametrize("acceptance", [0.0, 0.3, 0.7, 0.95, 1.0])
@pytest.mark.parametrize("k", [1, 4])
def test_a_step_brings_as_many_tokens_on_average_as_the_formula_says(acceptance: float, k: int) -> None:
    requests = [bw.Request(i, float(i), 8, 1000) for i in range(20)]
    simulator = bw.Simulator(speculating(k, acceptance), bw.Constant(0.01))
    simulator.run(requests)
    counts = [tokens for step in walk(simulator) for _, tokens in step.scheduled if tokens < 8]
    expected = sum((n + 1) * acceptance**n * (1 - acceptance) for n in range(k)) + (k + 1) * acceptance**k
    assert mean_tokens(acceptance, k) == pytest.approx(expected)
    assert abs(np.mean(counts) - expected) <= 4 * np.std(counts) / sqrt(len(counts)) + 20 * k / len(counts)


@for_every_seed(20)
def test_what_a_draft_will_guess_changes_nothing_before_it_has(seed: int) -> None:
    random, position = Random(seed), 10
    shapes = [(random.randint(1, 30), random.randint(20, 40)) for _ in range(6)]
    runs = []
    for tail in (0, 1):
        requests = [bw.Request(i, i / 4, prompt, output) for i, (prompt, output) in enumerate(shapes)]
        draws = Random(seed)
        for r in requests:
            head = [draws.random() < 0.6 for _ in range(position)]
            r.guessed = bytes([*head, *[tail] * (r.true_output - position)])
        runs.append(walk(run(speculating(3, 0.6), requests, COST, bw.Limits(max_num_seqs=4))))
    same = next(i for i, (a, b) in enumerate(zip(*runs, strict=False)) if a.scheduled != b.scheduled)
    had = {id: 0 for id in range(6)}
    for step in runs[0][: same + 1]:
        for id, tokens in step.scheduled:
            had[id] += tokens
    assert any(had[i] - shapes[i][0] + 1 > position - 1 for i in range(6))
    assert runs[0][:same] == runs[1][:same]


