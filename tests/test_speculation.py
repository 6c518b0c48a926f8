"""Speculative decoding: the draws, the schedule, the cost, and what a run says of its tokens."""

from __future__ import annotations

import pickle
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
from batchwright.cost import stretch_of
from batchwright.engines.live import Live
from batchwright.engines.mock import Mock
from batchwright.errors import InputError, PolicyError
from batchwright.history import EngineStep, stays, steps
from batchwright.log import DROPPED
from batchwright.run import Run
from batchwright.run.gaps import gaps
from batchwright.run.ticks import token_times
from batchwright.run.windows import tokens_by
from batchwright.speculation import Guesses, Speculation, mean_tokens
from batchwright.step import Step
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_gaps import check as check_gaps
from test_phases import check as check_phases
from test_properties import for_seeds
from test_run import load_of
from test_slots import check as check_slots
from test_step_columns import check as check_columns

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
    plain, wrong = all_at_once(shapes, bw.vllm(async_scheduling=False)), all_at_once(shapes, speculating(k, 0.0))
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


# --- draws -----------------------------------------------------------------------------------


def test_guesses_do_not_depend_on_how_many_are_asked_for() -> None:
    of = {}
    for k in (1, 6):
        r = bw.Request(7, 2.5, 10, 40)
        guesses = Guesses(Speculation(num_speculative_tokens=k, acceptance=0.6))
        guesses.accepted(r, 1, k)
        of[k] = r.guessed
    assert of[1] == of[6] and 0 < sum(of[1]) < 40


@pytest.mark.parametrize(("most", "count"), [(0, 0), (1, 1), (2, 2), (3, 2)])
def test_only_guesses_before_the_first_wrong_one_count(most: int, count: int) -> None:
    r = request(0, 4, "00110")
    assert Guesses(Speculation(num_speculative_tokens=3, acceptance=0.5)).accepted(r, 2, most) == count


def rates(spread: float, seed: int = 0) -> list[float]:
    guesses = Guesses(
        Speculation(num_speculative_tokens=1, acceptance=0.7, acceptance_spread=spread, acceptance_seed=seed)
    )
    found = []
    for i in range(400):
        r = bw.Request(i, 0.0, 8, 500)
        guesses.accepted(r, 0, 1)
        found.append(sum(r.guessed) / 500)
    return found


def test_the_acceptance_of_requests_scatters_as_it_is_told_to() -> None:
    noise = 0.7 * 0.3 / 500
    for spread in (0.0, 0.15):
        found = rates(spread)
        assert np.mean(found) == pytest.approx(0.7, abs=4 * sqrt((spread**2 + noise) / 400))
        assert np.var(found) == pytest.approx(spread**2 + noise, rel=0.25)
    assert rates(0.15) != rates(0.15, seed=1)


# --- cost ------------------------------------------------------------------------------------


def measured(prompt: int, k: int) -> Step:
    """The first decode after a prompt."""
    found: list[Step] = []

    def watch(step: Step) -> float:
        found.append(step.later(0))
        return 1.0

    bw.Simulator(speculating(k, 1.0), watch).run([bw.Request(0, 0.0, prompt, 50)])
    return found[1]


def test_a_verified_draft_is_a_prompt_token_that_reads_no_kv_of_its_own() -> None:
    step = measured(prompt=10, k=3)
    assert (step.num_decodes, step.draft_tokens, step.prefill_tokens, step.sampled_rows) == (1, 3, 3, 4)
    assert (step.context_tokens, step.past_tokens, step.num_chunks) == (10, 0, 0)
    # tokens 11 to 14 attend to 11 + 12 + 13 + 14 tokens, themselves included
    assert step.context_tokens + 1 + step.prefill_attention + step.prefill_tokens / 2 == 11 + 12 + 13 + 14


def test_on_a_roofline_a_verified_row_costs_what_a_chunk_of_the_same_tokens_costs() -> None:
    roofline = bw.Roofline("H100-SXM", "llama-3.1-8b")
    chunk = Step()
    chunk.prefill_tokens, chunk.num_chunks, chunk.past_tokens, chunk.sampled_rows = 4, 1, 500, 4
    chunk.prefill_attention = 4 * (500 + 2.0)
    assert roofline.seconds(measured(prompt=500, k=3)) == pytest.approx(roofline.seconds(chunk), rel=1e-12)


