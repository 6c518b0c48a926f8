"""KV blocks, which only count, against a pool in which every block has an id.

The pool is that of the reference loop: a free list in the order of reuse, and for every key
the blocks that hold it.  Both must agree on what is free and on what every request can hit.
"""

from __future__ import annotations

from array import array
from random import Random

import pytest

from batchwright.blocks import Blocks
from batchwright.errors import PolicyError
from batchwright.request import Block, Request
from reference import Key, Pool
from strategies import for_every_seed

FAMILIES = 3  # of prefixes
LONGEST = 12  # blocks of a prefix


def keys(family: int, blocks: int) -> array[int]:
    return array("q", range(100 * family, 100 * family + blocks))


class Both:
    """Every operation on the blocks and on the pool.  `size` blocks of `block_size` tokens."""

    def __init__(self, size: int, block_size: int, caching: bool = True) -> None:
        self.blocks = Blocks(size, block_size, caching)
        self.pool = Pool(size + 1, caching)
        self.held: dict[Request, list[int]] = {}  # ids by holder
        self.named: dict[Request, int] = {}  # leading ids that have a key
        self.waiting: list[Request] = []

    # --- the pool's side ----------------------------------------------------------

    def key(self, r: Request, j: int) -> Key:
        if j < len(r.prefix):
            return ("group", r.prefix[j], 0)
        return ("own", r.id, j)

    def found(self, r: Request) -> list[int]:
        """The ids that `r` would hit."""
        ids: list[int] = []
        for j in range((r.prompt + r.generated - 1) // self.blocks.block_size):
            block = self.pool.find(self.key(r, j))
            if block is None:
                break
            ids.append(block)
        return ids

    def name(self, r: Request, tokens: int) -> None:
        for j in range(self.named[r], tokens // self.blocks.block_size):
            self.pool.name(self.held[r][j], self.key(r, j))
            self.named[r] = j + 1

    # --- operations on both ------------------------------------------------------------

    def come(self, r: Request) -> None:
        self.waiting.append(r)

    def admit(self, r: Request, most_hit: int, tokens: int, reserve: int) -> bool:
        """Start `r` on at most `most_hit` cached blocks with `tokens` more tokens, if they fit."""
        hit, ids = self.blocks.lookup(r)[:most_hit], self.found(r)[:most_hit]
        tokens = min(tokens, r.prompt + r.generated - len(hit) * self.blocks.block_size)
        total = self.blocks.count(max(len(hit) * self.blocks.block_size + tokens, reserve))
        if total - len(hit) + sum(block.users == 0 for block in hit) > self.blocks.free:
            return False
        self.waiting.remove(r)
        self.blocks.share(r, hit)
        self.pool.share(ids)
        self.held[r], self.named[r] = list(ids), len(ids)
        r.computed = len(hit) * self.blocks.block_size
        r.reserved = self.blocks.count(reserve)
        self.grow(r, tokens, total)
        return True

    def grow(self, r: Request, tokens: int, total: int) -> None:
        """Compute `tokens` tokens of `r`, which then has `total` blocks."""
        need = total - len(self.held[r])
        self.blocks.take(need)
        self.held[r] += self.pool.take(need)
        r.computed += tokens
        r.generated = max(r.generated, r.computed - r.prompt)
        self.blocks.publish(r, r.computed)
        self.name(r, r.computed)

    def chunk(self, r: Request, tokens: int) -> bool:
        total = max(self.blocks.count(r.computed + tokens), r.reserved)
        if total - len(self.held[r]) > self.blocks.free:
            return False
        self.grow(r, tokens, total)
        return True

    def leave(self, r: Request, again: bool) -> None:
        self.blocks.release(r, r.computed, r.computed, again)
        self.pool.release(self.held.pop(r))
        del self.named[r]
        r.computed = r.reserved = 0
        if again:
            r.preemptions += 1
            self.waiting.append(r)

    # --- what must agree ------------------------------------------------------------------

    def check(self) -> None:
        assert self.blocks.free == len(self.pool.free)
        self.blocks.check(self.held, sum(len(ids) for ids in self.held.values()))
        self.check_hits()

    def check_hits(self) -> None:
        long = self.blocks.block_size * LONGEST + 1
        probes = [Request(10_000 + f, 0.0, long, 1, prefix=keys(f, LONGEST)) for f in range(FAMILIES)]
        for r in (*probes, *self.waiting):
            assert len(self.blocks.lookup(r)) == len(self.found(r))

    def check_order(self) -> None:
        """Take the free blocks one by one: the same keys are lost at the same time."""
        while self.blocks.free > 0:
            self.blocks.take(1)
            self.pool.take(1)
            self.check_hits()
        with pytest.raises(PolicyError, match="the step needs 1 KV blocks, but 0 are free"):
            self.blocks.take(1)


def one_operation(both: Both, random: Random, id: int) -> None:
    size = both.blocks.block_size
    kind = random.random()
    if kind < 0.3:
        r = Request(id, 0.0, random.randint(1, size * LONGEST), 1)
        if random.random() < 0.7:
            shared = random.randint(0, r.prompt // size)
            r = Request(id, 0.0, r.prompt, 1, prefix=keys(random.randrange(FAMILIES), shared))
        both.come(r)
    elif kind < 0.6 and both.waiting:
        most_hit = random.choice([LONGEST, LONGEST, 1, 0])
        reserve = random.choice([0, 0, 3 * size * LONGEST])
        both.admit(random.choice(both.waiting), most_hit, random.randint(1, size * LONGEST), reserve)
    elif kind < 0.85 and both.held:
        both.chunk(random.choice(list(both.held)), random.randint(1, 2 * size))
    elif both.held:
        both.leave(random.choice(list(both.held)), again=random.random() < 0.4)


@for_every_seed(120)
def test_counting_agrees_with_blocks_that_have_an_id(seed: int) -> None:
    random = Random(seed)
    size = random.choice([1, 2, 4, 16])
    both = Both(random.choice([5, 20, 60, 200]), size, caching=random.random() < 0.9)
    for id in range(150):
        one_operation(both, random, id)
        both.check()
    both.check_order()


# --- by hand -----------------------------------------------------------------------------


def holder(blocks: Blocks, id: int, prefix: array[int], tokens: int) -> Request:
    """A request that has computed `tokens` tokens, without looking for a cached prefix."""
    r = Request(id, 0.0, tokens, 1, prefix=prefix)
    blocks.take(blocks.count(tokens))
    r.computed = tokens
    blocks.publish(r, tokens)
    return r


def hits(blocks: Blocks, prefix: array[int]) -> int:
    return len(blocks.lookup(Request(99, 0.0, 4 * len(prefix) + 1, 1, prefix=prefix)))


def test_released_blocks_are_evicted_the_oldest_first_and_tails_before_heads() -> None:
    blocks = Blocks(6, 4, True)
    old, new = holder(blocks, 0, keys(0, 2), 8), holder(blocks, 1, keys(1, 3), 12)
    blocks.release(old, 8, 8, False)
    blocks.release(new, 12, 12, False)
    assert (blocks.free, blocks.num_cached) == (6, 5)
    left = []
    for _ in range(6):
        blocks.take(1)
        left.append((hits(blocks, keys(0, 2)), hits(blocks, keys(1, 3))))
    assert left == [(2, 3), (1, 3), (0, 3), (0, 2), (0, 1), (0, 0)]


def test_a_hit_block_is_released_last_again() -> None:
    blocks = Blocks(2, 4, True)
    for family in (0, 1):
        blocks.release(holder(blocks, family, keys(family, 1), 4), 4, 4, False)
    r = Request(5, 0.0, 5, 1, prefix=keys(0, 1))
    blocks.share(r, blocks.lookup(r))
    assert blocks.free == 1
    blocks.release(r, 4, 4, False)
    blocks.take(1)
    assert (hits(blocks, keys(0, 1)), hits(blocks, keys(1, 1))) == (1, 0)


def test_a_block_in_use_is_never_evicted() -> None:
    blocks = Blocks(3, 4, True)
    holder(blocks, 0, keys(0, 2), 8)
    blocks.take(1)
    assert hits(blocks, keys(0, 2)) == 2
    with pytest.raises(PolicyError, match="the step needs 2 KV blocks, but 0 are free"):
        blocks.take(2)


def test_of_two_blocks_with_the_same_tokens_the_second_stays_when_the_first_is_evicted() -> None:
    blocks = Blocks(2, 4, True)
    first, second = (holder(blocks, id, keys(0, 1), 4) for id in range(2))
    assert blocks.num_cached == 1
    blocks.release(first, 4, 4, False)
    blocks.take(1)
    assert hits(blocks, keys(0, 1)) == 1
    blocks.release(second, 4, 4, False)
    blocks.take(1)
    assert (hits(blocks, keys(0, 1)), blocks.num_cached) == (0, 0)


def test_of_two_blocks_with_the_same_tokens_the_first_stays_when_the_second_is_evicted() -> None:
    blocks = Blocks(2, 4, True)
    first, second = (holder(blocks, id, keys(0, 1), 4) for id in range(2))
    blocks.release(second, 4, 4, False)
    blocks.take(1)
    assert hits(blocks, keys(0, 1)) == 1
    blocks.release(first, 4, 4, False)
    blocks.take(1)
    assert hits(blocks, keys(0, 1)) == 0


def test_a_preempted_request_finds_its_own_blocks_and_nobody_else_does() -> None:
    blocks = Blocks(4, 4, True)
    r = holder(blocks, 0, keys(0, 0), 12)
    assert blocks.lookup(Request(0, 0.0, 12, 1)) == []
    r.generated = 2
    blocks.release(r, 13, 13, True)
    r.preemptions = 1
    assert len(blocks.lookup(r)) == 3
    assert blocks.lookup(Request(1, 0.0, 12, 1)) == []


def test_only_tokens_that_are_known_are_kept() -> None:
    blocks = Blocks(4, 4, True)
    r = holder(blocks, 0, keys(0, 0), 12)
    r.generated = 2
    blocks.release(r, 12, 11, True)
    r.preemptions = 1
    assert len(blocks.lookup(r)) == 2


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    blocks = Blocks(8, 4, True)
    holder(blocks, 0, keys(0, 2), 8)
    found = [len(blocks.lookup(Request(1, 0.0, prompt, 1, prefix=keys(0, 2)))) for prompt in (8, 9)]
    assert found == [1, 2]


def test_blocks_that_nobody_can_hit_are_not_remembered() -> None:
    blocks = Blocks(4, 4, True)
    blocks.release(holder(blocks, 0, keys(0, 1), 15), 15, 15, False)
    assert (blocks.free, blocks.num_cached) == (4, 1)


def test_without_caching_nothing_is_kept() -> None:
    blocks = Blocks(4, 4, False)
    r = holder(blocks, 0, keys(0, 2), 8)
    blocks.release(r, 8, 8, True)
    r.preemptions = 1
    assert blocks.free == 4
    assert blocks.lookup(r) == [] == blocks.lookup(Request(1, 0.0, 12, 1, prefix=keys(0, 2)))


def test_a_reserve_is_released_whole() -> None:
    for caching in (False, True):
        blocks = Blocks(9, 4, caching)
        r = Request(0, 0.0, 6, 1)
        blocks.take(7)
        r.reserved = 7
        blocks.release(r, 6, 6, False)
        assert blocks.free == 9
        blocks.check([], 0)


def test_a_prefix_that_is_hit_again_and_again_does_not_make_the_free_list_longer() -> None:
    both = Both(8, 4)
    sizes = []
    for id in range(3000):
        r = Request(id, 0.0, 9, 1, prefix=keys(id % 2, 2))
        both.come(r)
        assert both.admit(r, LONGEST, 9, 0)
        both.leave(r, again=False)
        sizes.append(len(both.blocks._released))
    assert max(sizes) < 2200  # 1024 stale entries at most, and as many before a sweep pays
    assert sizes[-1] < max(sizes)
    both.check()
    both.check_order()


def test_a_block_shares_with_many() -> None:
    blocks = Blocks(4, 4, True)
    first = holder(blocks, 0, keys(0, 1), 4)
    others = [Request(id, 0.0, 5, 1, prefix=keys(0, 1)) for id in range(1, 9)]
    for r in others:
        blocks.share(r, blocks.lookup(r))
    shared: list[Block] = first.blocks
    assert (blocks.free, shared[0].users) == (3, 9)
    for r in [first, *others]:
        assert blocks.free == 3
        blocks.release(r, 4, 4, False)
    assert blocks.free == 4
