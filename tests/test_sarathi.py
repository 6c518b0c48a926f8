"""Sarathi-Serve on small schedules worked out by hand, and the order of its paper's table 4."""

from __future__ import annotations

from typing import Any

import pytest

import batchwright as bw
from batchwright.cost import Constant, Linear
from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.policies import policy
from batchwright.policies.sarathi import Sarathi
from test_schedules import finished, load, scheduled, served, walk, walked

SECOND = Constant(1.0)  # every step
SCHEDULE = "enable_dynamic_chunking_schedule=true"


def test_decodes_come_first_and_chunks_get_what_they_leave() -> None:
    # Budget 8: 4 + 4 of 10, then a decode and the other 6, then decodes.
    make = load((0.0, 4, 4), (0.0, 10, 2))
    steps = [{0: 4, 1: 4}, {0: 1, 1: 6}, {0: 1, 1: 1}, {0: 1}]
    assert scheduled(walked(Sarathi(chunk_size=8), make, SECOND)) == steps


def test_running_prompts_come_before_new_ones() -> None:
    # 1 and 2 come at 0.5.  Step 2: 6 more of 0; step 3: its last 2, 3 of 1, 1 of 2.
    make = load((0.0, 14, 1), (0.5, 3, 1), (0.5, 9, 1))
    steps = [{0: 6}, {0: 6}, {0: 2, 1: 3, 2: 1}, {2: 6}, {2: 2}]
    assert scheduled(walked(Sarathi(chunk_size=6), make, SECOND)) == steps


def test_decodes_are_never_cut_by_the_budget() -> None:
    # Budget 3, seats for 8: 3 decode, so nobody joins until they end.
    make = load((0.0, 1, 3), (0.0, 1, 3), (0.0, 1, 3), (0.0, 1, 1))
    steps = [{0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1}, {0: 1, 1: 1, 2: 1}, {3: 1}]
    assert scheduled(walked(Sarathi(chunk_size=3), make, SECOND)) == steps


def test_the_blocks_of_a_whole_prompt_are_taken_at_once_and_grow_with_its_output() -> None:
    # 10 blocks of 4: 4 for the prompt of 16, from its first chunk on; a fifth when it decodes.
    limits = Limits(block_size=4, num_kv_blocks=10)
    simulator = walked(Sarathi(chunk_size=4), load((0.0, 16, 3)), SECOND, limits)
    assert [step.free_blocks_sched for step in walk(simulator)] == [6, 6, 6, 6, 5, 5]


@pytest.mark.parametrize("prompt", [36, 37])
def test_one_percent_of_the_blocks_stay_free(prompt: int) -> None:
    # 100 blocks of 4.  0 takes 90: 9 for 36 tokens and 1 to stay are free, but not 10 and 1.
    limits = Limits(block_size=4, num_kv_blocks=100)
    first, *_ = scheduled(walked(Sarathi(), load((0.0, 360, 2), (0.0, prompt, 1)), SECOND, limits))
    assert first == ({0: 360, 1: 36} if prompt == 36 else {0: 360})
    assert finished(served(Sarathi(), load((0.0, 398, 2)), SECOND, limits)) == [2.0]  # alone: all of them


def test_a_missing_block_preempts_the_newest_which_recomputes() -> None:
    # 5 blocks of 4, chunks of 4.  In step 2, 0 takes its second block and 1 the other three.  In step 6
    # both need one more, so 1 goes; its 13 tokens need 4, which are free when 0 has ended in step 7.
    limits = Limits(block_size=4, num_kv_blocks=5)
    make = load((0.0, 4, 7), (0.0, 12, 2))
    simulator = walked(Sarathi(chunk_size=4), make, SECOND, limits)
    resumed = [{1: 4}, {1: 4}, {1: 4}, {1: 1}]
    assert scheduled(simulator) == [{0: 4}, *[{0: 1, 1: 3}] * 4, {0: 1}, {0: 1}, *resumed]
    assert [step.preempted for step in walk(simulator)][4:7] == [[], [1], []]
    assert finished(served(Sarathi(chunk_size=4), make, SECOND, limits)) == [7.0, 11.0]


def test_seats_are_128_or_those_of_the_server() -> None:
    make = load(*[(0.0, 1, 2)] * 200)
    for limits, seats in ((Limits(max_num_seqs=256), 128), (Limits(max_num_seqs=100), 100)):
        assert len(scheduled(walked(Sarathi(), make, SECOND, limits))[0]) == seats
    assert len(scheduled(walked(Sarathi(max_num_seqs=150), make, SECOND))[0]) == 150


# --- the schedule of chunk sizes ----------------------------------------------------


def test_chunks_shrink_as_a_prompt_proceeds() -> None:
    # Sizes 96, 64, 32 in stages of 67 tokens: at 0, 96, and from 160 on, beyond the last stage, too.
    flags = "low_chunk_size=32, high_chunk_size=96, chunk_schedule_max_tokens=200, chunk_schedule_stages=3"
    shrinking = policy(f"sarathi({SCHEDULE}, {flags})")
    chunks = [step[0] for step in scheduled(walked(shrinking, load((0.0, 300, 1)), SECOND))]
    assert chunks == [96, 64, 32, 32, 32, 32, 12]


