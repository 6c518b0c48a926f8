"""How many free blocks stay cached, and whose cache is lost first, against a pool that sorts its list."""

from __future__ import annotations

from array import array
from collections import Counter
from random import Random
from typing import Any

import pytest

import reference
from batchwright import Constant, Limits, Request, Simulator
from batchwright.blocks import Blocks
from batchwright.engines.live import Live
from batchwright.engines.mock import Mock
from batchwright.errors import InputError, LimitError
from batchwright.export.replay import _notes
from batchwright.policies import Vllm
from batchwright.ranked import EVICTIONS, LFU, LRU
from batchwright.scenario.build import prepare
from batchwright.scenario.text import read
from batchwright.workload import Workload
from reference import Pool
from strategies import for_every_seed, requests_of, timed_workload
from test_blocks import LONGEST, Both, hits, holder, keys, one_operation
from test_properties import LINEAR, Load, assert_over, assert_same, limits_of, real_valued, vllm_of


class RankedPool(Pool):
    """A pool whose free list is sorted anew after every release, and cut to `keep` named blocks."""

    def __init__(self, num_blocks: int, caching: bool, keep: int = -1, eviction: str = LRU) -> None:
        super().__init__(num_blocks, caching)
        self.keep, self.eviction = keep, eviction
        self.num_releases = 0
        self.hits: Counter[int] = Counter()
        self.released: dict[int, int] = {}

    def take(self, count: int) -> list[int]:
        taken = super().take(count)
        for block in taken:
            self.hits[block] = 0
        return taken

    def share(self, blocks: list[int]) -> None:
        super().share(blocks)
        self.hits.update(blocks)

    def release(self, blocks: list[int]) -> None:
        super().release(blocks)
        for block in reversed(blocks):
            if self.users[block] == 0:
                self.num_releases += 1
                self.released[block] = self.num_releases
        named = sorted((block for block in self.free if block in self.key_of), key=self.rank)
        over = 0 if self.keep < 0 else max(len(named) - self.keep, 0)
        for block in named[:over]:
            self.holders[self.key_of.pop(block)].remove(block)
        self.free = [block for block in self.free if block not in self.key_of] + named[over:]

    def rank(self, block: int) -> tuple[int, int]:
        return (self.hits[block] if self.eviction == LFU else 0, self.released[block])


def both_of(size: int, block_size: int, keep: int, eviction: str) -> Both:
    both = Both(size, block_size)
    both.blocks = Blocks(size, block_size, True, keep, eviction)
    both.pool = RankedPool(size + 1, True, keep, eviction)
    return both


@pytest.mark.parametrize("eviction", EVICTIONS)
@for_every_seed(60)
def test_counting_agrees_with_a_list_that_is_sorted(seed: int, eviction: str) -> None:
    random = Random(seed)
    both = both_of(random.choice([5, 20, 60]), random.choice([1, 4]), random.choice([-1, 0, 3, 20]), eviction)
    for id in range(120):
        one_operation(both, random, id)
        both.check()
    both.check_order()


class RankedReference(reference.VllmReference):
    def __init__(self, config: dict[str, Any], keep: int, eviction: str) -> None:
        super().__init__(config)
        self.pool = RankedPool(config["num_blocks"], config["enable_prefix_caching"], keep, eviction)


def limited(load: Load, random: Random) -> Limits:
    """The limits of a load, with another prefix cache."""
    values = {name: getattr(limits_of(load["config"]), name) for name in NAMES}
    keep = random.choice([None, 0, 2, 10])
    return Limits(**values, prefix_cache_blocks=keep, prefix_eviction=random.choice(EVICTIONS))


NAMES = (
    "max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size", "num_kv_blocks",
    "enable_prefix_caching",
)  # fmt: skip


