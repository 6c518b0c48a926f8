"""Swaps to host memory: the two moves, what they refuse, and small schedules worked out by hand.

Seconds are powers of two, so sums of them are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from batchwright.batch import Batch
from batchwright.cost import Constant, Hosted, Linear, Roofline
from batchwright.engines.live import Live
from batchwright.errors import InputError, LimitError, PolicyError
from batchwright.hardware import Gpu
from batchwright.history import stays
from batchwright.host_link import host_link
from batchwright.host_memory import HostMemory
from batchwright.limits import Limits
from batchwright.link import Channel, Link
from batchwright.log import ABORTED, IN, OUT, SWAPPED
from batchwright.policies import Vllm
from batchwright.policies.vllm_v0 import VllmV0
from batchwright.request import CANCELLED, DECODING, MOVING_IN, MOVING_OUT, Request
from batchwright.request import SWAPPED as IS_SWAPPED
from batchwright.simulator import Simulator
from batchwright.swapping import land, swap_in, swap_out
from swaps import Swapper
from test_batch import decoding, ended, prefilling, run_step, waiting
from test_live import LIMITS as LIVE
from test_live import engine_of, sequence
from test_schedules import finished, first_tokens, load, scheduled, served, walk, walked

LIMITS = Limits(block_size=4, num_kv_blocks=64)
LINK = Link(bandwidth=16.0, bytes_per_token=1.0)  # a block of 4 in 1/4 s


def batch_of(size: int = 64, max_num_seqs: int = 8, link: Link = LINK) -> Batch:
    batch = Batch(Limits(block_size=4, num_kv_blocks=64, max_num_seqs=max_num_seqs))
    batch.host = HostMemory(link, size)
    return batch


def leaving(batch: Batch, id: int = 0) -> Request:
    r = decoding(batch, prompt=6, id=id)
    swap_out(batch, r)
    return r


def swapped(batch: Batch, id: int = 0) -> Request:
    r = leaving(batch, id)
    assert land(batch) is r
    return r


def coming(batch: Batch, id: int = 0) -> Request:
    r = swapped(batch, id)
    swap_in(batch, r)
    return r


def back(batch: Batch, id: int = 0) -> Request:
    r = coming(batch, id)
    assert land(batch) is r
    batch.decode(r)
    return r


# --- the link -----------------------------------------------------------------


def test_a_transfer_takes_its_latency_and_its_bytes_over_the_bandwidth() -> None:
    assert Link(bandwidth=16.0, bytes_per_token=2.0, latency=0.25).seconds(32) == 0.25 + 4.0
    assert Link(bandwidth=inf, bytes_per_token=2.0).seconds(32) == 0.0


def test_a_channel_serves_one_transfer_after_the_other() -> None:
    channel = Channel(LINK)
    assert [channel.send(now, 8) for now in (1.0, 1.25, 3.0)] == [(1.0, 1.5), (1.5, 2.0), (3.0, 3.5)]


@pytest.mark.parametrize(
    ("name", "value"),
    [("bandwidth", 0.0), ("bandwidth", float("nan")), ("bandwidth", "16"), ("bytes_per_token", -1.0),
     ("bytes_per_token", inf), ("latency", -0.5), ("latency", inf), ("latency", True)],
)  # fmt: skip
def test_a_link_refuses(name: str, value: Any) -> None:
    with pytest.raises(LimitError, match=f"^{name} of a link is {value!r}, but must be"):
        Link(**{"bandwidth": 16.0, "bytes_per_token": 1.0, name: value})


def test_the_link_to_host_memory_is_that_of_the_gpu_and_the_model() -> None:
    device = Roofline("A100-80G-SXM", "llama-3.1-8b", tp=2)
    link = Link(bandwidth=32e9, bytes_per_token=2 * 32 * 4 * 128 * 2)  # a GPU's half of the 8 KV heads
    assert host_link(device) == host_link(Hosted(device)) == link
    assert Simulator(Vllm(), device).batch.link == link
    assert host_link(Constant(1.0)) is None
    card = Gpu(name="mine", memory_bytes=80 << 30, bandwidth=1e12, flops=1e14, link=1e10, source="none")
    assert host_link(Roofline(card, "llama-3.1-8b")) is None


# --- out ----------------------------------------------------------------------


def test_who_leaves_gives_up_its_seat_at_once_and_its_blocks_when_its_kv_has_gone() -> None:
    batch = batch_of(size=5)
    r = leaving(batch)  # 6 tokens: 2 blocks
    assert (r.state, batch.num_running, batch.num_decoding, batch.context) == (MOVING_OUT, 0, 0, 0)
    assert (batch.blocks.free, batch.edits, batch.transfer_time) == (62, 1, 0.5)
    assert batch.host is not None and (batch.host.free, batch.host.leaving_blocks) == (3, 2)
    batch.check()
    assert land(batch) is r
    assert (r.state, batch.blocks.free, batch.host.free, batch.num_swapped) == (IS_SWAPPED, 64, 3, 1)
    assert batch.transfer_time == inf
    batch.check()


def test_who_comes_back_takes_blocks_at_once_and_decodes_where_it_was_when_its_kv_is_there() -> None:
    batch = batch_of(size=5)
    r = swapped(batch)
    swap_in(batch, r)
    assert (r.state, batch.blocks.free, batch.num_coming, batch.num_swapped) == (MOVING_IN, 62, 1, 0)
    assert batch.host is not None and batch.host.free == 3
    batch.check()
    assert land(batch) is r
    batch.decode(r)
    assert (r.state, r.seat, batch.num_decoding, batch.context) == (DECODING, 2, 1, 6)
    assert (batch.host.free, batch.num_coming) == (5, 0)
    batch.check()
    run_step(batch)
    batch.finish(r)
    assert (r.generated, batch.blocks.free) == (2, 64)
    assert (r.preemptions, [stay.how for stay in stays(batch.log)]) == (1, [SWAPPED, 1])


def test_both_directions_move_at_once_and_each_one_after_the_other() -> None:
    batch = batch_of()
    a, b, c = (decoding(batch, 6, id) for id in range(3))
    swap_out(batch, a)
    swap_out(batch, b)  # waits for a
    assert [land(batch), land(batch)] == [a, b]
    batch.now = 4.0
    swap_in(batch, a)
    swap_out(batch, c)
    # Contexts of 8, 7 and 6 tokens: two blocks each.
    assert batch.log.transfers == [0, OUT, 8, 1, OUT, 7, 0, IN, 8, 2, OUT, 6]
    assert batch.log.transfer_times == [0.0, 0.5, 0.5, 1.0, 4.0, 4.5, 4.0, 4.5]
    assert land(batch) is a  # it was sent first


def test_a_seat_is_kept_for_who_comes_back() -> None:
    batch = batch_of(max_num_seqs=1)
    r = swapped(batch)
    other = waiting(batch, id=1)
    swap_in(batch, r)
    with pytest.raises(PolicyError, match="request 1 is admitted beside 1 that run, but max_running is 1"):
        batch.admit(other, 6)
    land(batch)
    batch.decode(r)
    assert batch.newest() is r


# --- what is refused ------------------------------------------------------------


@pytest.mark.parametrize("state", [waiting, prefilling, ended, leaving, swapped, coming])
def test_only_a_decode_is_swapped_out(state: Callable[..., Request]) -> None:
    batch = batch_of()
    r = state(batch, id=5)
    with pytest.raises(PolicyError, match="request 5 is swapped out, but does not decode"):
        swap_out(batch, r)
    batch.check()


@pytest.mark.parametrize("state", [waiting, prefilling, decoding, leaving, coming, back])
def test_only_who_waits_in_host_memory_is_swapped_in(state: Callable[..., Request]) -> None:
    batch = batch_of()
    r = state(batch, id=5)
    with pytest.raises(PolicyError, match="request 5 is swapped in, but does not wait in host memory"):
        swap_in(batch, r)
    batch.check()


def test_without_host_memory_nobody_is_swapped() -> None:
    batch = Batch(LIMITS)
    with pytest.raises(PolicyError, match="request 0 is swapped out, but there is no host memory"):
        swap_out(batch, decoding(batch))


def test_host_memory_that_is_full_takes_nobody() -> None:
    batch = batch_of(size=3)
    leaving(batch, id=1)
    r = decoding(batch, prompt=6)
    with pytest.raises(PolicyError, match="with 2 KV blocks, but 1 of host memory are free; preempt it"):
        swap_out(batch, r)
    assert r.state == DECODING
    batch.check()


def test_who_comes_back_needs_blocks_and_a_seat() -> None:
    batch = batch_of(max_num_seqs=1)
    r = swapped(batch)
    batch.blocks.take(63)
    with pytest.raises(PolicyError, match="the step needs 2 KV blocks, but 1 are free"):
        swap_in(batch, r)
    batch = batch_of(max_num_seqs=1)
    r = swapped(batch)
    decoding(batch, id=1)
    with pytest.raises(PolicyError, match="request 0 is admitted beside 1 that run"):
        swap_in(batch, r)


# --- clients that go ------------------------------------------------------------


@pytest.mark.parametrize("state", [leaving, swapped, coming])
def test_a_client_that_goes_leaves_nothing_behind_once_the_link_is_done(
    state: Callable[..., Request],
) -> None:
    batch = batch_of(size=5)
    r = state(batch)
    is_moving = state is not swapped
    assert batch.cancel(r)
    assert r.state == CANCELLED
    batch.check()
    assert batch.blocks.free == (62 if is_moving else 64)  # a copy that runs needs its blocks
    if is_moving:
        assert land(batch).state == CANCELLED
    assert batch.host is not None
    assert (batch.blocks.free, batch.host.free, batch.num_swapped, batch.num_coming) == (64, 5, 0, 0)
    assert not batch.cancel(r)
    assert [(stay.seat, stay.how) for stay in stays(batch.log)] == [(1, SWAPPED), (0, ABORTED)]
    batch.check()


# --- admitted with KV -------------------------------------------------------------


def handed_over(batch: Batch, prompt: int = 6) -> Request:
    """Its prompt was computed elsewhere, and its first token sampled."""
    r = waiting(batch, prompt)
    r.generated = 1
    return r


def test_a_request_that_comes_with_all_its_kv_decodes_in_the_coming_step() -> None:
    batch = Batch(LIMITS)
    r = handed_over(batch, prompt=8)
    batch.admit(r, 0, computed=8)
    assert (r.state, batch.num_decoding, batch.context, batch.edits) == (DECODING, 1, 8, 1)
    assert (batch.blocks.free, batch.decode_blocks(), batch.has_work) == (62, 1, True)
    batch.check()
    run_step(batch)
    assert (batch.blocks.free, batch.context) == (61, 9)
    batch.finish(r)
    stay = stays(batch.log)[0]
    assert (r.generated, stay.admitted, stay.since, stay.brought, stay.cached) == (2, 0, 0, 8, 0)


def test_after_the_decodes_have_their_blocks_who_joins_takes_its_own() -> None:
    batch = Batch(LIMITS)
    decoding(batch, prompt=4)
    batch.reserve()
    r = handed_over(batch, prompt=8)
    r.id = 1
    batch.admit(r, 0, computed=8)
    assert batch.blocks.free == 64 - 2 - 3
    run_step(batch)
    assert batch.blocks.free == 64 - 2 - 3
    batch.check()


def test_a_request_that_comes_with_a_part_of_its_kv_prefills_the_rest() -> None:
    batch = Batch(LIMITS)
    r = waiting(batch, prompt=10)
    batch.admit(r, 4, computed=6)
    assert (batch.blocks.free, r.unfilled, r.cached) == (64 - 3, 4, 0)
    run_step(batch)
    assert (r.state, batch.context) == (DECODING, 10)
    batch.check()


@pytest.mark.parametrize("computed", [-1, 7, 8])
def test_the_newest_token_is_always_computed(computed: int) -> None:
    batch = Batch(LIMITS)
    r = handed_over(batch)
    with pytest.raises(PolicyError, match=f"with the KV of {computed} tokens, but has 7, the newest"):
        batch.admit(r, 0, computed=computed)


@pytest.mark.parametrize(("generated", "computed"), [(0, 5), (1, 5), (1, 0)])
def test_who_has_something_to_prefill_needs_a_chunk(generated: int, computed: int) -> None:
    batch = Batch(LIMITS)
    r = waiting(batch)
    r.generated = generated
    with pytest.raises(PolicyError, match="given a chunk of 0 tokens"):
        batch.admit(r, 0, computed=computed)


def test_kv_of_its_own_and_cached_blocks_do_not_mix() -> None:
    batch = Batch(LIMITS)
    r = waiting(batch)
    with pytest.raises(PolicyError, match="on cached blocks and with KV of its own"):
        batch.admit(r, 1, hit=[batch], computed=4)  # type: ignore[list-item]


def test_a_simulated_request_that_joins_has_its_tokens_when_they_are_due() -> None:
    def joins(b: Batch) -> None:
        if b.edits == 0:
            for r in b.waiting.head(1):
                b.admit(r, 0, computed=r.prompt)

    for options in ({}, {"skip": False}, {"audit": True}):
        requests = [Request(i, 0.5 * i, prompt=4, output=4) for i in range(2)]
        for r in requests:
            r.generated = 1  # its first token came elsewhere
        simulator = Simulator(joins, Constant(1.0), LIMITS, **options)
        simulator.run(requests)
        # 0 decodes in [0, 1], [1, 2], [2, 3]; 1 joins at 1.0
        assert finished(requests) == [3.0, 4.0]
        assert scheduled(simulator) == [{0: 1}, {0: 1, 1: 1}, {0: 1, 1: 1}, {1: 1}]
        assert [step.brought for step in walk(simulator)] == [[(0, 4)], [(1, 4)], [], []]


# --- schedules ------------------------------------------------------------------

# Four blocks of 4.  Both prompts of 4 at 0; each then fills a second block, and at the end of the fifth
# step, with 8 tokens each, request 0 needs a block that only 1 can give.
SHORT = Limits(block_size=4, num_kv_blocks=4, enable_prefix_caching=False)
BOTH = load((0.0, 4, 8), (0.0, 4, 8))
RECOMPUTE = Swapper(preemption_mode="recompute")


def test_a_victim_goes_to_host_memory_and_decodes_on_when_it_is_back() -> None:
    # 0.0   both prompts, then 4 decodes of both                until 5.0
    # 5.0   1 goes: 2 blocks in 1/2 s; the step waits           until 5.5
    # 5.5   0 decodes three times                               until 8.5; it ends
    # 8.5   1 comes back: 1/2 s                                 until 9.0
    # 9.0   1 decodes three times                               until 12.0
    assert finished(served(Swapper(), BOTH, Constant(1.0), SHORT)) == [8.5, 12.0]
    simulator = walked(Swapper(), BOTH, Constant(1.0), SHORT)
    assert scheduled(simulator) == [{0: 4, 1: 4}] + [{0: 1, 1: 1}] * 4 + [{0: 1}] * 3 + [{1: 1}] * 3
    assert [step.free_blocks_sched for step in walk(simulator)] == [2, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert [step.free_blocks for step in walk(simulator)][4] == 2  # 1 has left by the time of step 5
    assert [(step.swapped, step.brought) for step in walk(simulator)][5:9] == [
        ([1], []), ([], []), ([], []), ([], [(1, 8)]),
    ]  # fmt: skip
    assert list(simulator.log.column("transfers")) == [1, OUT, 8, 1, IN, 8]
    assert list(simulator.log.seconds("transfer_times")) == [5.0, 5.5, 8.5, 9.0]


def test_by_recomputation_the_same_victim_prefills_again() -> None:
    # 5.0 1 loses its blocks; 0 decodes until 8.0; 1 recomputes 4 + 5 tokens until 9.0, and decodes twice.
    assert finished(served(RECOMPUTE, BOTH, Constant(1.0), SHORT)) == [8.0, 11.0]
    simulator = walked(RECOMPUTE, BOTH, Constant(1.0), SHORT)
    assert scheduled(simulator)[5:9] == [{0: 1}] * 3 + [{1: 9}]


def test_over_an_infinitely_fast_link_a_swap_costs_nothing() -> None:
    fast = Swapper(swap_bandwidth=1e18)
    cost = Linear(base=1.0, prefill=2**-4)
    by_swap, again = (served(policy, BOTH, cost, SHORT) for policy in (fast, RECOMPUTE))
    assert finished(by_swap) == pytest.approx([8.5, 11.5], abs=1e-9)  # prompts of 8 took 1.5 s
    assert finished(again) == [8.5, 11.5 + 9 * 2**-4]


@pytest.mark.parametrize(("transfer", "gain"), [(2**-3, 1), (9 * 2**-5, 0), (2**-1, -1)])
def test_a_swap_pays_where_both_transfers_take_less_than_computing_again(transfer: float, gain: int) -> None:
    # Recomputing takes 9 prompt tokens, 9/16 s, beside the token that both get in that step.
    cost = Linear(base=1.0, prefill=2**-4)
    by_swap = served(Swapper(swap_bandwidth=8 / transfer), BOTH, cost, SHORT)
    again = served(RECOMPUTE, BOTH, cost, SHORT)
    assert again[1].finished - by_swap[1].finished == pytest.approx(9 * 2**-4 - 2 * transfer, abs=1e-12)
    assert (by_swap[1].finished < again[1].finished) == (gain > 0)
    assert by_swap[0].finished == pytest.approx(again[0].finished + transfer, abs=1e-12)


def test_host_memory_that_is_full_makes_the_victim_recompute() -> None:
    small = Swapper(swap_space=7 * 2**-30)  # 7 tokens: one block of 4, where two are needed
    assert finished(served(small, BOTH, Constant(1.0), SHORT)) == [8.0, 11.0]


def test_nobody_new_is_admitted_while_somebody_is_in_host_memory() -> None:
    # As above; 2, of one block, comes at 5.25 and would fit at 5.5.  It waits for 1 to come back at 9.0, and
    # for the step that 1 came back for.
    make = load((0.0, 4, 8), (0.0, 4, 8), (5.25, 4, 1))
    assert finished(served(Swapper(), make, Constant(1.0), SHORT)) == [8.5, 13.0, 11.0]


def test_a_lone_request_that_is_short_of_blocks_comes_back() -> None:
    # 3 blocks: 0 and 1 fill two at 4.0... 1 leaves, then 0 ends alone, whatever its own needs were.
    limits = Limits(block_size=4, num_kv_blocks=3, enable_prefix_caching=False)
    requests = served(Swapper(), load((0.0, 4, 8), (0.0, 4, 8)), Constant(1.0), limits)
    assert [r.preemptions for r in requests] == [0, 1]
    assert first_tokens(requests) == [1.0, 1.0]
    # 1.0 both need a block, one is free: 1 goes with its one block in 1/4 s; 0 decodes 7 times from 1.25 on.
    assert finished(requests) == [8.25, 8.5 + 7.0]


# --- transfers beside steps ---------------------------------------------------------


class Beside:
    """Swaps request 1 out after its first decode, and back when request 0 has ended; nobody waits for it."""

    def __init__(self, link: Link = LINK) -> None:
        self.link = link

    def begin(self, batch: Batch) -> Beside:
        batch.host = HostMemory(self.link)
        return self

    def __call__(self, b: Batch) -> None:
        assert b.host is not None
        if b.edits > 0:
            return
        for r in b.waiting.head(b.num_waiting):
            b.admit(r, r.prompt)
        if b.tick_count == 2 and b.num_decoding == 2:
            swap_out(b, b.newest())
        elif not b.running and b.num_swapped > 0:
            swap_in(b, next(iter(b.host.swapped)))
        elif b.tick_count < 2:
            b.wake_after(2 - b.tick_count)


def test_a_transfer_ends_at_the_first_step_boundary_behind_it() -> None:
    # 2.0 1 goes with 5 tokens, two blocks, in 1/2 s; step [2, 3] has them still, step [3, 4] does not.
    # 0 ends at 4.0; 1 is back at 4.5.
    make = load((0.0, 4, 4), (0.0, 4, 4))
    assert finished(served(Beside(), make, Constant(1.0), SHORT)) == [4.0, 6.5]
    simulator = walked(Beside(), make, Constant(1.0), SHORT)
    assert [step.free_blocks_sched for step in walk(simulator)] == [2, 0, 0, 2, 2, 2]
    assert list(simulator.log.seconds("transfer_times")) == [2.0, 2.5, 4.0, 4.5]


def test_a_transfer_that_ends_in_a_quiet_stretch_cuts_it() -> None:
    # 1 goes from 2.0 to 5.5: its blocks are free from 6.0 on, whatever 0 does until 100.0.
    late = Link(bandwidth=16.0, bytes_per_token=1.0, latency=3.0)
    simulator = Simulator(Beside(late), Constant(1.0), Limits(block_size=4, num_kv_blocks=99))
    simulator.run(load((0.0, 4, 100), (0.0, 4, 4))())
    assert list(simulator.log.column("steps"))[:5] == [1, 1, 1, 3, 94]
    assert list(simulator.log.column("freed"))[3] == 2


class Never(Beside):
    """Never lets it back."""

    def __call__(self, b: Batch) -> None:
        if b.num_swapped == 0:
            super().__call__(b)


def test_who_is_left_in_host_memory_starves() -> None:
    simulator = Simulator(Never(), Constant(1.0), SHORT)
    with pytest.raises(PolicyError, match=r"policy starves 1 requests at 4\.0 s"):
        simulator.run(load((0.0, 4, 4), (0.0, 4, 4))())


class Undecided(Beside):
    """Swaps in and out for ever."""

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        for r in b.waiting.head(1):
            b.admit(r, r.prompt)
        for r in list(b.running):
            if r.state == DECODING:
                swap_out(b, r)
        assert b.host is not None
        for r in list(b.host.swapped):
            swap_in(b, r)


def test_swaps_that_bring_no_token_come_to_an_end() -> None:
    simulator = Simulator(Undecided(Link(bandwidth=inf, bytes_per_token=1.0)), Constant(1.0), SHORT)
    with pytest.raises(PolicyError, match=r"preempted or computed nothing in 10\d\d steps without a token"):
        simulator.run(load((0.0, 4, 4))())


# --- the flags of a policy ----------------------------------------------------------


@pytest.mark.parametrize("flags", [{"swap_bandwidth": None}, {"kv_bytes_per_token": None}])
def test_a_swap_over_a_link_that_nobody_knows_is_refused(flags: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="swapper: preemption_mode swap needs swap_bandwidth and kv_bytes"):
        Simulator(Swapper(**flags), Constant(1.0))


def test_flags_take_the_place_of_what_the_gpu_and_the_model_say() -> None:
    cost = Roofline("L4", "qwen2.5-7b")
    each = cost.kv_bytes_per_token
    for flags, link in (
        ({}, Link(bandwidth=32e9, bytes_per_token=each)),
        ({"swap_bandwidth": 1e9}, Link(bandwidth=1e9, bytes_per_token=each)),
        ({"kv_bytes_per_token": 8.0}, Link(bandwidth=32e9, bytes_per_token=8.0)),
    ):
        asked = {"swap_bandwidth": None, "kv_bytes_per_token": None} | flags
        batch = Simulator(Swapper(swap_space=2.0, **asked), cost, Limits(block_size=16)).batch
        assert batch.host is not None and batch.host.link == link
        assert batch.host.size == int(2 * 2**30 // (16 * link.bytes_per_token))


# --- live -----------------------------------------------------------------------


def test_an_engine_cannot_swap_and_a_policy_that_does_is_refused() -> None:
    for policy in (Swapper(), VllmV0(preemption_mode="swap", swap_bandwidth=1e9, kv_bytes_per_token=1.0)):
        with pytest.raises(PolicyError, match="swaps KV to host memory, which the engines here cannot"):
            Live(policy, engine_of(LIVE), LIVE)


@pytest.mark.parametrize(("tokens", "computed"), [(0, 20), (5, 16)])
def test_an_engine_has_no_kv_that_comes_with_a_request(tokens: int, computed: int) -> None:
    def joins(b: Batch) -> None:
        if b.edits == 0:
            for r in b.waiting.head(1):
                b.admit(r, tokens, computed=computed)

    live = Live(joins, engine_of(LIVE), LIVE)
    asked = sequence(0)
    asked.request.generated = 1
    live.add(asked)
    with pytest.raises(PolicyError, match="request 0 is admitted with KV that the engine does not have"):
        live.step()
