"""TensorRT-LLM on small schedules worked out by hand: capacity first, then tokens."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from batchwright.batch import Batch
from batchwright.cost import Constant
from batchwright.errors import LimitError
from batchwright.limits import Limits
from batchwright.policies.tensorrt_llm import TensorrtLlm, equal_progress, first_come, whole
from batchwright.request import Request
from test_schedules import NO_CACHE, finished, load, scheduled, served, walk, walked

SECOND = Constant(1.0)  # every step
FOUR_BLOCKS = Limits(block_size=4, num_kv_blocks=4, enable_prefix_caching=False)


def steps_of(
    limits: Limits = NO_CACHE, /, *shapes: tuple[float, int, int], **flags: Any
) -> list[dict[int, int]]:
    """The schedule, which is the same skipped, walked and audited."""
    make, policy = load(*shapes), TensorrtLlm(**flags)
    served(policy, make, SECOND, limits)
    return scheduled(walked(policy, make, SECOND, limits))


# --- capacity -----------------------------------------------------------------------

# 4 blocks of 4.  0 has 4 + 4 tokens, 1 has 8 + 6, 2 has 1 + 1.
THREE = ((0.0, 4, 4), (0.0, 8, 6), (0.0, 1, 1))


def test_without_eviction_a_request_has_all_its_blocks_or_waits() -> None:
    # 0 sets 2 blocks aside and 1 needs 4, so it waits for the end of 0, and 2 behind it.
    steps = steps_of(FOUR_BLOCKS, *THREE)
    assert steps == [{0: 4}, *[{0: 1}] * 3, {1: 8}, *[{1: 1}] * 5, {2: 1}]


def test_max_utilization_needs_the_prompts_only_and_pauses_the_newest() -> None:
    # All prompts fit: 1 + 2 + 1.  2 ends and frees one; in step 2 both others need one, so 1 is paused.
    # Its 9 tokens need 3 blocks, and 2 are free until 0 has ended.
    flags: dict[str, Any] = {"capacity_scheduler_policy": "max_utilization"}
    steps = steps_of(FOUR_BLOCKS, *THREE, **flags)
    assert steps == [{0: 4, 1: 8, 2: 1}, *[{0: 1}] * 3, {1: 9}, *[{1: 1}] * 4]
    simulator = walked(TensorrtLlm(**flags), load(*THREE), SECOND, FOUR_BLOCKS)
    assert [step.preempted for step in walk(simulator)][:3] == [[], [1], []]


def test_static_batch_waits_until_nobody_generates() -> None:
    # 1 leaves at once, but 2, which comes at 0.5, waits for the end of 0.
    shapes = ((0.0, 4, 3), (0.0, 4, 1), (0.5, 4, 2))
    steps = steps_of(NO_CACHE, *shapes, capacity_scheduler_policy="static_batch")
    assert steps == [{0: 4, 1: 4}, {0: 1}, {0: 1}, {2: 4}, {2: 1}]
    assert steps_of(NO_CACHE, *shapes)[1] == {0: 1, 2: 4}


def test_a_static_batch_leaves_a_half_prompt_while_another_one_generates() -> None:
    # Chunks of 8: 0 is complete in step 1, and 4 of 1 with it; 1 goes on when 0 has ended.
    flags = {"max_batch_size": 2, "max_num_tokens": 8, "enable_chunked_context": True}
    steps = steps_of(NO_CACHE, (0.0, 4, 3), (0.0, 8, 1), capacity_scheduler_policy="static_batch", **flags)
    assert steps == [{0: 4, 1: 4}, {0: 1}, {0: 1}, {1: 4}]


def test_seats_are_those_of_the_server_or_of_the_flag() -> None:
    shapes = [(0.0, 1, 2)] * 3
    assert steps_of(Limits(max_num_seqs=2), *shapes) == [{0: 1, 1: 1}, {0: 1, 1: 1}, {2: 1}, {2: 1}]
    assert steps_of(Limits(), *shapes, max_batch_size=1)[1:3] == [{0: 1}, {1: 1}]


@pytest.mark.parametrize(("caching", "second"), [(True, {0: 1, 1: 1}), (False, {0: 1})])
def test_a_prefix_that_another_one_holds_needs_no_blocks(caching: bool, second: dict[int, int]) -> None:
    # Each needs 4 blocks of 6, but 2 of them are the same.
    keys = array("q", [7, 8])
    limits = Limits(block_size=4, num_kv_blocks=6, enable_prefix_caching=caching)

    def make() -> list[Request]:
        return [Request(i, 0.5 * i, 9, 4, prefix=keys) for i in range(2)]

    served(TensorrtLlm(), make, SECOND, limits)
    assert scheduled(walked(TensorrtLlm(), make, SECOND, limits))[1] == second


@pytest.mark.parametrize(
    ("policy", "steps"),
    [
        ("guaranteed_no_evict", [{0: 9, 2: 4}, {0: 1, 1: 2}]),
        ("max_utilization", [{0: 9, 2: 4}, {0: 1, 1: 2}]),
        ("static_batch", [{0: 9, 1: 10, 2: 4}, {0: 1}]),
    ],
)
def test_a_request_waits_a_step_for_the_prefix_that_another_one_computes(
    policy: str, steps: list[dict[int, int]]
) -> None:
    keys = array("q", [7, 8])

    def make() -> list[Request]:
        first, second = (Request(i, 0.0, 9 + i, 2 - i, prefix=keys) for i in range(2))
        return [first, second, Request(2, 0.0, 4, 1)]

    flags, limits = TensorrtLlm(capacity_scheduler_policy=policy), Limits(block_size=4)
    served(flags, make, SECOND, limits)
    assert scheduled(walked(flags, make, SECOND, limits)) == steps


def test_a_request_waits_for_a_prefix_until_its_last_chunk() -> None:
    # Chunks of 4: 0 computes the shared 8 tokens in steps 1 and 2; 1 joins in step 3 with its last 2.
    keys = array("q", [7, 8])

    def make() -> list[Request]:
        return [Request(0, 0.0, 10, 1, prefix=keys), Request(1, 0.0, 10, 1, prefix=keys)]

    flags = TensorrtLlm(max_batch_size=2, max_num_tokens=4, enable_chunked_context=True)
    limits = Limits(block_size=4)
    served(flags, make, SECOND, limits)
    assert scheduled(walked(flags, make, SECOND, limits)) == [{0: 4}, {0: 4}, {0: 2, 1: 2}]


# --- tokens ---------------------------------------------------------------------------

SMALL = {"max_batch_size": 4, "max_num_tokens": 8}


def test_prompts_run_whole_in_what_generations_leave() -> None:
    # 6 of 8, and 4 do not fit, nor does 2 overtake; then 1 + 4 + 2.
    steps = steps_of(NO_CACHE, (0.0, 6, 2), (0.0, 4, 2), (0.0, 2, 2), **SMALL)
    assert steps == [{0: 6}, {0: 1, 1: 4, 2: 2}, {1: 1, 2: 1}]


def test_a_prompt_over_the_budget_shares_its_step_with_no_other_prompt() -> None:
    steps = steps_of(NO_CACHE, (0.0, 2, 3), (0.0, 20, 1), (0.0, 2, 1), **SMALL)
    assert steps == [{0: 2}, {0: 1, 1: 20}, {0: 1, 2: 2}]


def test_a_chunk_is_whole_blocks_and_a_short_prompt_may_overtake() -> None:
    # Budget 10: 8 of 20, so 2 are left, too few for a block of 1, but all of 2.
    flags = {"max_batch_size": 4, "max_num_tokens": 10, "enable_chunked_context": True}
    steps = steps_of(NO_CACHE, (0.0, 20, 1), (0.0, 3, 1), (0.0, 2, 1), **flags)
    assert steps == [{0: 8, 2: 2}, {0: 8}, {0: 4, 1: 3}]


def test_equal_progress_gives_a_block_to_each_in_turn() -> None:
    flags: dict[str, Any] = {"max_batch_size": 2, "max_num_tokens": 12, "enable_chunked_context": True}
    flags["context_chunking_policy"] = "equal_progress"
    steps = steps_of(NO_CACHE, (0.0, 20, 1), (0.0, 20, 1), **flags)
    assert steps == [{0: 8, 1: 4}, {0: 8, 1: 4}, {0: 4, 1: 8}, {1: 4}]


@pytest.mark.parametrize(
    ("missing", "left", "expected"),
    [
        ([5, 6], 20, ([5, 6], [5, 6], [5, 6])),
        ([5, 6], 10, ([5], [5, 4], [5, 4])),
        ([9, 1], 6, ([], [4, 1], [4, 1])),
        ([30, 1], 12, ([], [12, 0], [8, 1])),
        ([3, 3, 3], 2, ([], [0, 0, 0], [0, 0, 0])),
    ],
)
def test_three_ways_to_share_what_is_left(
    missing: list[int], left: int, expected: tuple[list[int], ...]
) -> None:
    # In units of 4.
    shared = (whole(missing, left, False), first_come(missing, left, 4), equal_progress(missing, left, 4))
    assert shared == expected
    assert whole(missing, left, True)[0] == missing[0]


def test_what_it_does_not_start_with() -> None:
    crowded = TensorrtLlm(max_batch_size=300, max_num_tokens=256)
    chunked = TensorrtLlm(max_batch_size=4, max_num_tokens=8, enable_chunked_context=True)
    for policy, block_size, why in (
        (crowded, 16, "max_batch_size 300 is over max_num_tokens 256"),
        (chunked, 16, "max_num_tokens 8 is below the chunk unit of 16 tokens"),
    ):
        with pytest.raises(LimitError, match=f"^tensorrt_llm: {why}"):
            policy.begin(Batch(Limits(block_size=block_size)))
    chunked.begin(Batch(Limits(block_size=8)))


def test_the_seats_are_2048_where_the_server_has_more() -> None:
    batch = Batch(Limits(max_num_seqs=5000, max_num_batched_tokens=9000))
    TensorrtLlm().begin(batch)
    assert batch.max_running == 2048
    assert finished(served(TensorrtLlm(), load((0.0, 4, 2)), SECOND)) == [2.0]
