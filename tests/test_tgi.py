"""TGI's rules, in schedules worked out by hand.  Steps of one second, if a test says no other."""

from __future__ import annotations

from array import array

import pytest

from batchwright.batch import Batch
from batchwright.cost import Constant
from batchwright.errors import InputError, LimitError
from batchwright.limits import Limits
from batchwright.policies import policy
from batchwright.policies.tgi import Tgi
from batchwright.request import Request
from batchwright.simulator import Simulator
from test_schedules import COST, Load, finished, load, scheduled, served, walk, walked

LIMITS = Limits(block_size=4, max_model_len=64, enable_prefix_caching=False)
SECOND = Constant(1.0)


def steps_of(flags: Tgi, make: Load, limits: Limits = LIMITS) -> list[dict[int, int]]:
    """Tokens by id of every step; quick, walked and audited runs give the same times."""
    served(flags, make, SECOND, limits)
    return scheduled(walked(flags, make, SECOND, limits))


def unchunked(**flags: int | float | None) -> Tgi:
    return Tgi(prefill_chunking=False, **flags)  # type: ignore[arg-type]


def decodes(*ids: int) -> dict[int, int]:
    return dict.fromkeys(ids, 1)


# --- the trigger, without chunks ---------------------------------------------------


def test_prompts_run_alone_while_the_decodes_pause() -> None:
    # 0.0     a prompt of 4: 1/4 + 4/16                      = 0.5      until 0.5
    # 0.5     the next one of 8 alone: 1/4 + 8/16            = 0.75     until 1.25
    # 1.25    two decodes over 4 + 8: 1/4 + 2/8 + 12/64      = 0.6875   until 1.9375; 1 ends
    # 1.9375  one over 5: 3/8 + 5/64                         = 0.453125 until 2.390625
    make = load((0.0, 4, 3), (0.25, 8, 2))
    assert finished(served(unchunked(waiting_served_ratio=0.0), make, COST, LIMITS)) == [2.390625, 1.9375]


def test_the_queue_is_served_when_it_is_long_enough_for_those_that_run() -> None:
    # Four run from 1.0 on.  With a ratio of 0.5 two must wait, and the second comes at 2.5.
    make = load(*[(0.0, 4, 9)] * 4, (0.5, 4, 9), (2.5, 4, 9))
    found = steps_of(unchunked(waiting_served_ratio=0.5), make)
    assert found[:5] == [
        {0: 4, 1: 4, 2: 4, 3: 4},
        decodes(0, 1, 2, 3),
        decodes(0, 1, 2, 3),
        {4: 4, 5: 4},
        decodes(0, 1, 2, 3, 4, 5),
    ]


def test_the_share_is_rounded_down() -> None:
    # floor(3 * 0.3) = 0: one that waits is enough for three; floor(4 * 0.3) = 1, the same for four;
    # floor(7 * 0.3) = 2: for seven two must wait, and here the batch ends first.
    for running, joins in ((3, True), (4, True), (7, False)):
        make = load(*[(0.0, 4, 3)] * running, (0.5, 4, 1))
        found = steps_of(unchunked(), make)
        assert (found[1] == {running: 4}) == joins


def test_one_that_waits_for_max_waiting_tokens_joins_alone() -> None:
    # The counter is 1 after the prefill, at 1.0, and one more after each decode: 4 at 4.0.
    make = load((0.0, 4, 9), (0.0, 4, 9), (0.5, 4, 9))
    found = steps_of(unchunked(waiting_served_ratio=1.0, max_waiting_tokens=4), make)
    assert found[:6] == [{0: 4, 1: 4}, *[decodes(0, 1)] * 3, {2: 4}, decodes(0, 1, 2)]


@pytest.mark.parametrize("patience", [0, 1])
def test_without_patience_every_one_joins_at_once(patience: int) -> None:
    make = load((0.0, 4, 9), (0.0, 4, 9), (0.5, 4, 9))
    found = steps_of(unchunked(waiting_served_ratio=1.0, max_waiting_tokens=patience), make)
    assert found[1] == {2: 4}


def test_the_counter_counts_decodes_whether_or_not_somebody_waits() -> None:
    # At 6.0 it is 6, and 2, which has just come, joins.
    make = load((0.0, 4, 9), (0.0, 4, 9), (5.5, 4, 9))
    found = steps_of(unchunked(waiting_served_ratio=1.0, max_waiting_tokens=4), make)
    assert found[5:7] == [decodes(0, 1), {2: 4}]


def test_after_an_admission_the_batch_runs_once_before_the_queue_is_looked_at() -> None:
    # 1 joins right after the prefill of an idle server, 2 only after a decode.
    make = load((0.0, 4, 9), (0.5, 4, 9), (1.5, 4, 9))
    found = steps_of(unchunked(waiting_served_ratio=0.0), make)
    assert found[:5] == [{0: 4}, {1: 4}, decodes(0, 1), {2: 4}, decodes(0, 1, 2)]


