"""LightLLM's rules: the peak from its definition, and schedules worked out by hand in steps of a second."""

from __future__ import annotations

from random import Random

import pytest

from batchwright.batch import Batch
from batchwright.cost import Constant
from batchwright.errors import LimitError
from batchwright.limits import Limits
from batchwright.policies.lightllm import Lightllm, first_fit, peak
from batchwright.request import Request
from batchwright.simulator import Simulator
from strategies import for_every_seed
from test_schedules import COST, Load, finished, load, scheduled, served, walked

LIMITS = Limits(block_size=4, max_model_len=64, enable_prefix_caching=False)
SECOND = Constant(1.0)

Part = tuple[int, int]  # tokens left, tokens now


def steps_of(flags: Lightllm, make: Load, limits: Limits = LIMITS) -> list[dict[int, int]]:
    """Tokens by id of every step; quick, walked and audited runs give the same times."""
    served(flags, make, SECOND, limits)
    return scheduled(walked(flags, make, SECOND, limits))


# --- the peak ------------------------------------------------------------------------


def simulated(parts: list[Part]) -> int:
    """Let every request take a token a step and give all back after its last: the most that is held."""
    most, after = 0, 0
    while alive := [now for left, now in parts if left >= after]:
        most = max(most, sum(now + after for now in alive))
        after += 1
    return most


def random_parts(random: Random) -> list[Part]:
    longest = random.choice([3, 20, 200])
    return [(random.randint(1, longest), random.randint(1, 100)) for _ in range(random.randint(0, 9))]


@for_every_seed(100)
def test_the_peak_is_what_a_simulation_of_the_frees_reaches(seed: int) -> None:
    for case in range(20):
        parts = random_parts(Random(f"{seed}-{case}"))
        assert peak(parts) == simulated(parts)


def test_the_peak_by_hand() -> None:
    # Tokens left and now: (5, 10), (3, 20), (3, 1), (1, 30).  Held when the first to end has its last
    # token: 61 + 4 * 1 = 65; then 31 + 3 * 3 = 40; then 10 + 5.
    assert peak([(3, 20), (1, 30), (5, 10), (3, 1)]) == 65
    # Later ends may need more: 2 + 9 * 2 = 20 after 9 steps, but 7 + 3 * 1 = 10 after one.
    assert peak([(9, 1), (1, 5), (9, 1)]) == 20


