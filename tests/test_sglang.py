"""SGLang's steps worked out by hand.

Seconds are powers of two, or one per step.  The estimate of memory counts tokens, so blocks have one.
"""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from batchwright import Batch
from batchwright.cost import Constant
from batchwright.errors import InputError, LimitError
from batchwright.limits import Limits
from batchwright.policies import policy
from batchwright.policies.sglang import Sglang, SglangRun
from batchwright.policies.sglang_order import Past
from batchwright.policies.sglang_state import Ratio
from batchwright.request import Request
from batchwright.simulator import Simulator
from test_schedules import NO_CACHE, Load, ends, finished, load, scheduled, served, walk, walked

SECOND = Constant(1.0)


def sync(**flags: Any) -> Sglang:
    return Sglang(disable_overlap_schedule=True, **flags)


def tokens(count: int, seats: int = 64) -> Limits:
    """A KV cache of so many tokens, in blocks of one."""
    return Limits(max_num_seqs=seats, block_size=1, num_kv_blocks=count, enable_prefix_caching=False)


def table(config: Sglang, make: Load, limits: Limits = NO_CACHE) -> list[dict[int, int]]:
    """Tokens by id of every step of one second; skipping, and auditing, give the same times."""
    served(config, make, SECOND, limits)
    return scheduled(walked(config, make, SECOND, limits))


# --- prefill first ------------------------------------------------------------


def test_prompts_have_a_step_of_their_own_in_which_decodes_wait() -> None:
    # 0.0     a prompt of 4: 1/4 + 4/16                        = 0.5       until 0.5
    # 0.5     a prompt of 8: 1/4 + 8/16                        = 0.75      until 1.25; 0 waits
    # 1.25    decodes over 4 and 8: 1/4 + 2/8 + 12/64          = 0.6875    until 1.9375; 1 ends
    # 1.9375  a decode over 5: 3/8 + 5/64                      = 0.453125  until 2.390625
    simulator = walked(sync(), load((0.0, 4, 3), (0.25, 8, 2)))
    assert scheduled(simulator) == [{0: 4}, {1: 8}, {0: 1, 1: 1}, {0: 1}]
    assert ends(simulator) == [0.5, 1.25, 1.9375, 2.390625]


def test_mixed_steps_have_both() -> None:
    make = load((0.0, 4, 3), (0.25, 8, 2))
    assert table(sync(enable_mixed_chunk=True), load((0.0, 4, 3), (0.25, 8, 2))) == [
        {0: 4}, {0: 1, 1: 8}, {0: 1, 1: 1}
    ]  # fmt: skip
    assert finished(served(sync(enable_mixed_chunk=True), make)) == [2.140625, 2.140625]


def test_a_long_prompt_is_cut_and_decodes_wait_for_all_of_it() -> None:
    # 8 tokens a step.  2 joins the last chunk of 1; 3 would be cut to 0 and waits.
    make = load((0.0, 4, 3), (0.5, 20, 1), (0.5, 4, 1), (0.5, 4, 1))
    assert table(sync(chunked_prefill_size=8), make) == [
        {0: 4}, {1: 8}, {1: 8}, {1: 4, 2: 4}, {3: 4}, {0: 1}, {0: 1}
    ]  # fmt: skip


def test_in_mixed_steps_decodes_take_part_in_the_budget_of_chunks() -> None:
    # 8 tokens a step, one of which is the decode of 0: 7, in whole blocks of 4, are 4; then 7 in any
    # number, as 1 goes on; then the rest.
    make = load((0.0, 4, 6), (0.5, 13, 2))
    assert table(sync(chunked_prefill_size=8, enable_mixed_chunk=True), make) == [
        {0: 4}, {0: 1, 1: 4}, {0: 1, 1: 7}, {0: 1, 1: 2}, {0: 1, 1: 1}, {0: 1}
    ]  # fmt: skip


def test_one_prompt_at_a_time_is_cut() -> None:
    make = load((0.0, 12, 1), (0.0, 12, 1))
    assert table(sync(chunked_prefill_size=8), make) == [{0: 8}, {0: 4, 1: 4}, {1: 8}]


