"""Speculative decoding: the draws, what drafts cost, and settings that cannot be."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.cost import stretch_of
from batchwright.engines.live import Live
from batchwright.engines.mock import Mock
from batchwright.errors import InputError, PolicyError
from batchwright.speculation import Guesses, Speculation
from batchwright.step import Step
from test_speculation import COST, ends, request, run, speculating

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


# --- settings ---------------------------------------------------------------------------------

WRONG = {
    "vllm(num_speculative_tokens=4)": "acceptance is not given; give the share of draft tokens",
    "vllm(acceptance=0.7)": "acceptance is given, but num_speculative_tokens is 0; give both or none",
    "vllm(draft=0.1)": "draft is given, but num_speculative_tokens is 0",
    "vllm(num_speculative_tokens=4, acceptance=70)": "acceptance is 70, but must be a number from 0 to 1",
    "vllm(num_speculative_tokens=4, acceptance=0.7, draft=2)": "draft is 2, but must be a number from 0 to",
    "vllm(num_speculative_tokens=4, acceptance=0.7, draft=ngram)": "draft is 'ngram', but must be a number",
    "vllm(num_speculative_tokens=4, acceptance=0.7, acceptance_spread=0.5)":
        "acceptance_spread is 0.5, but around an acceptance of 0.7 must be below 0.4583; lower it",
    "vllm(num_speculative_tokens=4, acceptance=0.7, acceptance_seed=-1)": "acceptance_seed is -1, but must",
    "vllm(num_speculative_tokens=4, acceptance=0.7, long_prefill_token_threshold=4)":
        "long_prefill_token_threshold 4 is below the 5 tokens that a decode verifies",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_setting_that_cannot_be_says_why(text: str) -> None:
    with pytest.raises(InputError) as caught:
        bw.policy(text)
    assert str(caught.value).startswith("vllm: ") and WRONG[text] in str(caught.value)


@pytest.mark.parametrize(
    "values", [{"num_speculative_tokens": 0}, {"acceptance": float("nan")}, {"draft": None}]
)
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
