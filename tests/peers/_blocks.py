"""What the slow loops of TGI, LightLLM and LMDeploy share: requests on blocks, with a prefix cache.

A subclass says in `step` who computes what: tokens by row.  None: no step runs.
"""

from __future__ import annotations

from typing import Any

from reference import Plan, Row, VllmReference

Tokens = dict[Row, int]


class OnBlocks(VllmReference):
    """First come first served, synchronous; blocks, names and ends as in vLLM's loop."""

    def __init__(self, config: dict[str, Any], seats: int, caching: bool = True) -> None:
        own = {"async_scheduling": False, "policy": "fcfs"}
        caches = caching and config["enable_prefix_caching"]
        super().__init__(config | own | {"enable_prefix_caching": caches})
        self.seats = min(seats, config["max_num_seqs"])

    def plan(self, now: float, draining: bool) -> Plan | None:
        tokens = self.step()
        return Plan([self.advance(row, count) for row, count in tokens.items()]) if tokens else None

    def step(self) -> Tokens | None:
        raise NotImplementedError

    def decodes(self) -> Tokens:
        """A token for every decode; while one finds no block, the newest request goes."""
        tokens: Tokens = {}
        for row in list(self.running):
            if row.is_prefilling:
                continue
            while row in self.running and not self.grow(row, 1):
                tokens.pop(self.running[-1], None)
                self.preempt(self.running[-1])
            if row in self.running:
                tokens[row] = 1
        return tokens

    def needs(self, tokens: int, hit: list[int]) -> int:
        """Free blocks that a request of so many tokens takes: all but those of `hit` that others hold."""
        return self.count(tokens) - sum(self.pool.users[block] > 0 for block in hit)

    def seat(self, row: Row, tokens: int, reserve: int = 0) -> None:
        """Admit `row` on what the cache has of it, and run `tokens` tokens; `reserve`: tokens of the stay."""
        hit = self.lookup(row)
        self.waiting.remove(row)
        self.running.append(row)
        self.pool.share(hit)
        row.named = len(hit)
        row.blocks = hit + self.pool.take(max(self.count(reserve) - len(hit), 0))
        row.computed = len(hit) * self.block_size
        assert self.grow(row, tokens)

    def uncached(self, row: Row) -> int:
        """Tokens that a waiting request would have to compute."""
        return row.known - len(self.lookup(row)) * self.block_size