@for_every_seed(80)
def test_vllm_takes_the_time_that_the_reference_takes_with_any_prefix_cache(seed: int) -> None:
    load = timed_workload(seed)
    limits = limited(load, Random(seed))
    keep = -1 if limits.prefix_cache_blocks is None else limits.prefix_cache_blocks
    expected = reference.timed(
        load, reference.linear(), lambda config: RankedReference(config, keep, limits.prefix_eviction)
    )
    simulator, requests = Simulator(vllm_of(load["config"]), LINEAR, limits), requests_of(load)
    simulator.run(requests)
    assert_over(simulator, requests)
    for r, row in zip(requests, expected.values(), strict=True):
        assert (r.first_token, r.finished, r.preemptions) == (
            row["first_token"], row["finished"], row["preemptions"],
        )  # fmt: skip


@for_every_seed(40)
def test_skipped_steps_give_the_bits_of_walked_ones_with_any_prefix_cache(seed: int) -> None:
    load = real_valued(seed)
    limits, runs = limited(load, Random(seed)), []
    for options in ({}, {"skip": False}, {"audit": True}):
        simulator, requests = Simulator(vllm_of(load["config"]), LINEAR, limits, **options), requests_of(load)
        simulator.run(requests)
        runs.append((simulator, requests))
    assert_same(runs[0], runs[1])
    assert_same(runs[0], runs[2])


# --- by hand ------------------------------------------------------------------------------------


def released(blocks: Blocks, *families: int) -> None:
    """Prefixes of one block each, released in this order."""
    for id, family in enumerate(families):
        blocks.release(holder(blocks, id, keys(family, 1), 4), 4, 4, False)


def hit(blocks: Blocks, family: int) -> None:
    """A request starts from the prefix of a family and leaves."""
    r = Request(50, 0.0, 5, 1, prefix=keys(family, 1))
    blocks.share(r, blocks.lookup(r))
    blocks.release(r, 4, 4, False)


def lost(blocks: Blocks, count: int) -> list[int]:
    """The families in the order in which they are evicted."""
    found: list[int] = []
    for _ in range(count):
        blocks.take(1)
        found += [f for f in range(count) if f not in found and hits(blocks, keys(f, 1)) == 0]
    return found


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_a_prefix_that_is_used_again_stays_longer(eviction: str) -> None:
    blocks = Blocks(3, 4, True, -1, eviction)
    released(blocks, 0, 1, 2)
    hit(blocks, 1)
    assert lost(blocks, 3) == [0, 2, 1]


def test_under_lfu_what_was_hit_most_stays_however_old_it_is() -> None:
    for eviction, order in ((LRU, [0, 1, 2]), (LFU, [2, 1, 0])):
        blocks = Blocks(3, 4, True, -1, eviction)
        released(blocks, 0, 1, 2)
        for family in (0, 0, 1, 2):
            hit(blocks, family)
        if eviction == LFU:
            hit(blocks, 1)
            hit(blocks, 0)
        assert lost(blocks, 3) == order


@pytest.mark.parametrize("eviction", EVICTIONS)
def test_the_tail_of_a_prompt_goes_before_its_head(eviction: str) -> None:
    blocks = Blocks(3, 4, True, -1, eviction)
    blocks.release(holder(blocks, 0, keys(0, 3), 12), 12, 12, False)
    left = []
    for _ in range(3):
        blocks.take(1)
        left.append(hits(blocks, keys(0, 3)))
    assert left == [2, 1, 0]


def test_so_many_free_blocks_stay_cached_and_no_more() -> None:
    blocks = Blocks(8, 4, True, 2)
    released(blocks, 0, 1, 2)
    assert [hits(blocks, keys(f, 1)) for f in range(3)] == [0, 1, 1]
    assert (blocks.free, blocks.num_cached) == (8, 2)
    blocks.check([], 0)


