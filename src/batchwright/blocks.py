"""KV blocks: a counter, and a prefix cache of the released ones.

vLLM's free list is always [blocks without a key][keyed blocks, least recently released
first].  Keyless blocks are interchangeable, so they need no identity: taking is counting,
and only keyed blocks are objects.  A key stands for all tokens up to the end of its block:

    shared blocks   the keys that the workload gave (`Request.prefix`), not negative
    private blocks  -2 - (id << 24 | index): only the request itself can hit them again

How many free blocks keep their keys may be bounded, and who loses its key first may be chosen
(`ranked`); without, both are vLLM's.

Source: vLLM 0.32, `block_pool.py` and `kv_cache_manager.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final, Self

from batchwright.errors import PolicyError
from batchwright.limits import Limits
from batchwright.ranked import LFU, LRU, Ranked
from batchwright.request import NO_BLOCKS, Block, Request

LONGEST_BITS: Final = 24  # of a block's index: a request has at most LONGEST tokens
PRIVATE: Final = -1  # key of a run of blocks that nobody can hit again


class Blocks:
    """`size` blocks of `block_size` tokens; `caching` keeps released prefixes.

    `keep`: so many free blocks keep their keys at most (-1: all).  `eviction`: of `ranked.EVICTIONS`.
    """

    def __init__(
        self, size: int, block_size: int, caching: bool, keep: int = -1, eviction: str = LRU
    ) -> None:
        self.size = size
        self.block_size = block_size
        self.caching = caching
        self.free = size
        self._keyless = size  # free blocks that hold nothing of use
        self._keep = keep
        self._released: deque[Block] = deque()  # free blocks with a key, oldest first,
        self._ranked = Ranked() if eviction == LFU else None  # or in another order
        self._stale = 0  # entries of `_released` that were taken again
        self._cached: dict[int, Block] = {}

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """The KV cache of a server with these limits."""
        keep = -1 if limits.prefix_cache_blocks is None else limits.prefix_cache_blocks
        caching, eviction = limits.enable_prefix_caching, limits.prefix_eviction
        return cls(limits.blocks, limits.block_size, caching, keep, eviction)

    @property
    def num_cached(self) -> int:
        """Keys that a request can hit."""
        return len(self._cached)

    def count(self, tokens: int) -> int:
        """Blocks that hold `tokens` tokens."""
        return (tokens + self.block_size - 1) // self.block_size

    def take(self, n: int) -> None:
        """Take `n` free blocks, evicting the least recently released keys."""
        self.free -= n
        if self.free < 0:
            raise PolicyError(
                f"the step needs {n} KV blocks, but {self.free + n} are free; "
                "preempt a request or chunk fewer tokens"
            )
        if self.caching:
            self._keyless -= n
            if self._keyless < 0:
                self._evict(-self._keyless)
                self._keyless = 0

    def lookup(self, r: Request) -> list[Block]:
        """The cached blocks that `r` can start from; its last token is always computed."""
        if not self.caching:
            return NO_BLOCKS
        most = (r.prompt + r.generated - 1) // self.block_size
        if r.preemptions == 0 and most > len(r.prefix):
            most = len(r.prefix)
        if most == 0:
            return NO_BLOCKS
        hit = []
        for j in range(most):
            found = self._cached.get(self._key(r, j))
            if found is None:
                break
            hit.append(found)
        return hit

    def share(self, r: Request, hit: list[Block]) -> None:
        """Give `r` the blocks that `lookup` found."""
        for block in hit:
            if block.users == 0:
                block.stale += 1
                self._stale += 1
                self.free -= 1
            block.users += 1
            block.hits += 1
        r.blocks = hit
        if self._stale > 1024 and 2 * self._stale > self._num_entries():
            self._sweep()

    def publish(self, r: Request, tokens: int) -> None:
        """Let others hit the shared full blocks among the first `tokens` tokens of `r`."""
        have = len(r.blocks)
        full = min(tokens // self.block_size, len(r.prefix))
        if full <= have:
            return
        if have == 0:
            r.blocks = []
        for j in range(have, full):
            r.blocks.append(self._insert(r, j, 1))

    def release(self, r: Request, tokens: int, known: int, again: bool) -> int:
        """Free the blocks of `r` for `tokens` tokens, tail first; how many of the leading ones have a key.

        Full blocks among the first `known` tokens are cached; `again`: `r` will look for them.
        """
        total = max(self.count(tokens), r.reserved)
        if not self.caching:
            self.free += total
            return 0
        full = known // self.block_size
        have = len(r.blocks)
        self.free += total - have
        self._keyless += total - full
        keyed = full if again else max(have, min(full, len(r.prefix)))
        self._release_run(full - keyed)
        for j in range(keyed - 1, have - 1, -1):
            self._put(self._insert(r, j, 0))
        if have > 0:
            self._release_shared(r)
        if self._keep >= 0:
            self._trim()
        return keyed

    def check(self, holders: Iterable[Request], used: int) -> None:
        """Recompute all counts from the requests that hold blocks.  For tests and audits."""
        users: dict[int, int] = {}
        shared: dict[int, Block] = {}
        for r in holders:
            for block in r.blocks:
                users[id(block)] = users.get(id(block), 0) + 1
                shared[id(block)] = block
                used -= 1
        assert self.free == self.size - used - len(shared), "free blocks do not add up"
        assert all(block.users == users[key] for key, block in shared.items()), "users do not add up"
        if self.caching:
            live = sum(b.count for b in self._free_list()) - self._stale
            assert self._keep < 0 or live <= self._keep, "more blocks are cached than may be"
            assert self._keyless + live == self.free, "the free list does not add up"
            assert sum(1 for b in self._cached.values() if b.users > 0) <= len(shared)

    def _release_run(self, count: int) -> None:
        """Free `count` full blocks that nobody can hit again."""
        if count <= 0:
            return
        last = self._last_put()
        if last is not None and last.key == PRIVATE:
            last.count += count
        else:
            self._put(Block(PRIVATE, count, 0))

    def _last_put(self) -> Block | None:
        if self._ranked is not None:
            return self._ranked.last()
        return self._released[-1] if self._released else None

    def _put(self, block: Block) -> None:
        """Let `block`, which is free and has a key, wait for its eviction."""
        if self._ranked is None:
            self._released.append(block)
        else:
            self._ranked.put(block)

    def _trim(self) -> None:
        """Evict what is cached beyond what may be."""
        over = self.free - self._keyless - self._keep
        if over > 0:
            self._evict(over)
            self._keyless += over

    def _num_entries(self) -> int:
        return len(self._released) if self._ranked is None else len(self._ranked)

    def _free_list(self) -> Sequence[Block]:
        """All free blocks with a key, in the order of eviction, and stale entries."""
        return self._released if self._ranked is None else self._ranked.blocks()

    def _release_shared(self, r: Request) -> None:
        for block in reversed(r.blocks):
            block.users -= 1
            if block.users == 0:
                self._put(block)
                self.free += 1
        r.blocks = NO_BLOCKS

    def _key(self, r: Request, j: int) -> int:
        return r.prefix[j] if j < len(r.prefix) else -2 - (r.id << LONGEST_BITS | j)

    def _insert(self, r: Request, j: int, users: int) -> Block:
        """Let block `j` of `r` be hit."""
        key = self._key(r, j)
        block = Block(key, 1, users)
        first = self._cached.get(key)
        if first is None:
            self._cached[key] = block
            return block
        while first.twin is not None:
            first = first.twin
        first.twin = block
        return block

    def _evict(self, n: int) -> None:
        while n > 0:
            block = self._released[0] if self._ranked is None else self._ranked.first()
            if block.stale > 0:
                block.stale -= 1
                self._stale -= 1
                self._drop_first()
            elif block.count > n:
                block.count -= n
                return
            else:
                self._drop_first()
                n -= block.count
                if block.key != PRIVATE:
                    self._evict_block(block)

    def _drop_first(self) -> None:
        if self._ranked is None:
            self._released.popleft()
        else:
            self._ranked.drop()

    def _evict_block(self, block: Block) -> None:
        self._forget(block)

    def _forget(self, block: Block) -> None:
        """Nobody can hit `block` any more."""
        before = self._cached[block.key]
        if before is not block:
            while before.twin is not block:
                assert before.twin is not None
                before = before.twin
            before.twin = block.twin
        elif block.twin is None:
            del self._cached[block.key]
        else:
            self._cached[block.key] = block.twin
        block.twin = None

    def _sweep(self) -> None:
        """Drop the stale entries, so that the free list stays as short as the pool."""
        self._stale = 0
        if self._ranked is not None:
            self._ranked.sweep()
            return
        kept: deque[Block] = deque()
        for block in self._released:
            if block.stale > 0:
                block.stale -= 1
            else:
                kept.append(block)
        self._released = kept
