"""LMDeploy's rules, in schedules worked out by hand.  Steps of one second."""

from __future__ import annotations

from array import array

import pytest

from batchwright.batch import Batch
from batchwright.cost import Constant
from batchwright.errors import LimitError
from batchwright.limits import Limits
from batchwright.policies.lmdeploy import Lmdeploy
from batchwright.request import Request
from batchwright.simulator import Simulator
from test_schedules import Load, finished, load, scheduled, served, walked

LIMITS = Limits(block_size=4, enable_prefix_caching=False)
SECOND = Constant(1.0)


def steps_of(flags: Lmdeploy, make: Load, limits: Limits = LIMITS) -> list[dict[int, int]]:
    """Tokens by id of every step; quick, walked and audited runs give the same times."""
    served(flags, make, SECOND, limits)
    return scheduled(walked(flags, make, SECOND, limits))


def decodes(*ids: int) -> dict[int, int]:
    return dict.fromkeys(ids, 1)


# --- when prompts run ---------------------------------------------------------------


def test_while_half_the_seats_are_free_prompts_run_at_the_next_decision() -> None:
    # One of four seats is taken.  The round of 0 began at 1.0 and has 4 steps: 1 runs at 5.0.
    make = load((0.0, 4, 30), (2.5, 4, 30))
    found = steps_of(Lmdeploy(max_batch_size=4, prefill_interval=4), make)
    assert found[:7] == [{0: 4}, *[decodes(0)] * 4, {1: 4}, decodes(0, 1)]


def test_a_decision_follows_each_prefill() -> None:
    # 1 comes while 0 is prefilled, and runs right after it, before any round.
    make = load((0.0, 4, 30), (0.5, 4, 30))
    assert steps_of(Lmdeploy(max_batch_size=4), make)[:2] == [{0: 4}, {1: 4}]


def test_when_half_the_seats_are_taken_prompts_wait_for_prefill_interval_rounds() -> None:
    # One of two is half.  1 has waited since the decision at 1.0, for two rounds of two steps, at 5.0.
    make = load((0.0, 4, 30), (0.5, 4, 30))
    found = steps_of(Lmdeploy(max_batch_size=2, prefill_interval=2), make)
    assert found[:7] == [{0: 4}, *[decodes(0)] * 4, {1: 4}, decodes(0, 1)]


def test_sixteen_rounds_of_sixteen_steps_are_the_default() -> None:
    make = load((0.0, 4, 300), (0.5, 4, 30))
    found = steps_of(Lmdeploy(max_batch_size=2), make)
    assert found.index({1: 4}) == 1 + 16 * 16


def test_rounds_of_one_step_decide_before_every_step() -> None:
    # 1 has waited since 3.0 and for 16 decisions at 19.0.
    make = load((0.0, 4, 300), (2.5, 4, 30))
    found = steps_of(Lmdeploy(max_batch_size=2, num_loops=1), make)
    assert found.index({1: 4}) == 3 + 16


def test_rounds_count_from_the_decision_that_somebody_waited_for_in_vain() -> None:
    # 1 comes in the round from 1.0 to 5.0; it has waited for four rounds since 5.0 at 21.0.
    make = load((0.0, 4, 300), (2.5, 4, 30))
    found = steps_of(Lmdeploy(max_batch_size=2, prefill_interval=4), make)
    assert found.index({1: 4}) == 21


def test_many_prompt_tokens_that_wait_run_at_the_next_decision() -> None:
    # Half the seats are taken.  8 tokens wait from 2.5 on; 7 are not enough.
    for last, joins in ((4, True), (3, False)):
        make = load((0.0, 4, 30), (0.5, 4, 30), (2.5, last, 30))
        found = steps_of(Lmdeploy(max_batch_size=2, prefill_interval=4, max_prefill_token_num=8), make)
        assert (found[5] == {1: 4}) == joins


def test_a_long_queue_is_counted_whole() -> None:
    # 40 prompts of one token wait, more than are looked at first.
    make = load((0.0, 4, 30), *[(0.5, 1, 30)] * 40)
    for tokens, joins in ((40, True), (41, False)):
        flags = Lmdeploy(max_batch_size=2, prefill_interval=4, max_prefill_token_num=tokens)
        assert (steps_of(flags, make)[1] == {1: 1}) == joins