def test_fewer_than_enough_that_fit_are_put_back() -> None:
    # Blocks of 4: two hold ceil((4 + 9 - 1) / 4) = 3 each, and each that waits needs 2 of the 3 left.
    # Two are enough, but only one fits: nobody joins before 5.0, when the counter is 5, and then one.
    limits = Limits(block_size=4, num_kv_blocks=9, max_model_len=16, enable_prefix_caching=False)
    make = load((0.0, 4, 9), (0.0, 4, 9), (0.5, 4, 5), (0.5, 4, 5))
    patient = unchunked(waiting_served_ratio=1.0)
    assert steps_of(patient, make, limits)[:10] == [{0: 4, 1: 4}, *[decodes(0, 1)] * 8, {2: 4, 3: 4}]
    hasty = unchunked(waiting_served_ratio=1.0, max_waiting_tokens=5)
    assert steps_of(hasty, make, limits)[4:7] == [decodes(0, 1), {2: 4}, decodes(0, 1, 2)]


def test_a_batch_that_is_full_takes_fewer_than_enough_only_after_the_wait() -> None:
    # One place is left of three, and a ratio of 1 asks for two.
    make = load((0.0, 4, 9), (0.0, 4, 9), (0.5, 4, 9), (0.5, 4, 9))
    found = steps_of(unchunked(waiting_served_ratio=1.0, max_waiting_tokens=3, max_batch_size=3), make)
    assert found[:5] == [{0: 4, 1: 4}, decodes(0, 1), decodes(0, 1), {2: 4}, decodes(0, 1, 2)]


def test_prompts_over_the_budget_wait_and_nobody_overtakes_them() -> None:
    # A budget of 63: 40 + 30 are over it, and 10, which would fit, waits behind them.
    make = load((0.0, 40, 2), (0.0, 30, 2), (0.0, 10, 2))
    found = steps_of(unchunked(max_batch_prefill_tokens=63, waiting_served_ratio=0.0), make)
    assert found[:2] == [{0: 40}, {1: 30, 2: 10}]


def test_the_budget_is_rounded_up_to_whole_blocks() -> None:
    # 63 are 64 of blocks of 4: 40 + 24 fit.
    make = load((0.0, 40, 2), (0.0, 24, 2))
    assert steps_of(unchunked(max_batch_prefill_tokens=63), make)[0] == {0: 40, 1: 24}


# --- what is set aside ---------------------------------------------------------------


@pytest.mark.parametrize(("output", "together"), [(5, True), (6, False)])
def test_a_request_sets_aside_its_whole_stay_but_for_its_last_token(output: int, together: bool) -> None:
    # 4 + 5 - 1 tokens are 2 blocks of 4, so two fit 4 blocks; 4 + 6 - 1 are 3.
    limits = Limits(block_size=4, num_kv_blocks=4, max_model_len=16, enable_prefix_caching=False)
    make = load((0.0, 4, output), (0.0, 4, output))
    assert (steps_of(Tgi(), make, limits)[0] == {0: 4, 1: 4}) == together
    taken = 4 if together else 3
    assert walk(walked(Tgi(), make, SECOND, limits))[0].free_blocks_sched == 4 - taken


def test_version_2_rounds_prompt_and_output_up_apart() -> None:
    # 6 + 3 - 1 tokens are 2 blocks of 4, so two fit 4 blocks.  Version 2 counts 2 + 1 for each.
    limits = Limits(block_size=4, num_kv_blocks=4, max_model_len=16, enable_prefix_caching=False)
    make = load((0.0, 6, 3), (0.0, 6, 3))
    assert steps_of(unchunked(), make, limits)[0] == {0: 6, 1: 6}
    assert steps_of(Tgi(version="2"), make, limits)[0] == {0: 6}
    small = Limits(block_size=4, num_kv_blocks=2, max_model_len=8, enable_prefix_caching=False)
    assert finished(served(Tgi(version="2"), load((0.0, 6, 2)), SECOND, small)) == [2.0]  # alone it runs


def test_version_2_waits_for_more_and_has_no_prefix_cache() -> None:
    # floor(2 * 1.2) = 2, floor(2 * 0.3) = 0.
    make = load((0.0, 4, 9), (0.0, 4, 9), (0.5, 4, 9))
    assert steps_of(Tgi(version="2"), make)[1] == decodes(0, 1)
    assert steps_of(unchunked(), make)[1] == {2: 4}
    keys = array("q", [7, 8])

    def alike() -> list[Request]:
        return [Request(i, 0.5 * i, 9, 3, prefix=keys) for i in range(2)]

    limits = Limits(block_size=4, max_model_len=64)
    assert steps_of(Tgi(version="2"), alike, limits)[1] == {1: 9}
    assert steps_of(unchunked(), alike, limits)[1] == {1: 1}


def test_tokens_over_max_batch_total_tokens_are_not_used() -> None:
    limits = Limits(block_size=4, num_kv_blocks=100, max_model_len=16, enable_prefix_caching=False)
    make = load((0.0, 4, 9), (0.0, 4, 9))
    assert steps_of(Tgi(max_batch_total_tokens=24), make, limits)[0] == {0: 4, 1: 4}
    assert steps_of(Tgi(max_batch_total_tokens=23), make, limits)[0] == {0: 4}


