"""vLLM V0 on small schedules worked out by hand: prompts alone, else decodes."""

from __future__ import annotations

from array import array

import pytest

from batchwright.batch import Batch
from batchwright.cost import Constant
from batchwright.errors import LimitError
from batchwright.limits import Limits
from batchwright.policies.vllm_v0 import VllmV0
from batchwright.request import Request
from test_schedules import finished, load, scheduled, served, walk, walked

SECOND = Constant(1.0)  # every step


def test_a_prompt_stalls_the_decodes_for_a_step() -> None:
    # Step 1 prefills 0 and 1, step 2 decodes; 2 has come by then, so step 3 is its own.
    make = load((0.0, 4, 4), (0.0, 4, 4), (1.5, 4, 1))
    steps = [{0: 4, 1: 4}, {0: 1, 1: 1}, {2: 4}, {0: 1, 1: 1}, {0: 1, 1: 1}]
    assert scheduled(walked(VllmV0(), make, SECOND)) == steps
    assert finished(served(VllmV0(), make, SECOND)) == [5.0, 5.0, 3.0]


def test_prompts_fill_the_budget_in_order_and_are_never_cut() -> None:
    # Budget 16: 10 + 6, then 5, behind which 12 does not fit, then 12; nobody decodes until all are in.
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=16, max_model_len=16)
    make = load((0.0, 10, 2), (0.0, 6, 2), (0.0, 5, 2), (0.0, 12, 2))
    steps = [{0: 10, 1: 6}, {2: 5}, {3: 12}, {0: 1, 1: 1, 2: 1, 3: 1}]
    assert scheduled(walked(VllmV0(), make, SECOND, limits)) == steps


def test_the_budget_is_raised_to_the_longest_request() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=8, max_model_len=32)
    make = load((0.0, 16, 1), (0.0, 16, 1), (0.0, 1, 1))
    assert scheduled(walked(VllmV0(), make, SECOND, limits)) == [{0: 16, 1: 16}, {2: 1}]


def test_a_prompt_over_the_budget_runs_alone() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=8)
    make = load((0.0, 4, 1), (0.0, 20, 1), (0.0, 4, 1))
    assert scheduled(walked(VllmV0(), make, SECOND, limits)) == [{0: 4}, {1: 20}, {2: 4}]


def test_nobody_is_admitted_without_a_seat() -> None:
    make = load(*[(0.0, 4, 2)] * 3)
    steps = [{0: 4, 1: 4}, {0: 1, 1: 1}, {2: 4}, {2: 1}]
    assert scheduled(walked(VllmV0(max_num_seqs=2), make, SECOND)) == steps


@pytest.mark.parametrize(
    ("prompt", "steps"), [(36, [{0: 360, 1: 36}, {0: 1}]), (37, [{0: 360}, {0: 1}, {1: 37}])]
)
def test_one_percent_of_the_blocks_stay_free(prompt: int, steps: list[dict[int, int]]) -> None:
    # 100 blocks of 4.  0 takes 90, so 10 are free: 9 for 36 tokens and 1 to stay, but not 10 and 1.
    limits = Limits(block_size=4, num_kv_blocks=100)
    make = load((0.0, 360, 2), (0.0, prompt, 1))
    assert scheduled(walked(VllmV0(), make, SECOND, limits)) == steps


def test_in_an_empty_server_a_prompt_may_take_all_blocks() -> None:
    limits = Limits(block_size=4, num_kv_blocks=100)
    make = load((0.0, 360, 1), (0.0, 398, 2))
    assert scheduled(walked(VllmV0(), make, SECOND, limits)) == [{0: 360}, {1: 398}, {1: 1}]


@pytest.mark.parametrize(("caching", "resumed"), [(False, 9), (True, 5)])
def test_a_missing_block_preempts_the_newest_which_waits_in_front(caching: bool, resumed: int) -> None:
    # 4 blocks of 4.  Both decode until they fill 2 blocks each; in step 6, 0 needs a fifth, so 1 goes.
    # 2 came at 2.0, and needs 1 block: it waits behind 1, which needs 3.
    limits = Limits(block_size=4, num_kv_blocks=4, enable_prefix_caching=caching)
    make = load((0.0, 4, 6), (0.0, 4, 6), (5.0, 4, 1))
    simulator = walked(VllmV0(max_num_seqs=2), make, SECOND, limits)
    steps = [{0: 4, 1: 4}, *[{0: 1, 1: 1}] * 4, {0: 1}, {1: resumed, 2: 4}]
    assert scheduled(simulator) == steps
    assert [step.preempted for step in walk(simulator)] == [[], [], [], [], [], [1], []]


def test_the_newest_goes_even_if_only_it_lacks_a_block() -> None:
    # 4 blocks of 4: 2 of 0, from step 2 on, and 2 of 1, which fills them in step 3.
    limits = Limits(block_size=4, num_kv_blocks=4, enable_prefix_caching=False)
    make = load((0.0, 4, 5), (0.0, 6, 4))
    steps = [{0: 4, 1: 6}, {0: 1, 1: 1}, {0: 1, 1: 1}, {0: 1}, {0: 1}, {1: 9}]
    assert scheduled(walked(VllmV0(), make, SECOND, limits)) == steps
    assert finished(served(VllmV0(), make, SECOND, limits)) == [5.0, 6.0]


def test_a_cached_prefix_costs_no_tokens_but_its_blocks_must_fit() -> None:
    # 1 finds 8 of its 10 tokens.  With 6 blocks it joins at once; with 5 the 2 free ones are fewer
    # than the 3 of its prompt, although it would take but 1.
    keys = array("q", [7, 8])

    def make() -> list[Request]:
        return [Request(0, 0.0, 9, 3, prefix=keys), Request(1, 0.5, 10, 1, prefix=keys)]

    steps = {6: [{0: 9}, {1: 2}, {0: 1}, {0: 1}], 5: [{0: 9}, {0: 1}, {0: 1}, {1: 2}]}
    for blocks, expected in steps.items():
        limits = Limits(block_size=4, num_kv_blocks=blocks)
        assert scheduled(walked(VllmV0(), make, SECOND, limits)) == expected


def test_what_v0_does_not_start_with() -> None:
    cases = {
        "tokens 511 is below max_model_len 512": (511, None, Limits(max_model_len=512)),
        "seqs 300 is over max_num_batched_tokens 256": (None, 300, Limits(max_num_batched_tokens=256)),
        "seqs 256 is over max_num_batched_tokens 128": (128, None, Limits()),
    }
    for why, (tokens, seats, limits) in cases.items():
        with pytest.raises(LimitError, match=f"^vllm_v0: max_num_.*{why}"):
            VllmV0(max_num_batched_tokens=tokens, max_num_seqs=seats).begin(Batch(limits))
    VllmV0(max_num_batched_tokens=512).begin(Batch(Limits(max_model_len=512)))