def test_without_chunks_a_step_holds_max_prefill_tokens_or_one_prompt() -> None:
    # 6 tokens are 2 blocks, 8 tokens; the second must leave a token over.  20 may run, if first.
    make = load((0.0, 6, 1), (0.0, 6, 1), (0.0, 20, 1))
    whole = {"chunked_prefill_size": -1}
    assert table(sync(max_prefill_tokens=17, **whole), make) == [{0: 6, 1: 6}, {2: 20}]
    assert table(sync(max_prefill_tokens=16, **whole), make) == [{0: 6}, {1: 6}, {2: 20}]
    longer = Limits(block_size=4, max_model_len=64, enable_prefix_caching=False)
    assert table(sync(max_prefill_tokens=16, **whole), make, longer) == [{0: 6, 1: 6, 2: 20}]


def test_a_step_admits_as_many_as_it_is_told_to() -> None:
    assert table(sync(prefill_max_requests=2), load(*[(0.0, 4, 1)] * 3)) == [{0: 4, 1: 4}, {2: 4}]


def test_an_overlapped_end_is_seen_a_step_late() -> None:
    # One seat.  0 keeps it for a step that computes nothing and takes no time.
    make = load((0.0, 4, 2), (0.0, 4, 1))
    one = Limits(max_num_seqs=1)
    assert table(Sglang(), make, one) == [{0: 4}, {0: 1}, {}, {1: 4}, {}]
    assert table(sync(), make, one) == [{0: 4}, {0: 1}, {1: 4}]


# --- room -----------------------------------------------------------------------


@pytest.mark.parametrize(("most", "joins"), [(31, True), (32, False)])
def test_a_request_joins_if_all_it_may_need_fits_beside_a_share_of_what_others_need(
    most: int, joins: bool
) -> None:
    # 100 tokens: 90 are free, 0.7 * 39 = 27.3 of them kept for 0, so 62.7: 30 + 31 + 1 fit, 30 + 32 + 1 not.
    def make() -> list[Request]:
        return [Request(0, 0.0, 10, 40), Request(1, 0.5, 30, 5, max_tokens=most)]

    simulator = walked(sync(), make, SECOND, tokens(100))
    assert scheduled(simulator)[1] == ({1: 30} if joins else {0: 1})


def test_conservativeness_scales_the_share() -> None:
    # All of 39 is kept, up to a share of 1: 51 are free.
    make = load((0.0, 10, 40), (0.5, 30, 20))
    for conservativeness in (10 / 7, 100.0):
        config = sync(schedule_conservativeness=conservativeness)
        assert scheduled(walked(config, make, SECOND, tokens(100)))[1] == {0: 1}
    assert scheduled(walked(sync(schedule_conservativeness=0.0), make, SECOND, tokens(100)))[1] == {1: 30}


def test_those_who_join_in_one_step_count_in_full() -> None:
    # 40 tokens.  0 takes 10 and may take 10 more: 20 are left, over 10 + 8 + 1, but not over 10 + 9 + 1.
    assert table(sync(), load((0.0, 10, 10), (0.0, 10, 8)), tokens(40))[0] == {0: 10, 1: 10}
    assert table(sync(), load((0.0, 10, 10), (0.0, 10, 9)), tokens(40))[0] == {0: 10}


def test_no_more_than_4096_tokens_to_come_are_counted() -> None:
    def make() -> list[Request]:
        return [Request(0, 0.0, 10, 3, max_tokens=9_000), Request(1, 0.0, 10, 3, max_tokens=9_000)]

    # 0 takes 10 and 4096 more, so 10 + 4096 + 1 fit beside it if over 2 * 4106 + 1 tokens are there, and
    # 9,010 must be, for either to run to its end.
    assert scheduled(walked(sync(), make, SECOND, tokens(9_010)))[0] == {0: 10, 1: 10}