def test_requests_over_max_concurrent_requests_wait() -> None:
    make = load((0.0, 4, 2), (0.0, 4, 2), (0.0, 4, 2))
    assert finished(served(Tgi(max_concurrent_requests=1), make, SECOND, LIMITS)) == [2.0, 4.0, 6.0]


# --- chunks ----------------------------------------------------------------------------


def test_chunks_fill_the_budget_that_the_decodes_leave() -> None:
    # A budget of 8.  At 1.0 the decode of 0 leaves 7, rounded up to 8 by blocks of 4.  From then on the
    # forward has 8, less one for the other request, less the decode itself: 6.
    make = load((0.0, 4, 4), (0.5, 20, 2))
    found = steps_of(Tgi(max_batch_prefill_tokens=8), make)
    assert found == [{0: 4}, {0: 1, 1: 8}, {0: 1, 1: 6}, {0: 1, 1: 6}, {1: 1}]


def test_several_prompts_may_be_incomplete_and_every_other_step_looks_at_the_queue() -> None:
    # Step 4 runs 1 + 6, so 1 is left of 8, rounded up to 4; the step after has 8 - 2 - 1 - 1 for 2.
    make = load((0.0, 4, 9), (0.5, 20, 9), (0.5, 20, 9))
    found = steps_of(Tgi(max_batch_prefill_tokens=8), make)
    assert found[:5] == [{0: 4}, {0: 1, 1: 8}, {0: 1, 1: 6}, {0: 1, 1: 6, 2: 4}, {0: 1, 1: 1, 2: 4}]


def test_a_budget_below_the_decodes_still_lets_a_prompt_on() -> None:
    # A budget of 3, 4 with whole blocks: request 1 gets one token beside the prompt of 0, then 3 - 1 - 1.
    # Request 2 takes what the 2 tokens of both leave, rounded up to 4, and 3 one token more.  Four run
    # now, so nothing is left for unfinished prompts, and each gets one token.
    make = load(*[(0.0, 3, 20)] * 3, (0.0, 8, 20))
    found = steps_of(Tgi(max_batch_prefill_tokens=3), make)
    assert found[:2] == [{0: 3, 1: 1}, {0: 1, 1: 1, 2: 3, 3: 1}]
    assert found[2:4] == [decodes(0, 1, 2, 3)] * 2
    assert found[8] == decodes(0, 1, 2, 3)


def test_a_prefix_that_is_cached_is_neither_computed_nor_set_aside_again() -> None:
    keys = array("q", [7, 8])

    def make() -> list[Request]:
        return [Request(0, 0.0, 9, 4, prefix=keys), Request(1, 0.5, 10, 3, prefix=keys)]

    # 9 + 3 and 10 + 2 tokens are 3 blocks of 4 each, but 2 are shared.
    simulator = walked(Tgi(), make, SECOND, Limits(block_size=4, num_kv_blocks=4))
    assert scheduled(simulator)[:2] == [{0: 9}, {0: 1, 1: 2}]
    assert walk(simulator)[1].admitted == [(1, 8)]
    assert walk(simulator)[1].free_blocks_sched == 0


# --- what is refused -------------------------------------------------------------------


def test_flags_and_versions() -> None:
    assert policy("tgi@2") == Tgi(version="2") and policy("tgi") == Tgi()
    assert policy("tgi(prefill-chunking=false)") == unchunked()
    with pytest.raises(InputError, match="tgi@2 has no flag prefill_chunking"):
        Tgi(version="2", prefill_chunking=False)


@pytest.mark.parametrize(
    ("flags", "limits", "why"),
    [
        (unchunked(), Limits(), "without chunking max_batch_prefill_tokens 4096 must hold the longest"),
        (unchunked(), Limits(max_model_len=4098), "the longest prompt, 4097 tokens"),
        (Tgi(version="2", max_batch_prefill_tokens=62), LIMITS, "max_batch_prefill_tokens 62 must hold"),
        (Tgi(max_batch_size=257), Limits(), "tgi: max_batch_size 257 is over max_num_seqs 256"),
        (
            Tgi(max_batch_total_tokens=100),
            Limits(num_kv_blocks=6),
            "tgi: max_batch_total_tokens 100 is over the 96 tokens that 6 KV blocks of 16 hold",
        ),
        (
            Tgi(max_batch_total_tokens=47),
            Limits(num_kv_blocks=6, max_model_len=40),
            "47, or 2 KV blocks of 16, cannot hold a request of 40 tokens",
        ),
    ],
)
def test_what_tgi_does_not_start_with_is_refused(flags: Tgi, limits: Limits, why: str) -> None:
    with pytest.raises(LimitError, match=why):
        flags.begin(Batch(limits))


def test_a_quiet_batch_is_not_asked_at_every_step() -> None:
    simulator = Simulator(unchunked(), SECOND, LIMITS)
    simulator.run(load(*[(0.0, 4, 60)] * 8, (0.5, 4, 1))())  # floor(8 * 0.3) = 2 would have to wait
    assert simulator.num_decisions < 12