def test_a_queue_that_has_emptied_starts_anew() -> None:
    # 1 waits in vain from 1.0 on, and its client goes in the second round.  2 comes in the fourth one,
    # and has waited since 9.0 for two rounds of two steps at 13.0.
    flags = Lmdeploy(max_batch_size=2, prefill_interval=2)
    for skip, audit in ((True, False), (False, False), (False, True)):
        requests = load((0.0, 4, 30), (0.5, 4, 9), (7.5, 4, 9))()
        simulator = Simulator(flags, SECOND, LIMITS, skip=skip, audit=audit)
        simulator.cancel(requests[1], 3.5)
        simulator.run(requests)
        assert requests[2].first_token == 14.0


# --- which prompts run ----------------------------------------------------------------


def test_prompts_are_packed_up_to_max_prefill_token_num() -> None:
    make = load(*[(0.0, 6, 2)] * 3)
    assert steps_of(Lmdeploy(max_prefill_token_num=16), make)[:2] == [{0: 6, 1: 6}, {2: 6}]


def test_a_longer_prompt_runs_alone_in_chunks_while_decodes_pause() -> None:
    make = load((0.0, 6, 2), (0.0, 20, 2), (0.0, 3, 2))
    found = steps_of(Lmdeploy(max_prefill_token_num=8), make)
    assert found == [{0: 6}, {1: 8}, {1: 8}, {1: 4}, {2: 3}, decodes(0, 1, 2)]


def test_the_first_prompt_may_be_longer() -> None:
    make = load((0.0, 20, 2), (0.0, 3, 2))
    assert steps_of(Lmdeploy(max_prefill_token_num=8), make)[:4] == [{0: 8}, {0: 8}, {0: 4}, {1: 3}]


# --- blocks ---------------------------------------------------------------------------


def test_a_round_starts_with_all_its_blocks_or_the_newest_goes() -> None:
    # 5 blocks of 4, rounds of 4.  Both have 4 tokens at 1.0 and 8 at 5.0, in 2 blocks each; a round more
    # needs a third for both, and one is left.  1 goes, and comes back with 4 + 5 tokens when 0 has ended.
    limits = Limits(block_size=4, num_kv_blocks=5, enable_prefix_caching=False)
    make = load((0.0, 4, 9), (0.0, 4, 9))
    found = steps_of(Lmdeploy(prefill_interval=4), make, limits)
    assert found == [{0: 4, 1: 4}, *[decodes(0, 1)] * 4, *[decodes(0)] * 4, {1: 9}, *[decodes(1)] * 3]


def test_a_request_joins_others_only_with_the_blocks_of_a_round() -> None:
    # 0 has one of 3 blocks of 4.  1 needs one for its prompt and one for the round of 4.
    for blocks, joins in ((3, True), (2, False)):
        limits = Limits(block_size=4, num_kv_blocks=blocks, max_model_len=8, enable_prefix_caching=False)
        found = steps_of(Lmdeploy(prefill_interval=4), load((0.0, 4, 3), (0.0, 4, 3)), limits)
        assert (found[0] == {0: 4, 1: 4}) == joins


def test_a_lone_request_may_fill_the_cache() -> None:
    limits = Limits(block_size=4, num_kv_blocks=3, enable_prefix_caching=False)
    assert finished(served(Lmdeploy(), load((0.0, 4, 8), (0.0, 4, 1)), SECOND, limits)) == [8.0, 9.0]


def test_a_prefix_is_found_if_the_flag_says_so() -> None:
    keys = array("q", [7, 8])

    def make() -> list[Request]:
        return [Request(0, 0.0, 9, 9, prefix=keys), Request(1, 0.5, 10, 9, prefix=keys)]

    limits = Limits(block_size=4)
    assert steps_of(Lmdeploy(), make, limits)[1] == {1: 10}
    assert steps_of(Lmdeploy(enable_prefix_caching=True), make, limits)[1] == {1: 2}


# --- how often it is asked ------------------------------------------------------------


@pytest.mark.parametrize("blocks", [None, 300])
def test_quiet_rounds_are_skipped_and_those_of_one_that_waits_are_not(blocks: int | None) -> None:
    limits = Limits(num_kv_blocks=blocks, max_model_len=2000)
    for make, most in ((load((0.0, 100, 1800)), 5), (load((0.0, 100, 1800), (10.5, 4, 3)), 1800 / 16 + 10)):
        simulator = Simulator(Lmdeploy(max_batch_size=1), SECOND, limits)
        simulator.run(make())
        assert simulator.num_decisions < most


def test_more_seats_than_the_server_has_are_refused() -> None:
    with pytest.raises(LimitError, match="lmdeploy: max_batch_size 257 is over max_num_seqs 256"):
        Lmdeploy(max_batch_size=257).begin(Batch(Limits()))