def test_the_share_falls_with_every_decode_step_to_its_floor() -> None:
    ratio = Ratio(1.0)
    assert ratio.at(0) == 0.7
    assert ratio.at(300) == pytest.approx(0.7 * (1 + 0.14) / 2)
    assert ratio.at(600) == pytest.approx(0.7 * 0.14) == ratio.at(10_000)
    ratio.reset(10_000)
    assert (ratio.at(10_000), Ratio(100).at(0), Ratio(0).at(600)) == (0.7, 1.0, 0.0)


class Looked:
    """A policy whose state is looked into."""

    def __init__(self, config: Sglang) -> None:
        self.config = config

    def begin(self, batch: Batch) -> SglangRun:
        run = self.config.begin(batch)
        assert isinstance(run, SglangRun)
        self.run = run
        return run


def share_after(config: Sglang, make: Load, limits: Limits, until: float) -> float:
    """The share of what others need that is kept, `until` seconds after the start."""
    looked = Looked(config)
    simulator = Simulator(looked, SECOND, limits)
    simulator.feed(make())
    simulator.advance(until)
    return looked.run.ratio.at(simulator.batch.clock)


@pytest.mark.parametrize("mixed", [False, True])
def test_neither_prefill_nor_mixed_steps_let_the_share_fall(mixed: bool) -> None:
    # A prompt, a prompt (beside a decode, if mixed), and two decode steps.
    config = sync(enable_mixed_chunk=mixed)
    make = load((0.0, 1, 9), (0.5, 1, 9))
    shares = [share_after(config, make, tokens(100), second) for second in (1.0, 2.0, 3.0, 4.0)]
    assert shares == [0.7 - fallen * Ratio(1.0).decay for fallen in (0, 0, 1, 2)]


# --- the full batch ---------------------------------------------------------------


def test_a_full_batch_decodes_once_more_after_somebody_has_left() -> None:
    # Two seats.  0 ends with step 2; 2 joins in step 4.
    assert table(sync(max_running_requests=2), load((0.0, 4, 3), (0.0, 4, 5), (0.0, 4, 1))) == [
        {0: 4, 1: 4}, {0: 1, 1: 1}, {0: 1, 1: 1}, {1: 1}, {2: 4}, {1: 1}
    ]  # fmt: skip


def test_who_leaves_with_a_prefill_step_makes_room_at_once() -> None:
    assert table(sync(max_running_requests=2), load((0.0, 4, 1), (0.0, 4, 3), (0.0, 4, 1))) == [
        {0: 4, 1: 4}, {2: 4}, {1: 1}, {1: 1}
    ]  # fmt: skip


def test_nobody_is_tried_before_somebody_has_left_even_if_it_would_fit() -> None:
    # 100 tokens.  1 finds no room beside 0; 2, which would, is not tried until 0 has left.
    make = load((0.0, 10, 4), (0.5, 80, 10), (1.5, 1, 1))
    steps = table(sync(), make, tokens(100))
    assert steps[:5] == [{0: 10}, {0: 1}, {0: 1}, {0: 1}, {1: 80, 2: 1}]


def test_while_a_prompt_is_cut_the_first_in_line_is_tried_with_every_chunk() -> None:
    # 120 tokens, 8 a step.  2 finds no room beside the second chunk of 1.  3, which has priority, does beside
    # the third, but no token of the chunk is left; so the batch is not full, and it joins in the next step.
    def make() -> list[Request]:
        shapes = ((0.0, 4, 5, 0), (0.5, 24, 2, 0), (1.5, 100, 1, 0), (2.5, 2, 1, 1))
        return [Request(i, *shape[:3], priority=shape[3]) for i, shape in enumerate(shapes)]

    config = sync(chunked_prefill_size=8, enable_priority_scheduling=True)
    steps = table(config, make, tokens(120))
    assert steps[:6] == [{0: 4}, {1: 8}, {1: 8}, {1: 8}, {3: 2}, {0: 1, 1: 1}]


def test_a_chunk_takes_no_more_than_what_the_others_leave() -> None:
    # Ten decode, with 40 tokens each, and 0.9 of what they lack is kept: of 420 tokens, 49 are left to the
    # prompt of 46.  A step gives it 10 beside ten decodes, and takes 1 of what is left: 5 for the last 6.
    make = load(*[(0.0, 1, 40)] * 10, (0.5, 46, 1))
    config = sync(chunked_prefill_size=20, enable_mixed_chunk=True, schedule_conservativeness=0.9 / 0.7)
    steps = table(config, make, tokens(420))
    assert [step.get(10, 0) for step in steps[:8]] == [0, 10, 10, 10, 10, 5, 1, 0]


