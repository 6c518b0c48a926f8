"""Free KV blocks with a key, the least often hit first (`lfu`), not in the order of their release (`lru`).

Of blocks that were hit equally often, who was released longest ago is evicted first.  So a tail goes
before the head that it cannot be hit without: no request starts from a tail alone, and both are released
tail first.  It is therefore true under both rules that a prefix is lost from its end, block by block,
which policies rely on (with `fifo` it would not be).

A block that is taken again leaves its entry here, which counts as stale (`Block.stale`); its next
one never comes before it, so the entries that are met first are the stale ones.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from batchwright.request import Block

LRU: Final = "lru"
LFU: Final = "lfu"
EVICTIONS: Final = (LRU, LFU)


class Ranked:
    """A heap of blocks; the first one is evicted next."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Block]] = []  # hits, number of its release, block
        self._num_put = 0
        self._last: Block | None = None  # the one that was put last, if it is still here

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, block: Block) -> None:
        self._num_put += 1
        heappush(self._heap, (block.hits, self._num_put, block))
        self._last = block

    def last(self) -> Block | None:
        """The block that was put last, unless it has been evicted."""
        return self._last

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