def test_a_draft_costs_a_pass_over_the_step_and_one_for_each_further_token() -> None:
    r = request(0, prompt=4, guessed="000")
    simulator = run(speculating(3, 0.5, draft=0.25), [r])
    # prompt: 0.5, and a quarter of: itself, then 2 passes of one row over 1 and 2 tokens more
    passes = [0.25 + 0.125 + (0 + j) / 64 for j in (1, 2)]
    first = 0.5 + 0.25 * (0.5 + sum(passes))
    # decode: 1/4 + 1/8 + 3/16 + 4/64, and a quarter of: itself, then 2 passes over 5 and 6 tokens
    verify, rest = 0.25 + 0.125 + 3 / 16 + 4 / 64, [0.25 + 0.125 + (4 + j) / 64 for j in (1, 2)]
    assert ends(simulator)[:2] == [first, first + verify + 0.25 * (verify + sum(rest))]


def test_a_draft_may_have_a_cost_model_of_its_own() -> None:
    r = request(0, prompt=4, guessed="000")
    simulator = run(speculating(3, 0.5, draft=bw.Constant(2**-5)), [r])
    verify = [0.5, *(0.25 + 0.125 + 3 / 16 + c / 64 for c in (4, 5))]
    assert ends(simulator) == np.cumsum([seconds + 3 * 2**-5 for seconds in verify]).tolist()


def test_the_draft_is_the_devices_and_a_host_hides_behind_both() -> None:
    hosted = bw.Hosted(bw.Constant(1.0), base=1.25, per_running=0.0)
    for draft, expected in ((0.0, 1.25), (0.25, 1.5)):  # 1 + 2 * 0.25 is more than the host takes
        simulator = bw.Simulator(speculating(2, 0.5, draft=draft, async_scheduling=True), hosted)
        simulator.run([request(0, 4, "00")])
        assert ends(simulator)[:2] == [expected, 2 * expected]


def test_without_a_draft_to_pay_the_cost_model_is_the_servers_own() -> None:
    simulator = bw.Simulator(speculating(2, 0.5), COST)
    assert simulator.cost is COST and simulator.stretch == stretch_of(COST)


# --- what a run says --------------------------------------------------------------------------


def run_of(seed: int) -> Run:
    load, k, guess = drawn(seed)
    first = load["requests"][0]["arrival"]
    for row in load["requests"]:
        row["arrival"] -= first
    requests = requests_of(load)
    simulator = bw.Simulator(policy_of(load, k, guess), LINEAR, limits_of(load["config"]))
    simulator.run(requests)
    return Run("speculative", load_of(requests), simulator)


def token_ends(run: Run) -> dict[int, list[float]]:
    """The second of every token, from the steps written out one by one."""
    left = dict.fromkeys(range(len(run.load)), 0)
    found: dict[int, list[float]] = {id: [] for id in left}
    times = run.steps()["end_s"].tolist()
    for step, end in zip(steps(run.log, run.limits.blocks, run.limits.block_size), times, strict=True):
        for id, cached in step.admitted:
            left[id] = int(run.load.prompt[id]) + len(found[id]) - cached
        for id, tokens in step.scheduled:
            if left[id] > tokens:
                left[id] -= tokens
            else:
                found[id] += [end] * (1 if left[id] > 0 else tokens)
                left[id] = 0
    return found