def test_a_lone_request_is_admitted_whatever_the_estimate_says() -> None:
    # 30 + 10 tokens are all 40: 30 + 10 + 1 is never below 40.
    assert finished(served(sync(), load((0.0, 30, 10)), SECOND, tokens(40))) == [10.0]


# --- retraction -------------------------------------------------------------------


def optimist(**flags: Any) -> Sglang:
    """Keeps no room for those who run."""
    return sync(schedule_conservativeness=0.0, **flags)


def test_the_fewest_outputs_then_the_longest_prompt_is_retracted_and_recomputes() -> None:
    # 24 tokens.  Both have 8 outputs when step 9 begins and nothing is free; 1 has the longer prompt.
    # It waits until 0 has left, though 12 are free in step 10: room is kept for 0 now.
    make = load((0.0, 4, 10), (0.5, 6, 10))
    steps = table(optimist(), make, tokens(24))
    assert steps == [{0: 4}, {1: 6}, *[{0: 1, 1: 1}] * 7, {0: 1}, {0: 1}, {1: 14}, {1: 1}]
    assert preempted(optimist(), make, tokens(24)) == {9: [1]}


def test_a_retracted_request_finds_its_prompt_in_the_cache_but_not_its_outputs() -> None:
    # 7 blocks of 4.  Both need their fourth at once: 1 is retracted with a prompt of 4 and 9 outputs, 12 of
    # which tokens fill blocks.
    limits = Limits(block_size=4, num_kv_blocks=7)
    requests = [Request(i, 0.5 * i, 4, 12) for i in range(2)]
    simulator = Simulator(optimist(), SECOND, limits)
    simulator.run(requests)
    assert [r.preemptions for r in requests] == [0, 1]
    assert [r.cached for r in requests] == [0, 4]


def test_outputs_count_before_prompts() -> None:
    # 28 tokens.  1 comes later, so it has fewer outputs when nothing is free, though a shorter prompt.
    make = load((0.0, 9, 12), (2.5, 1, 12))
    assert preempted(optimist(), make, tokens(28)) == {12: [1]}


def preempted(config: Sglang, make: Load, limits: Limits) -> dict[int, list[int]]:
    """Who is retracted, by step."""
    steps = walk(walked(config, make, SECOND, limits))
    return {i: step.preempted for i, step in enumerate(steps) if step.preempted}


def test_a_retraction_sets_the_share_to_what_those_left_have_needed() -> None:
    # 60 tokens.  10 prompts and 2 * 25 outputs fill them: 1 is retracted in step 27, and 0 is left with 26
    # of at most 49 outputs.
    # The share does not fall with that step, but with the next.
    make = load((0.0, 4, 49), (0.5, 6, 30))
    config = sync(schedule_conservativeness=0.1)
    assert preempted(config, make, tokens(60)) == {27: [1]}
    assert share_after(config, make, tokens(60), 27.0) == Ratio(0.1).at(25)
    assert share_after(config, make, tokens(60), 28.0) == (26 + 20) / (49 + 1)
    assert share_after(config, make, tokens(60), 29.0) == (26 + 20) / (49 + 1) - Ratio(0.1).decay
    # With less than 11 left, 8 + 20 are more than all: all is kept.
    assert share_after(optimist(), load((0.0, 4, 10), (0.5, 6, 10)), tokens(24), 10.0) == 1.0


def test_a_retracted_request_queues_behind_those_that_wait() -> None:
    # As above, and 2 has come while nobody could join: it is first.
    make = load((0.0, 4, 10), (0.5, 6, 10), (3.5, 14, 9))
    steps = table(optimist(), make, tokens(24))
    assert steps[9:12] == [{0: 1}, {0: 1}, {2: 14}]