def test_a_young_prompt_may_use_what_an_old_one_leaves() -> None:
    # 0 is at 64 of 96 tokens and sees a budget of 32; 1 sees one of 64, so 32 are left for it.
    flags = "low_chunk_size=32, high_chunk_size=64, chunk_schedule_max_tokens=64, chunk_schedule_stages=2"
    make = load((0.0, 96, 1), (0.0, 40, 1))
    steps = scheduled(walked(policy(f"sarathi({SCHEDULE}, {flags})"), make, SECOND))
    assert steps == [{0: 64}, {0: 32, 1: 32}, {1: 8}]


@pytest.mark.parametrize(("stages", "sizes"), [(1, [32]), (2, [160, 32]), (4, [160, 128, 64, 32])])
def test_sizes_are_even_steps_in_whole_units(stages: int, sizes: list[int]) -> None:
    flags = Sarathi(
        enable_dynamic_chunking_schedule=True,
        low_chunk_size=32,
        high_chunk_size=160,
        chunk_schedule_max_tokens=100,
        chunk_schedule_stages=stages,
    )
    assert flags.sizes() == sizes


WHOLE: dict[str, Any] = {
    "enable_dynamic_chunking_schedule": True,
    "low_chunk_size": 32,
    "high_chunk_size": 64,
    "chunk_schedule_max_tokens": 100,
    "chunk_schedule_stages": 2,
}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"enable_dynamic_chunking_schedule": False}, "low_chunk_size is 32, but there is no schedule"),
        ({"chunk_schedule_stages": None}, "schedule needs chunk_schedule_stages; give it, too"),
        ({"low_chunk_size": 48}, "low_chunk_size is 48, but must be a multiple of 32"),
        ({"high_chunk_size": 80}, "high_chunk_size is 80, but must be a multiple of 32"),
        ({"low_chunk_size": 96}, "low_chunk_size 96 is over high_chunk_size 64; lower it"),
        ({"enable_chunked_prefill": False}, "a schedule of chunks needs enable_chunked_prefill"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(change: dict[str, Any], why: str) -> None:
    Sarathi(**WHOLE)
    with pytest.raises(InputError, match=f"^sarathi: .*{why}"):
        Sarathi(**{**WHOLE, **change})


# --- one half of it at a time ---------------------------------------------------------


def test_without_hybrid_steps_chunks_and_decodes_take_turns() -> None:
    # Chunks in steps 1, 3 and 5; then only decodes are left.
    turns = Sarathi(chunk_size=4, enable_hybrid_batching=False)
    make = load((0.0, 4, 4), (0.0, 8, 1))
    steps = [{0: 4}, {0: 1}, {1: 4}, {0: 1}, {1: 4}, {0: 1}]
    assert scheduled(walked(turns, make, SECOND)) == steps
    assert finished(served(turns, make, SECOND)) == [6.0, 5.0]


def test_a_turn_that_nobody_can_use_is_not_kept_free() -> None:
    # One seat: 1 waits for it, and 0 decodes in every step.  2 comes at 6.5, long after a turn.
    turns = Sarathi(chunk_size=4, max_num_seqs=1, enable_hybrid_batching=False)
    make = load((0.0, 4, 3), (0.0, 4, 2), (6.5, 4, 1))
    assert scheduled(walked(turns, make, SECOND)) == [{0: 4}, {0: 1}, {0: 1}, {1: 4}, {1: 1}, {2: 4}]
    assert finished(served(turns, make, SECOND)) == [3.0, 5.0, 7.5]


def test_without_chunks_a_prompt_runs_whole_beside_decodes() -> None:
    # Budget 8: 100 tokens run while one is left; then nobody joins in that step.
    hybrid = Sarathi(chunk_size=8, enable_chunked_prefill=False)
    make = load((0.0, 4, 3), (0.0, 100, 2), (0.0, 4, 1))
    steps = [{0: 4, 1: 100}, {0: 1, 1: 1, 2: 4}, {0: 1}]
    assert scheduled(walked(hybrid, make, SECOND)) == steps


# Table 4 of Agrawal et al., OSDI 2024 (Yi-34B, long prompts): hybrid steps alone have the low TTFT and a
# high TBT, chunks alone a low TBT and the high TTFT, both together are low in both.  Here a step takes
# 20 ms and 0.1 ms a prompt token, and prompts have 1,000 to 8,000 tokens.
TABLE_4 = {
    "hybrid": Sarathi(enable_chunked_prefill=False),
    "chunked": Sarathi(enable_hybrid_batching=False),
    "both": Sarathi(),
}
STEP_TIME = Linear(base=0.020, prefill=1e-4)


LONG_PROMPTS = "poisson(rate=1, n=400, prompt=uniform(1000, 8000), output=uniform(50, 250), seed={})"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_halves_together_have_the_low_tail_of_each_as_in_table_4(seed: int) -> None:
    runs = bw.compare(bw.Workload.open(LONG_PROMPTS.format(seed)), STEP_TIME, Limits(), TABLE_4)
    ttft = {name: run.summary.ttft.p99 for name, run in runs.items()}
    tbt = {name: run.summary.itl.p99 for name, run in runs.items()}
    assert ttft["hybrid"] < ttft["both"] < 0.8 * ttft["chunked"]
    assert tbt["both"] < tbt["chunked"] < 0.3 * tbt["hybrid"]