@for_every_seed(25)
def test_tokens_gaps_and_columns_are_those_of_the_steps_written_out(seed: int) -> None:
    run = run_of(seed)
    check_columns(run)
    check_gaps(run, run._stretch)
    check_slots(run, run._stretch)
    check_phases(run)
    expected = token_ends(run)
    assert [times.tolist() for times in token_times(run)] == list(expected.values())
    columns = run.requests()
    assert [len(times) for times in expected.values()] == columns["output_tokens"].tolist()
    of = [np.diff(times) for times in expected.values()]
    found = gaps(run.timeline, np.ones(len(of), bool))
    assert sorted(np.repeat(found.seconds, found.counts)) == pytest.approx(sorted(np.concatenate(of)))
    greatest = [gap.max() if len(gap) else np.nan for gap in of]
    assert np.array_equal(found.greatest, greatest, equal_nan=True)
    middle = np.array([run.steps()["end_s"][len(run.steps()["end_s"]) // 2], np.inf])
    made = np.concatenate(list(expected.values()))
    assert tokens_by(run, middle).tolist() == [int((made <= second).sum()) for second in middle]


def test_tokens_of_one_step_have_gaps_of_zero_and_tpot_is_what_its_formula_says() -> None:
    r, simulator = alone()
    run = Run("alone", load_of([r]), simulator)
    found = run.gaps()
    assert sorted(np.repeat(found.seconds, found.counts)) == [0.0, 0.0, 0.0, 0.5625, 0.59375]
    assert run.requests()["tpot_s"][0] == (1.65625 - 0.5) / 5
    assert run.itl().p50 == 0.0


def test_speculation_stands_in_one_table_with_the_policy_without_it() -> None:
    load = bw.Workload.open("poisson(rate=2, n=60, prompt=uniform(32,256), output=uniform(16,64))")
    policies = {"vllm": "vllm", "drafts": "vllm(num_speculative_tokens=3, acceptance=0.8, draft=0.05)"}
    runs = bw.compare(load, bw.Roofline("H100-SXM", "llama-3.1-8b"), bw.Limits(), policies)
    plain, drafts = (runs[name].requests() for name in policies)
    assert plain["output_tokens"].tolist() == drafts["output_tokens"].tolist()
    assert np.nanmean(drafts["tpot_s"]) < 0.7 * np.nanmean(plain["tpot_s"])
    assert "drafts" in runs.table()
    assert runs["vllm"].tokens_per_decode == 1.0 and 2.0 < runs["drafts"].tokens_per_decode < mean_tokens(0.8, 3)


# --- settings ---------------------------------------------------------------------------------

WRONG = {
    "vllm(num_speculative_tokens=4)": "acceptance is not given; give the share of draft tokens",
    "vllm(acceptance=0.7)": "acceptance is given, but num_speculative_tokens is 0; give both or none",
    "vllm(draft=0.1)": "draft is given, but num_speculative_tokens is 0",
    "vllm(num_speculative_tokens=4, acceptance=70)": "acceptance is 70, but must be a number from 0 to 1",
    "vllm(num_speculative_tokens=4, acceptance=0.7, draft=2)": "draft is 2, but must be a number from 0 to 1, or",
    "vllm(num_speculative_tokens=4, acceptance=0.7, draft=ngram)": "draft is 'ngram', but must be a number",
    "vllm(num_speculative_tokens=4, acceptance=0.7, acceptance_spread=0.5)":
        "acceptance_spread is 0.5, but around an acceptance of 0.7 must be below 0.4583; lower it",
    "vllm(num_speculative_tokens=4, acceptance=0.7, acceptance_seed=-1)": "acceptance_seed is -1, but must be a",
    "vllm(num_speculative_tokens=4, acceptance=0.7, long_prefill_token_threshold=4)":
        "long_prefill_token_threshold 4 is below the 5 tokens that a decode verifies",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_setting_that_cannot_be_says_why(text: str) -> None:
    with pytest.raises(InputError) as caught:
        bw.policy(text)
    assert str(caught.value).startswith("vllm: ") and WRONG[text] in str(caught.value)


@pytest.mark.parametrize("values", [{"num_speculative_tokens": 0}, {"acceptance": float("nan")}, {"draft": None}])
def test_a_speculation_is_checked_wherever_it_is_made(values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"speculation: {next(iter(values))} is "):
        Speculation(**{"num_speculative_tokens": 2, "acceptance": 0.5, **values})


def test_a_policy_with_a_draft_model_is_its_parameters_and_pickles() -> None:
    config = speculating(2, 0.5, draft=bw.Roofline("H100-SXM", "llama-3.1-8b"))
    assert pickle.loads(pickle.dumps(config)) == config and hash(config) == hash(config)


def test_an_engine_that_verifies_nothing_refuses_to_speculate() -> None:
    with pytest.raises(PolicyError, match="speculates, which is simulated only"):
        Live(speculating(2, 0.5), Mock(bw.Constant(0.01), is_real=False), bw.Limits())


def test_a_grant_has_at_most_the_tokens_of_its_row() -> None:
    def greedy(b: bw.Batch) -> None:
        for r in b.waiting.head(1):
            b.admit(r, r.prompt)
        for r in b.running:
            if r.state == 2 and b.edits == 0:
                b.grant(r, 4)

    class Greedy:
        def begin(self, b: bw.Batch) -> Callable[[bw.Batch], None]:
            b.speculate(Speculation(num_speculative_tokens=2, acceptance=0.5))
            return greedy

    with pytest.raises(PolicyError, match="granted 4 tokens; give a decode at least 1 and at most 3"):
        bw.Simulator(Greedy(), COST).run([bw.Request(0, 0.0, 4, 9)])