def test_a_retraction_makes_room_at_once() -> None:
    # As above, but 2 may need 4 + 5 + 1 tokens: 10 are free when it comes, and 12 after step 9, 1 kept for 0.
    make = load((0.0, 4, 10), (0.5, 6, 10), (3.5, 4, 5))
    assert table(optimist(), make, tokens(24))[8:12] == [{0: 1, 1: 1}, {0: 1}, {2: 4}, {0: 1, 2: 1}]


# --- orders -----------------------------------------------------------------------


CACHED = Limits(max_num_seqs=256, block_size=16)


def joined(config: Sglang, requests: list[Request], limits: Limits = CACHED) -> list[int]:
    """Ids in the order in which they joined."""
    Simulator(config, SECOND, limits).run(requests)
    return [r.id for r in sorted(requests, key=lambda r: r.seat)]


def keyed(id: int, arrival: float, first: int, blocks: int, prompt: int = 100, output: int = 1) -> Request:
    """A request that shares its first blocks with those of the same `first` key."""
    return Request(id, arrival, prompt, output, prefix=array("q", range(first, first + blocks)))


def test_the_longest_cached_prefix_joins_first() -> None:
    requests = [keyed(0, 0.0, 10, 3), keyed(1, 0.0, 20, 5)]
    requests += [Request(2, 0.5, 100, 1), keyed(3, 0.5, 10, 3), keyed(4, 0.5, 20, 5)]
    assert joined(Sglang(schedule_policy="lpm"), requests) == [0, 1, 4, 3, 2]


def test_of_those_that_share_an_uncached_prefix_all_but_one_come_last() -> None:
    # Two seats: 0 and 2 start; 1 and 3 find the prefix when they join.
    requests = [keyed(i, 0.0, 10, 3) if i != 2 else Request(2, 0.0, 100, 1) for i in range(4)]
    config = Sglang(schedule_policy="lpm", max_running_requests=2)
    assert joined(config, requests) == [0, 2, 1, 3]
    assert [r.cached for r in requests] == [0, 48, 0, 48]
    just = [keyed(i, 0.0, 10, 2) if i != 2 else Request(2, 0.0, 100, 1) for i in range(4)]
    assert joined(config, just) == [0, 2, 1, 3]  # 32 shared tokens
    short = [keyed(i, 0.0, 10, 1) if i != 2 else Request(2, 0.0, 100, 1) for i in range(4)]
    assert joined(config, short) == [0, 1, 3, 2]  # 16 are too few to wait for


@pytest.mark.parametrize(("cached", "order"), [(2, [0, 1, 3, 2]), (3, [0, 1, 2, 3])])
def test_who_finds_over_32_tokens_waits_for_nobody(cached: int, order: list[int]) -> None:
    # 1 and 2 share five blocks, `cached` of which are there when they come; 3 finds one block.
    requests = [keyed(0, 0.0, 10, cached), *[keyed(i, 0.5, 10, 5) for i in (1, 2)], keyed(3, 0.5, 10, 1)]
    assert joined(Sglang(schedule_policy="lpm"), requests) == order


def test_two_in_one_step_compute_the_same_prefix_twice() -> None:
    requests = [keyed(i, 0.0, 10, 3) for i in range(2)]
    joined(Sglang(), requests)
    assert [r.cached for r in requests] == [0, 0]


@pytest.mark.parametrize(("waiting", "first"), [(128, 128), (129, 1)])
def test_a_queue_of_over_128_is_not_sorted_by_prefix(waiting: int, first: int) -> None:
    requests = [keyed(0, 0.0, 10, 3)]
    requests += [Request(i, 0.5, 100, 1) for i in range(1, waiting)] + [keyed(waiting, 0.5, 10, 3)]
    config = Sglang(schedule_policy="lpm", max_running_requests=1)
    assert joined(config, requests)[1] == first


