"""Small schedules worked out by hand, with exact times.

Seconds are powers of two, so sums of them are exact.  The cost, if a test says no other:

    1/4 + 1/16 per prompt token + 1/8 per row + 1/64 per KV token that decodes read
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from batchwright.cost import Constant, Linear
from batchwright.history import EngineStep, steps
from batchwright.limits import Limits
from batchwright.policies import Dynamic, Orca, Static, Vllm
from batchwright.request import Request
from batchwright.simulator import Simulator

COST = Linear(base=2**-2, prefill=2**-4, decode=2**-3, context=2**-6)
NO_CACHE = Limits(block_size=4, enable_prefix_caching=False)

Load = Callable[[], list[Request]]
Shape = tuple[float, int, int]  # arrival, prompt, output


def load(*shapes: Shape) -> Load:
    """A function that makes new requests; ids count from 0."""
    return lambda: [Request(i, *shape) for i, shape in enumerate(shapes)]


def served(policy: Any, make: Load, cost: Any = COST, limits: Limits = NO_CACHE) -> list[Request]:
    """The requests of `make` after a run; walking every step and auditing give the same times."""
    runs = []
    for options in ({}, {"skip": False}, {"audit": True}):
        requests = make()
        Simulator(policy, cost, limits, **options).run(requests)
        runs.append(requests)
    first, *others = [[(r.first_token, r.finished) for r in requests] for requests in runs]
    assert all(times == first for times in others)
    return runs[0]


def walked(policy: Any, make: Load, cost: Any = COST, limits: Limits = NO_CACHE) -> Simulator:
    """The same run, with a stretch for every step."""
    simulator = Simulator(policy, cost, limits, skip=False)
    simulator.run(make())
    return simulator


def walk(simulator: Simulator, pads: bool = False) -> list[EngineStep]:
    """Every step, as the engine ran it."""
    blocks = simulator.batch.blocks
    return steps(simulator.log, num_blocks=blocks.size, block_size=blocks.block_size, pads=pads)


def scheduled(simulator: Simulator) -> list[dict[int, int]]:
    """Tokens by id of every step."""
    return [dict(step.scheduled) for step in walk(simulator)]


def ends(simulator: Simulator) -> list[float]:
    return list(simulator.log.seconds("times"))


def finished(requests: Iterable[Request]) -> list[float]:
    return [r.finished for r in requests]


def first_tokens(requests: Iterable[Request]) -> list[float]:
    return [r.first_token for r in requests]


# --- static ------------------------------------------------------------------

# Requests 0 and 1 wait for each other until 1.0; 2 and 3 come while they run.
TWO_BATCHES = load((0.0, 4, 2), (1.0, 8, 3), (2.0, 2, 1), (2.5, 2, 1))


def test_a_padded_batch_pays_for_the_longest_prompt_and_the_longest_output() -> None:
    # 1.0      both prompts cost 8 tokens: 1/4 + 16/16            = 1.25     until 2.25
    # 2.25     two decodes over 4 + 8 tokens: 1/4 + 2/8 + 12/64   = 0.6875   until 2.9375; 0 has ended
    # 2.9375   one decode, one row for nothing, 5 + 9: 1/2 + 14/64 = 0.71875 until 3.65625
    # 3.65625  the next batch, at once: 1/4 + 4/16                 = 0.5     until 4.15625
    simulator = walked(Static(2, streamed=True), TWO_BATCHES)
    assert ends(simulator) == [2.25, 2.9375, 3.65625, 4.15625]


def test_clients_see_nothing_before_the_batch_ends_unless_it_is_streamed() -> None:
    whole = served(Static(2), TWO_BATCHES)
    assert first_tokens(whole) == finished(whole) == [3.65625, 3.65625, 4.15625, 4.15625]
    streamed = served(Static(2, streamed=True), TWO_BATCHES)
    assert first_tokens(streamed) == [2.25, 2.25, 4.15625, 4.15625]
    assert finished(streamed) == [2.9375, 3.65625, 4.15625, 4.15625]


def test_without_padding_each_prompt_costs_its_own_and_ended_rows_cost_nothing() -> None:
    # 1.0     1/4 + 12/16             = 1.0       until 2.0
    # 2.0     1/2 + 12/64             = 0.6875    until 2.6875; 0 has ended
    # 2.6875  one decode over 9: 3/8 + 9/64 = 0.515625 until 3.203125
    # then 2 and 3: 0.5                           until 3.703125
    simulator = walked(Static(2, padded=False), TWO_BATCHES)
    assert ends(simulator) == [2.0, 2.6875, 3.203125, 3.703125]
    assert finished(served(Static(2, padded=False), TWO_BATCHES)) == [3.203125] * 2 + [3.703125] * 2


def test_padding_attends_like_prompt_tokens() -> None:
    # Each row is a chunk of 8 after nothing: 2 * 8 * (0 + 8/2) = 64 pairs, 64/64 = 1.0 beside the base.
    cost = Linear(base=0.25, prefill_attention=2**-6)
    assert finished(served(Static(2), load((0.0, 4, 1), (0.0, 8, 1)), cost)) == [1.25, 1.25]


@pytest.mark.parametrize("padded", [True, False])
def test_an_ended_request_keeps_its_blocks_until_its_batch_ends(padded: bool) -> None:
    # Worst cases: 4 + 2 tokens are 2 blocks, 8 + 3 are 3; 16 - 5 are free until both leave.
    limits = Limits(block_size=4, num_kv_blocks=16)
    simulator = walked(Static(2, padded=padded), load((0.0, 4, 2), (0.0, 8, 3)), limits=limits)
    expanded = walk(simulator, pads=padded)
    assert [step.free_blocks_sched for step in expanded] == [11, 11, 11]
    assert simulator.batch.blocks.free == 16
    assert [step.padded_rows for step in expanded] == [0, 0, 1 if padded else 0]


def test_a_static_batch_is_as_large_as_the_kv_cache_allows() -> None:
    # 4 blocks of 4: request 0 needs 2 of them, 1 needs 3, so 1 waits for the end of 0, and 2 behind it
    # though it would have fitted.  Steps of 1 s: 0 in 2 of them, then 1 alone in 3, then 2.
    limits = Limits(block_size=4, num_kv_blocks=4)
    make = load((0.0, 4, 2), (0.0, 8, 3), (0.0, 1, 1))
    assert finished(served(Static(3), make, Constant(1.0), limits)) == [2.0, 5.0, 5.0]
    assert scheduled(walked(Static(3), make, Constant(1.0), limits))[2] == {1: 8, 2: 1}


def test_the_worst_case_is_what_the_client_allows_not_what_it_gets() -> None:
    # 4 + 12 tokens are all 4 blocks, so the two run one after the other.
    limits = Limits(block_size=4, num_kv_blocks=4)

    def make() -> list[Request]:
        return [Request(i, 0.0, 4, 2, max_tokens=12) for i in range(2)]

    assert finished(served(Static(2), make, Constant(1.0), limits)) == [2.0, 4.0]


def test_a_part_of_a_batch_starts_when_nobody_else_can_come() -> None:
    only = Request(0, 0.5, 4, 1)
    simulator = Simulator(Static(2), Constant(1.0))
    simulator.submit(only)
    simulator.advance(5.0)
    assert simulator.batch.num_waiting == 1
    simulator.drain()
    simulator.advance()
    assert only.finished == 6.0
    # With a source that has an end, the last one's arrival is known to be the last.
    assert finished(served(Static(2), load((0.5, 4, 1)), Constant(1.0))) == [1.5]


def test_a_waiting_batch_starts_at_the_instant_the_one_before_ends() -> None:
    make = load((0.0, 4, 3), (0.0, 4, 1), (0.5, 4, 1), (0.5, 4, 1), (3.5, 1, 1), (9.0, 1, 1))
    # 0 and 1 end at 3.0, when 2 and 3 start; 4 waits for 5.
    assert finished(served(Static(2), make, Constant(1.0))) == [3.0, 3.0, 4.0, 4.0, 10.0, 10.0]


# --- dynamic -----------------------------------------------------------------


def test_a_window_ends_at_the_stored_sum_of_arrival_and_window() -> None:
    # 0.1 + 0.2 is 0.30000000000000004: who comes by then joins, at 0.3 and at that very instant.
    end = 0.1 + 0.2
    assert end > 0.3
    make = load((0.1, 4, 1), (0.3, 4, 1), (end, 4, 1), (0.3125, 4, 1))
    simulator = walked(Dynamic(8, window=0.2), make, Constant(1.0))
    assert scheduled(simulator) == [{0: 4, 1: 4, 2: 4}, {3: 4}]
    assert finished(served(Dynamic(8, window=0.2), make, Constant(1.0)))[:3] == [end + 1.0] * 3


@pytest.mark.parametrize("arrival", [0.1, 0.7, 1.1, 2.3, 1e6 + 0.1])
@pytest.mark.parametrize("window", [0.1, 0.2, 0.3, 1e-9])
def test_no_rounding_moves_the_end_of_a_window(arrival: float, window: float) -> None:
    simulator = walked(Dynamic(8, window=window), load((arrival, 4, 1)), Constant(1.0))
    assert simulator.log.jump_times[-1] == arrival + window
    assert ends(simulator) == [arrival + window + 1.0]


def test_a_full_batch_starts_at_once() -> None:
    make = load((0.0, 4, 1), (0.125, 4, 1), (0.25, 4, 1))
    # 0 and 1 at 0.125 until 1.125; the window of 2 ends at 2.25.
    assert finished(served(Dynamic(2, window=2.0), make, Constant(1.0))) == [1.125, 1.125, 3.25]


def test_a_preferred_size_starts_before_the_window_ends() -> None:
    make = load((0.0, 4, 1), (0.125, 4, 1), (0.25, 4, 1))
    policy = Dynamic(8, window=2.0, preferred_sizes=(2, 4))
    assert finished(served(policy, make, Constant(1.0))) == [1.125, 1.125, 3.25]


def test_the_greatest_preferred_size_that_waits_starts() -> None:
    # Five wait at 0: 4 of them start.  The fifth waits for the end of its window at 2.0.
    make = load(*[(0.0, 4, 1)] * 5)
    policy = Dynamic(8, window=2.0, preferred_sizes=(2, 4))
    assert finished(served(policy, make, Constant(1.0))) == [1.0] * 4 + [3.0]


def test_after_the_window_all_start_whatever_sizes_are_preferred() -> None:
    # Three come while 0 and 1 run until 4.0; their windows have ended by then.
    make = load((0.0, 4, 4), (0.0, 4, 4), (0.5, 4, 1), (0.5, 4, 1), (0.5, 4, 1))
    policy = Dynamic(8, window=1.0, preferred_sizes=(2,))
    assert finished(served(policy, make, Constant(1.0))) == [4.0, 4.0, 5.0, 5.0, 5.0]


def test_at_the_very_end_of_the_window_all_start() -> None:
    # The server is free again at 4.0, when the windows of three end, too.
    make = load((0.0, 4, 4), (0.0, 4, 4), (0.5, 4, 1), (0.5, 4, 1), (0.5, 4, 1))
    policy = Dynamic(8, window=3.5, preferred_sizes=(2,))
    assert finished(served(policy, make, Constant(1.0))) == [4.0, 4.0, 5.0, 5.0, 5.0]


def test_no_batch_is_over_its_maximum() -> None:
    make = load((0.0, 4, 4), *[(0.5, 4, 1)] * 5)
    policy = Dynamic(2, window=0.0)
    assert finished(served(policy, make, Constant(1.0))) == [4.0, 5.0, 5.0, 6.0, 6.0, 7.0]


def test_nobody_joins_a_dynamic_batch_which_only_shrinks() -> None:
    # 0.0     prompts of 4 + 4: 1/4 + 8/16 = 0.75            until 0.75; 0 leaves with its only token
    # 0.75    one decode over 4: 3/8 + 4/64 = 0.4375         until 1.1875
    # 1.1875  one decode over 5: 3/8 + 5/64 = 0.453125       until 1.640625
    # then 2, which came at 0.5: 1/4 + 2/16 = 0.375          until 2.015625
    make = load((0.0, 4, 1), (0.0, 4, 3), (0.5, 2, 1))
    assert finished(served(Dynamic(2, window=0.0), make)) == [0.75, 1.640625, 2.015625]
    assert scheduled(walked(Dynamic(2, window=0.0), make)) == [{0: 4, 1: 4}, {1: 1}, {1: 1}, {2: 2}]


def test_without_a_window_a_batch_takes_who_is_there() -> None:
    make = load((0.5, 4, 2), (0.75, 4, 1), (1.0, 4, 1), (9.0, 4, 1))
    assert finished(served(Dynamic(8, window=0.0), make, Constant(1.0))) == [2.5, 3.5, 3.5, 10.0]


def test_a_dynamic_batch_is_as_large_as_the_kv_cache_allows() -> None:
    limits = Limits(block_size=4, num_kv_blocks=4)
    make = load((0.0, 4, 2), (0.0, 8, 3), (0.0, 1, 1))
    assert finished(served(Dynamic(3, window=0.0), make, Constant(1.0), limits)) == [2.0, 5.0, 3.0]


# --- orca --------------------------------------------------------------------


def test_an_orca_slot_reserves_the_longest_request() -> None:
    # 11 blocks of 4 hold two requests of 16 tokens, however short they are: 2 joins when 0 has left.
    limits = Limits(block_size=4, num_kv_blocks=11, max_model_len=16)
    make = load((0.0, 1, 2), (0.0, 1, 4), (0.0, 1, 1))
    assert finished(served(Orca(8), make, Constant(1.0), limits)) == [2.0, 4.0, 3.0]
    simulator = walked(Orca(8), make, Constant(1.0), limits)
    assert [step.free_blocks_sched for step in walk(simulator)] == [3, 3, 3, 7]


def test_orca_runs_whole_prompts_beside_decodes() -> None:
    # 0.0    a prompt of 4: 1/4 + 4/16                                 = 0.5      until 0.5
    # 0.5    a prompt of 8 and a decode over 4: 1/4 + 8/16 + 1/8 + 4/64 = 0.9375  until 1.4375
    # 1.4375 decodes over 5 and 8: 1/2 + 13/64                          = 0.703125 until 2.140625
    make = load((0.0, 4, 3), (0.25, 8, 2))
    assert ends(walked(Orca(4), make)) == [0.5, 1.4375, 2.140625]
    assert first_tokens(served(Orca(4), make)) == [0.5, 1.4375]
    assert finished(served(Orca(4), make)) == [2.140625, 2.140625]


def test_orca_has_no_token_budget() -> None:
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=8)
    assert scheduled(walked(Orca(), load(*[(0.0, 100, 1)] * 3), limits=limits)) == [{0: 100, 1: 100, 2: 100}]


def test_orca_has_as_many_slots_as_the_server_has_seats() -> None:
    limits = Limits(max_num_seqs=2)
    assert finished(served(Orca(), load(*[(0.0, 4, 2)] * 3), Constant(1.0), limits)) == [2.0, 2.0, 4.0]
    assert finished(served(Orca(1), load(*[(0.0, 4, 2)] * 2), Constant(1.0), limits)) == [2.0, 4.0]


# --- vllm --------------------------------------------------------------------

SYNC = Vllm(async_scheduling=False)


def test_vllm_cuts_a_prompt_to_what_is_left_of_the_budget() -> None:
    # Budget 8.  Without context cost:
    # 0.0   chunks of 4 and 4: 1/4 + 8/16         = 0.75  until 0.75
    # 0.75  a decode and 6 more: 1/4 + 6/16 + 1/8 = 0.75  until 1.5
    # 1.5   two decodes                           = 0.5   until 2.0; 1 ends
    # 2.0   one                                   = 0.375 until 2.375
    cost = Linear(base=2**-2, prefill=2**-4, decode=2**-3)
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=8)
    make = load((0.0, 4, 4), (0.0, 10, 2))
    simulator = walked(SYNC, make, cost, limits)
    assert scheduled(simulator) == [{0: 4, 1: 4}, {0: 1, 1: 6}, {0: 1, 1: 1}, {0: 1}]
    assert ends(simulator) == [0.75, 1.5, 2.0, 2.375]
    assert first_tokens(served(SYNC, make, cost, limits)) == [0.75, 1.5]


def test_a_chunk_reads_what_its_prompt_has_computed() -> None:
    # Budget 4, prompt 6: chunks of 4 and 2; the second reads 4 tokens: 1/4 + 2/16 + 4/64 = 0.4375.
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=4)
    assert ends(walked(SYNC, load((0.0, 6, 1)), COST, limits)) == [0.5, 0.9375]


def test_nobody_overtakes_the_head_of_the_line() -> None:
    # 4 blocks of 4.  0 has 2, then 3 of them; 1 needs 3, so 2, which needs 1, waits behind it.
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=16, block_size=4, num_kv_blocks=4)
    make = load((0.0, 8, 2), (0.0, 12, 1), (0.0, 4, 1))
    assert scheduled(walked(SYNC, make, Constant(1.0), limits)) == [{0: 8}, {0: 1}, {1: 12, 2: 4}]


@pytest.mark.parametrize(("caching", "resumed"), [(False, 9), (True, 5)])
def test_a_shortage_preempts_the_newest_which_recomputes(caching: bool, resumed: int) -> None:
    # 4 blocks of 4.  Both decode from 4 tokens on and fill 2 blocks each by step 6, in which 0 needs a
    # fifth: 1 gives back 2, and nobody is admitted.  In step 7 it recomputes 4 + 5 tokens, or 5 if
    # its first block, which was the last one freed, is still there.
    limits = Limits(block_size=4, num_kv_blocks=4, enable_prefix_caching=caching)
    make = load((0.0, 4, 6), (0.0, 4, 6))
    simulator = walked(SYNC, make, Constant(1.0), limits)
    assert scheduled(simulator) == [{0: 4, 1: 4}, *[{0: 1, 1: 1}] * 4, {0: 1}, {1: resumed}]
    assert [step.preempted for step in walk(simulator)] == [[], [], [], [], [], [1], []]
    assert walk(simulator)[6].admitted == [(1, 9 - resumed)]
    requests = served(SYNC, make, Constant(1.0), limits)
    assert finished(requests) == [6.0, 7.0]
    assert first_tokens(requests) == [1.0, 1.0]
    assert [r.preemptions for r in requests] == [0, 1]


def test_an_asynchronous_end_is_seen_a_step_late() -> None:
    # One seat.  0 gets its tokens in steps 1 and 2 and keeps the seat in step 3, which computes
    # nothing and so takes no time.
    limits = Limits(max_num_seqs=1)
    make = load((0.0, 4, 2), (0.0, 4, 1))
    late, early = Vllm(), SYNC
    assert scheduled(walked(late, make, Constant(1.0), limits)) == [{0: 4}, {0: 1}, {}, {1: 4}, {}]
    assert scheduled(walked(early, make, Constant(1.0), limits)) == [{0: 4}, {0: 1}, {1: 4}]
    assert finished(served(late, make, Constant(1.0), limits)) == [2.0, 3.0]
    assert finished(served(late, make, Constant(1.0, empty=1.0), limits)) == [2.0, 4.0]
    assert finished(served(early, make, Constant(1.0), limits)) == [2.0, 3.0]


def test_a_shared_prefix_is_computed_once() -> None:
    # 0 computes 8 tokens, which 1 finds when it comes; its last token is computed anew.
    keys = array("q", [7, 8])

    def make() -> list[Request]:
        return [Request(0, 0.0, 9, 3, prefix=keys), Request(1, 0.5, 10, 1, prefix=keys)]

    simulator = walked(SYNC, make, Constant(1.0), Limits(block_size=4))
    assert scheduled(simulator) == [{0: 9}, {0: 1, 1: 2}, {0: 1}]
    assert walk(simulator)[1].admitted == [(1, 8)]
