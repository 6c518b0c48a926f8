"""Free KV blocks with a key in another order of eviction than that of their release (`lru`).

    fifo    who became cached longest ago is evicted first
    lfu     who was hit least often; of these, who was released longest ago

Of the blocks that became cached together, and of those that were hit equally often, the tail of a
prompt goes before its head, as under `lru`: without its head a tail cannot be hit.

A block that is taken again leaves its entry here, which counts as stale (`Block.stale`); its next
one never comes before it, so the entries that are met first are the stale ones.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from batchwright.request import Block

LRU: Final = "lru"
FIFO: Final = "fifo"
LFU: Final = "lfu"
EVICTIONS: Final = (LRU, FIFO, LFU)


class Ranked:
    """A heap of blocks; the first one is evicted next."""

    def __init__(self, by_hits: bool) -> None:
        self._by_hits = by_hits
        self._heap: list[tuple[int, int, Block]] = []  # rank, number of its release, block
        self._num_put = 0
        self._last: Block | None = None  # the one that was put last, if it is still here

    def put(self, block: Block) -> None:
        self._num_put += 1
        rank = block.hits if self._by_hits else block.born
        heappush(self._heap, (rank, self._num_put, block))
        self._last = block

    def __len__(self) -> int:
        return len(self._heap)

    def last(self) -> Block | None:
        """The block that was put last, if another one may share its entry: they have equal ranks."""
        return self._last if self._by_hits else None

    def first(self) -> Block:
        return self._heap[0][2]

    def drop(self) -> None:
        """Take out the first one."""
        block = heappop(self._heap)[2]
        if block is self._last:
            self._last = None

    def blocks(self) -> list[Block]:
        """All of them, stale ones too, in the order of eviction."""
        return [block for _, _, block in sorted(self._heap, key=_place)]

    def sweep(self) -> None:
        """Drop the stale entries."""
        kept = []
        for entry in sorted(self._heap, key=_place):  # sorted is a heap
            if entry[2].stale > 0:
                entry[2].stale -= 1
            else:
                kept.append(entry)
        self._heap = kept


def _place(entry: tuple[int, int, Block]) -> tuple[int, int]:
    return entry[:2]