def test_without_a_prefix_cache_the_first_to_come_is_first() -> None:
    requests = [keyed(0, 0.0, 10, 3), Request(1, 0.5, 100, 1), keyed(2, 0.5, 10, 3)]
    limits = Limits(enable_prefix_caching=False)
    for order in ("lpm", "dfs-weight", "hrrn"):
        assert joined(Sglang(schedule_policy=order), [keyed(0, 0.0, 10, 3), *new(requests[1:])], limits) == [
            0, 1, 2
        ]  # fmt: skip
    with pytest.raises(LimitError, match="shortest-prefill-first needs the prefix cache"):
        Sglang(schedule_policy="shortest-prefill-first").begin(Batch(limits))


def new(requests: list[Request]) -> list[Request]:
    return [Request(r.id, r.arrival, r.prompt, r.true_output, prefix=r.prefix) for r in requests]


def test_depth_first_goes_where_most_wait() -> None:
    # Below the shared blocks 1 to 3, two wait where 30 goes on and one where 20 does.
    def below(id: int, arrival: float, last: int) -> Request:
        return Request(id, arrival, 100, 1, prefix=array("q", [1, 2, 3, last]))

    requests = [below(0, 0.0, 20), below(1, 0.0, 30), keyed(2, 0.0, 40, 3)]
    requests += [Request(3, 0.5, 100, 1), keyed(4, 0.5, 40, 3), keyed(5, 0.5, 1, 3)]
    requests += [below(6, 0.5, 20), below(7, 0.5, 30), below(8, 0.5, 30)]
    assert joined(Sglang(schedule_policy="dfs-weight"), requests)[3:] == [7, 8, 6, 5, 4, 3]


def test_hrrn_weighs_what_was_computed_since_it_came_by_what_it_lacks() -> None:
    # One seat.  1 to 3 come together, and 20 tokens later 3 has waited for 2 of its own, 2 for 1/4.
    prompts = (10, 20, 80, 10)
    requests = [Request(i, 0.5 if i else 0.0, prompt, 1) for i, prompt in enumerate(prompts)]
    assert joined(Sglang(schedule_policy="hrrn", max_running_requests=1), requests) == [0, 1, 3, 2]


def test_shortest_prefill_first_counts_what_is_not_cached() -> None:
    requests = [keyed(0, 0.0, 10, 3), Request(1, 0.5, 60, 1), keyed(2, 0.5, 10, 3), Request(3, 0.5, 50, 1)]
    assert joined(Sglang(schedule_policy="shortest-prefill-first"), requests) == [0, 3, 2, 1]


def test_lof_and_priorities() -> None:
    def some() -> list[Request]:
        shapes = ((0, 3), (1, 5), (1, 9), (0, 7))
        return [Request(i, 0.0, 4, 1, max_tokens=most, priority=p) for i, (p, most) in enumerate(shapes)]

    assert joined(Sglang(schedule_policy="lof"), some()) == [2, 3, 1, 0]
    high = Sglang(enable_priority_scheduling=True)
    assert joined(high, some()) == [1, 2, 0, 3]
    low = Sglang(enable_priority_scheduling=True, schedule_low_priority_values_first=True)
    assert joined(low, some()) == [0, 3, 1, 2]
    both = Sglang(enable_priority_scheduling=True, schedule_policy="lof")
    assert joined(both, some()) == [2, 1, 3, 0]


def test_random_is_shuffled_anew_for_every_step_and_the_same_for_a_seed() -> None:
    def order(seed: int) -> list[int]:
        config = Sglang(schedule_policy="random", random_seed=seed, max_running_requests=1)
        return joined(config, [Request(i, 0.0, 4, 1) for i in range(20)])

    assert order(0) == order(0) != order(1)
    assert sorted(order(0)) == list(range(20)) != order(0)


def test_the_past_sums_what_was_computed_since_a_step() -> None:
    past = Past(0)
    past.note(3, 10)
    past.note(7, 5)
    assert [past.since(step) for step in (0, 3, 4, 7, 8)] == [15, 15, 5, 5, 0]


def test_lpm_finds_more_in_a_small_cache_than_fcfs() -> None:
    # Four prefixes of 64 tokens, asked for in turn; with 8 blocks only one of them stays.
    def cached(config: Sglang, blocks: int) -> int:
        requests = [keyed(i, 0.0, 100 * (i % 4), 4, prompt=80, output=4) for i in range(24)]
        Simulator(config, SECOND, Limits(block_size=16, num_kv_blocks=blocks)).run(requests)
        return sum(r.cached for r in requests)

    assert cached(Sglang(), 8) == 0
    assert cached(Sglang(schedule_policy="lpm"), 8) == cached(policy("sglang@0.4"), 8) == 20 * 64


