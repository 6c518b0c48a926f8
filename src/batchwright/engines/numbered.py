"""KV blocks with ids, for an engine that keeps them in memory.

The core counts blocks, and knows single ones only where they have a key.  Here the blocks of a
request get ids when the step that writes them is made: `extend`.  A cached block keeps its id
until it is evicted; all other ids go back at once.
"""

from __future__ import annotations

from collections.abc import Iterable

from batchwright.blocks import PRIVATE, Blocks
from batchwright.errors import PolicyError
from batchwright.ranked import LRU
from batchwright.request import NO_BLOCKS, Block, Request


class NumberedBlocks(Blocks):
    """Blocks with ids 0 to `size` - 1.

    `tables`: per request that holds blocks, their ids in the order of its tokens.
    `left`: requests that have lost their blocks; the driver clears it.
    """

    def __init__(
        self, size: int, block_size: int, caching: bool, keep: int = -1, eviction: str = LRU
    ) -> None:
        super().__init__(size, block_size, caching, keep, eviction)
        self.tables: dict[Request, list[int]] = {}
        self.left: list[Request] = []
        self._spare: list[int] = []  # ids that have been used, and hold nothing of use
        self._next = 0  # ids from here on have never been used

    def extend(self, r: Request, tokens: int) -> list[int]:
        """The ids of the blocks of `r`, enough for `tokens` tokens."""
        table = self.tables.setdefault(r, [])
        while len(table) * self.block_size < tokens:
            table.append(self._spare.pop() if self._spare else self._fresh())
        return table

    def share(self, r: Request, hit: list[Block]) -> None:
        super().share(r, hit)
        self.tables[r] = [block.id for block in hit]

    def publish(self, r: Request, tokens: int) -> None:
        self.extend(r, min(tokens // self.block_size, len(r.prefix)) * self.block_size)
        super().publish(r, tokens)

    def release(self, r: Request, tokens: int, known: int, again: bool) -> int:
        """As of all blocks; those that no step has written are not cached.

        Raises PolicyError if such a block is shared already: `r` is preempted in the step that admits
        who shares it.
        """
        self.unpublish(r, r.computed)
        table = self.extend(r, 0)
        keyed = super().release(r, tokens, min(known, r.computed), again)
        self._spare += table[keyed:]
        del self.tables[r]
        self.left.append(r)
        return keyed

    def unpublish(self, r: Request, tokens: int) -> None:
        """Let nobody hit the blocks of `r` behind its first `tokens` tokens.

        Raises PolicyError as `release`.
        """
        full = tokens // self.block_size
        for block in r.blocks[full:]:
            if block.users > 1:
                raise PolicyError(
                    f"request {r.id} loses its KV blocks in the step in which it shares them; "
                    "preempt before requests are admitted"
                )
            self._forget(block)
        if len(r.blocks) > full:
            r.blocks = r.blocks[:full] if full > 0 else NO_BLOCKS

    def void(self, blocks: Iterable[Block]) -> None:
        """Let nobody hit `blocks`, which are free: a step that failed was to write them."""
        for block in blocks:
            self._forget(block)
            block.key = PRIVATE
            self._spare.append(block.id)

    def check(self, holders: Iterable[Request], used: int) -> None:
        """Also that every id is in one place."""
        super().check(holders, used)
        ids = list(self._spare)
        free = self._free_list()
        shared = {id(block): block for block in free if block.key != PRIVATE and block.users == 0}
        for r, table in self.tables.items():
            have = len(r.blocks)
            assert table[:have] == [block.id for block in r.blocks], "a table does not start as shared"
            ids += table[have:]
            shared |= {id(block): block for block in r.blocks}
        ids += [block.id for block in shared.values()]
        assert sorted(ids) == list(range(self._next)), "ids do not add up"
        assert self._next <= self.size, "more ids than blocks"

    def _insert(self, r: Request, j: int, users: int) -> Block:
        block = super()._insert(r, j, users)
        block.id = self.tables[r][j]
        return block

    def _evict_block(self, block: Block) -> None:
        super()._evict_block(block)
        self._spare.append(block.id)

    def _fresh(self) -> int:
        self._next += 1
        return self._next - 1