def test_the_first_step_that_fits_is_the_first_one_tried_out() -> None:
    fitted = never = 0
    for case in range(4000):
        random = Random(case)
        parts = random_parts(random)
        left, now = random.randint(1, max([rest for rest, _ in parts], default=1)), random.randint(1, 50)
        most = peak([*parts, (left, now)])
        limit = random.randint(most - most // 5, most)  # it does not fit now
        end = min([rest for rest, _ in parts], default=0)  # the first of the others ends: an event
        tried = [s for s in range(1, end + 1) if later(parts, s, (left, now)) < limit]
        found = first_fit(parts, left, now, limit)
        assert found == tried[0] if tried else not 0 < found <= end
        fitted, never = fitted + bool(tried), never + (found == 0)
    assert fitted > 200 and never > 200


def later(parts: list[Part], steps: int, new: Part) -> int:
    """The peak with `new` after so many steps of the others."""
    return peak([*[(left - steps, now + steps) for left, now in parts], new])


# --- admission by the peak ------------------------------------------------------------


def small(total: int) -> tuple[Lightllm, Limits]:
    limits = Limits(block_size=4, num_kv_blocks=30, max_model_len=24, enable_prefix_caching=False)
    return Lightllm(max_total_tokens=total), limits


@pytest.mark.parametrize(("total", "joins"), [(52, True), (51, False)])
def test_a_request_joins_if_the_peak_stays_below_the_limit(total: int, joins: bool) -> None:
    # At 1.0 request 0 has 1 token out: now 8 + 1 + 1 = 10, left 1 + 15 - 1 - 1 + 6 = 20.  Request 1:
    # now 4 + 0 + 1 = 5, left 1 + 12 - 0 - 1 + 6 = 18.  Peak: max(10 + 20, 15 + 2 * 18) = 51.
    flags, limits = small(total)
    found = steps_of(flags, load((0.0, 8, 15), (0.5, 4, 12)), limits)
    assert (found[1] == {1: 4}) == joins


def test_a_request_that_does_not_fit_now_may_fit_while_nothing_happens() -> None:
    # The same two.  s steps on request 0 has now 10 + s, left 20 - s; from s = 3 on it ends first, and
    # the peak is 5 + 10 + s + 2 * (20 - s) = 55 - s, below 46 from s = 10 on: at 11.0.
    flags, limits = small(46)
    make = load((0.0, 8, 15), (0.5, 4, 12))
    assert steps_of(flags, make, limits)[:13] == [{0: 8}, *[{0: 1}] * 10, {1: 4}, {0: 1, 1: 1}]
    simulator = Simulator(flags, SECOND, limits)
    simulator.run(make())
    assert simulator.num_decisions < 8  # it asked to be woken at 11.0, not at every step


def test_a_lone_request_is_admitted_whatever_its_peak() -> None:
    # 8 + 16 tokens fill the cache; the peak would be 9 + 22 = 31.
    limits = Limits(block_size=4, num_kv_blocks=6, max_model_len=24, enable_prefix_caching=False)
    assert finished(served(Lightllm(), load((0.0, 8, 16), (0.0, 1, 1)), SECOND, limits)) == [16.0, 17.0]


def test_a_server_that_is_not_busy_expects_shorter_outputs_and_may_run_short() -> None:
    # 36 tokens.  Both may take 20: now 9, left 1 + 20 - 1 + 6 = 26, peak 18 + 2 * 26 = 70.  Not busy, with
    # a guess of 4: left 10, peak 38; with a guess of 1: left 7, peak 32.
    limits = Limits(block_size=4, num_kv_blocks=9, max_model_len=28, enable_prefix_caching=False)

    def make() -> list[Request]:
        return [Request(i, 0.0, 8, 20) for i in range(2)]

    assert steps_of(Lightllm(), make, limits)[0] == {0: 8}
    for guess, joins in ((4, False), (1, True)):
        hopeful = Lightllm(router_token_ratio=1.0, router_max_new_token_len=guess)
        assert (steps_of(hopeful, make, limits)[0] == {0: 8, 1: 8}) == joins


# --- prefill and decode -----------------------------------------------------------------


def test_chunks_of_prompts_run_alone_one_step_after_the_other() -> None:
    make = load((0.0, 4, 4), (0.5, 20, 2))
    found = steps_of(Lightllm(chunked_prefill_size=8), make)
    assert found == [{0: 4}, {1: 8}, {1: 8}, {1: 4}, {0: 1, 1: 1}, {0: 1}, {0: 1}]


def test_a_whole_prompt_costs_those_that_decode_a_pause() -> None:
    # 0.0    a prompt of 4: 1/4 + 4/16                 = 0.5      until 0.5
    # 0.5    the one of 20 alone: 1/4 + 20/16          = 1.5      until 2.0
    # 2.0    two decodes over 4 + 20: 1/2 + 24/64      = 0.875    until 2.875; 1 ends
    # 2.875  one over 5: 3/8 + 5/64                    = 0.453125 until 3.328125
    # then one over 6: 3/8 + 6/64                      = 0.46875  until 3.796875
    make = load((0.0, 4, 4), (0.5, 20, 2))
    assert finished(served(Lightllm(), make, COST, LIMITS)) == [3.796875, 2.875]


def test_without_chunks_a_prompt_runs_whole() -> None:
    make = load((0.0, 4, 4), (0.5, 20, 2))
    assert steps_of(Lightllm(chunked_prefill_size=8, disable_chunked_prefill=True), make)[1] == {1: 20}


def test_several_prompts_run_their_chunks_together() -> None:
    # The first chunks of both are 8 + 8 = 16 tokens, all that batch_max_tokens allows: 2 comes later.
    make = load((0.0, 20, 2), (0.0, 12, 2), (0.0, 4, 2))
    found = steps_of(Lightllm(chunked_prefill_size=8, batch_max_tokens=16), make)
    assert found[:3] == [{0: 8, 1: 8}, {0: 8, 1: 4, 2: 4}, {0: 4}]


def test_decodes_count_in_the_tokens_of_a_step() -> None:
    # One decode and a first chunk of 8 are 9 tokens; two decodes leave 7.
    for running, joins in ((1, True), (2, False)):
        make = load(*[(0.0, 4, 3)] * running, (0.5, 8, 1))
        found = steps_of(Lightllm(chunked_prefill_size=8, batch_max_tokens=9), make)
        assert (found[1] == {running: 8}) == joins


def test_without_aggressive_schedule_prompts_wait_for_decodes_after_a_prefill() -> None:
    make = load((0.0, 4, 20), (0.5, 4, 20), (1.5, 12, 3))
    patient = Lightllm(disable_aggressive_schedule=True, router_max_wait_tokens=3, chunked_prefill_size=8)
    found = steps_of(patient, make)
    assert found[:5] == [{0: 4}, *[{0: 1}] * 3, {1: 4, 2: 8}]
    assert found[5:9] == [*[{0: 1, 1: 1}] * 3, {2: 4}]
    assert steps_of(Lightllm(disable_aggressive_schedule=True), make)[:8] == [
        {0: 4}, *[{0: 1}] * 6, {1: 4, 2: 12}
    ]  # fmt: skip


def test_a_prompt_need_not_wait_for_decodes_where_nobody_decodes() -> None:
    make = load((0.0, 4, 1), (0.5, 4, 1))
    assert steps_of(Lightllm(disable_aggressive_schedule=True), make) == [{0: 4}, {1: 4}]


def test_a_shortage_takes_the_newest_which_comes_back_first() -> None:
    # 9 blocks of 4, prompts of 8.  Both decode from 1.0 on, take their third blocks at 1.0, their fourth
    # at 5.0, and at 9.0 one is left of the two that they need: 1 goes, and resumes when 0 has ended.
    # 2 has been too large beside the others all the time (17 tokens now), and is so beside 1.
    limits = Limits(block_size=4, num_kv_blocks=9, max_model_len=28, enable_prefix_caching=False)
    hopeful = Lightllm(router_token_ratio=1.0, router_max_new_token_len=1)
    make = load((0.0, 8, 12), (0.0, 8, 12), (3.0, 16, 1))
    found = steps_of(hopeful, make, limits)
    both = {0: 1, 1: 1}
    assert found == [{0: 8, 1: 8}, *[both] * 8, *[{0: 1}] * 3, {1: 17}, {1: 1}, {1: 1}, {2: 16}]
    assert [r.preemptions for r in served(hopeful, make, SECOND, limits)] == [0, 1, 0]


# --- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "limits", "why"),
    [
        (Lightllm(batch_max_tokens=4095), LIMITS, "batch_max_tokens 4095 is below chunked_prefill_size 4096"),
        (
            Lightllm(batch_max_tokens=63, disable_chunked_prefill=True),
            LIMITS,
            "lightllm: batch_max_tokens 63 is below max_model_len, without chunks, 64",
        ),
        (Lightllm(running_max_req_size=257), Limits(), "running_max_req_size 257 is over max_num_seqs 256"),
        (
            Lightllm(max_total_tokens=100),
            Limits(num_kv_blocks=6),
            "lightllm: max_total_tokens 100 is over the 96 tokens that 6 KV blocks of 16 hold",
        ),
        (Lightllm(max_total_tokens=64), Limits(num_kv_blocks=6), "cannot hold a request of 96 tokens"),
    ],
)
def test_what_lightllm_does_not_start_with_is_refused(flags: Lightllm, limits: Limits, why: str) -> None:
    with pytest.raises(LimitError, match=why):
        flags.begin(Batch(limits))