def test_a_cache_of_no_free_blocks_is_shared_by_those_that_run() -> None:
    blocks = Blocks(8, 4, True, 0)
    first = holder(blocks, 0, keys(0, 1), 4)
    assert hits(blocks, keys(0, 1)) == 1
    second = Request(1, 0.0, 5, 1, prefix=keys(0, 1))
    blocks.share(second, blocks.lookup(second))
    blocks.release(first, 4, 4, False)
    assert hits(blocks, keys(0, 1)) == 1
    blocks.release(second, 4, 4, False)
    assert hits(blocks, keys(0, 1)) == 0


def test_a_long_run_of_hits_does_not_make_the_list_longer() -> None:
    both = both_of(8, 4, -1, LFU)
    sizes = []
    for id in range(3000):
        r = Request(id, 0.0, 9, 1, prefix=keys(id % 2, 2))
        both.come(r)
        assert both.admit(r, LONGEST, 9, 0)
        both.leave(r, again=False)
        sizes.append(both.blocks._num_entries())
    assert max(sizes) < 2200
    both.check()


# --- in a server --------------------------------------------------------------------------------


def popular(count: int) -> list[Request]:
    """Two with the system prompt that half of all share, then two that are alone with theirs."""
    made = []
    for i in range(count):
        first = 0 if i % 4 < 2 else 1000 * i
        made.append(Request(i, 1.0 * i, 65, 1, prefix=array("q", range(first, first + 16))))
    return made


def found(count: int = 60, **limits: Any) -> int:
    requests = popular(count)
    given = Limits(max_num_seqs=1, block_size=4, num_kv_blocks=100, **limits)
    Simulator(Vllm(async_scheduling=False), Constant(0.5), given).run(requests)
    return sum(r.cached for r in requests)


def test_a_small_cache_finds_less_and_a_better_rule_finds_more() -> None:
    whole = found()
    assert whole == 29 * 64  # all but the first that ask for the shared prompt
    assert found(prefix_cache_blocks=32) == 15 * 64  # two prompts in between push it out
    assert found(prefix_cache_blocks=32, prefix_eviction=LFU) == whole
    assert found(prefix_cache_blocks=0) == 0 == found(enable_prefix_caching=False)


def test_a_live_engine_has_the_same_cache() -> None:
    sizes = {"num_kv_blocks": 40, "block_size": 4, "max_model_len": 128, "vocab_size": 100}
    seat = {"max_num_seqs": 1, "block_size": 4, "num_kv_blocks": 40}
    limits = Limits(**seat, prefix_cache_blocks=16, prefix_eviction=LFU)
    live = Live(Vllm(), Mock(Constant(0.5), **sizes, is_real=False), limits)
    assert live.blocks._keep == 16 and live.blocks._ranked is not None


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"prefix_cache_blocks": -1}, "prefix_cache_blocks is -1, but must be a whole number of at least 0"),
        ({"prefix_cache_blocks": 2.5}, "prefix_cache_blocks is 2.5, but must be a whole number"),
        ({"prefix_eviction": "mru"}, "prefix_eviction is 'mru'; known: lru, lfu"),
    ],
)
def test_limits_refuse_a_cache_that_cannot_be(flags: dict[str, Any], why: str) -> None:
    with pytest.raises(LimitError, match=why):
        Limits(**flags)


def test_a_scenario_sets_the_cache() -> None:
    sets = ["cost=constant(0.025)", "prefix_cache_blocks=100", "prefix_eviction=lfu"]
    limits = prepare(read("chat(n=9)", sets=sets)).limits
    assert (limits.prefix_cache_blocks, limits.prefix_eviction) == (100, LFU)
    with pytest.raises(InputError, match="--prefix-cache-blocks is given, but prefix caching is off"):
        prepare(read("chat(n=9)", sets=[*sets, "enable_prefix_caching=false"]))


def test_a_replay_says_that_vllm_has_no_such_cache() -> None:
    load = Workload.open("chat(n=5)")
    said = [" ".join(_notes(load, Limits(**flags), Vllm())) for flags in ({}, {"prefix_cache_blocks": 9})]
    assert ["the prefix cache: vLLM keeps what fits" in text for text in said] == [False, True]