# --- the prefill delayer ------------------------------------------------------------


def delayed(**flags: Any) -> Sglang:
    return Sglang(enable_prefill_delayer=True, prefill_delayer_queue_min_ratio=1.0, **flags)


def test_prompts_wait_until_as_many_wait_as_a_step_has_had() -> None:
    # 0 and 1 join together, so 2, which comes at 1.5, waits for 3, which comes at 4.5.
    make = load((0.0, 4, 9), (0.0, 4, 9), (1.5, 4, 1), (4.5, 4, 1))
    assert table(delayed(), make)[:6] == [{0: 4, 1: 4}, *[{0: 1, 1: 1}] * 4, {2: 4, 3: 4}]


def test_no_longer_than_they_are_told_to() -> None:
    # 2 is held back at 2.0 for 3 seconds.
    make = load((0.0, 4, 9), (0.0, 4, 9), (1.5, 4, 1))
    assert table(delayed(prefill_delayer_max_delay_ms=3000.0), make)[4:6] == [{0: 1, 1: 1}, {2: 4}]
    assert table(delayed(), make)[6:8] == [{0: 1, 1: 1}, {2: 4}]  # 5 seconds
    assert table(Sglang(), make)[2] == {2: 4}


def test_without_a_ratio_they_wait_for_as_many_seats_as_a_step_has_filled() -> None:
    # Three seats, two filled by one step: 2 and 3 wait until 0 has left, at 4.0, seen at 5.0.
    make = load((0.0, 4, 4), (0.0, 4, 9), (0.5, 4, 2), (0.5, 4, 2))
    config = Sglang(enable_prefill_delayer=True, max_running_requests=3)
    steps = table(config, make)
    assert steps[:6] == [{0: 4, 1: 4}, *[{0: 1, 1: 1}] * 3, {1: 1}, {2: 4, 3: 4}]


# --- settings -----------------------------------------------------------------------


def test_the_older_version_prefers_cached_prefixes() -> None:
    assert (Sglang().order, policy("sglang@0.4").order) == ("fcfs", "lpm")
    assert policy("sglang@0.4(schedule_policy=dfs-weight)").order == "dfs-weight"
    assert policy("sglang(schedule-policy='shortest-prefill-first')").order == "shortest-prefill-first"


WRONG = {
    "sglang@0.4(schedule_policy=hrrn)": "sglang@0.4 has no schedule_policy hrrn",
    "sglang@0.4(prefill_max_requests=3)": "sglang@0.4 has no flag prefill_max_requests",
    "sglang(enable_mixed_chunk=true, chunked_prefill_size=-1)": "enable_mixed_chunk needs chunks",
    "sglang@0.5(enable_priority_scheduling=true, schedule_policy=lpm)": "needs schedule_policy fcfs or lof",
    "sglang(schedule_low_priority_values_first=true)": "needs enable_priority_scheduling",
    "sglang(enable_prefill_delayer=true, disable_overlap_schedule=true)": "needs overlap",
    "sglang(prefill_delayer_queue_min_ratio=0.1)": "needs enable_prefill_delayer",
    "sglang(schedule_policy=a-b)": "schedule_policy 'a-b' is not known; known: dfs-weight, fcfs, hrrn",
    "sglang(schedule_policy=a-1)": "'a - 1' is not a number, word or list",
}


@pytest.mark.parametrize("text", WRONG)
def test_flags_that_do_not_go_together_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        policy(text)
    assert WRONG[text] in str(caught.value)


def test_chunks_are_whole_blocks() -> None:
    with pytest.raises(LimitError, match="chunked_prefill_size 8192 is not a multiple of block_size 48"):
        Sglang().begin(Batch(Limits(block_size=48)))
    Sglang(chunked_prefill_size=-1).begin(Batch(Limits(block_size=48)))
