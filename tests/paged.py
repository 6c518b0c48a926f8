"""What the slow loops of engines with paged KV share: first come first served, synchronous, recompute.

A subclass says in `compose` who computes what in one step.
"""

from __future__ import annotations

from typing import Any

from reference import Plan, Pool, Row, VllmReference


class Paged(VllmReference):
    """One engine on the `config` of a load; `caching`: has it a prefix cache?"""

    def __init__(self, config: dict[str, Any], seats: int, caching: bool) -> None:
        super().__init__(config)
        self.by_priority = False
        self.lag = 0
        self.seats = seats
        self.pool = Pool(config["num_blocks"], caching and config["enable_prefix_caching"])
        self.watermark = int(0.01 * (config["num_blocks"] - 1))

    def schedule(self) -> Plan:
        plan = Plan()
        scheduled: dict[Row, int] = {}
        self.compose(plan, scheduled)
        # In admission order, in which those that end together give their blocks back.
        plan.parts = [self.advance(row, scheduled[row]) for row in self.running if row in scheduled]
        return plan

    def plan(self, now: float, draining: bool) -> Plan | None:
        plan = self.schedule()
        return plan if plan.parts else None

    def compose(self, plan: Plan, scheduled: dict[Row, int]) -> None:
        raise NotImplementedError

    def decode(self, plan: Plan, scheduled: dict[Row, int]) -> None:
        """A token for every decode, in admission order; the last one goes while a block is missing."""
        for row in list(self.running):
            if row.is_prefilling:
                continue
            while row in self.running and not self.grow(row, 1):
                victim = self.running[-1]
                self.preempt(victim)
                plan.preempted.append(victim)
            if row in self.running:
                scheduled[row] = 1

    def preempt(self, row: Row) -> None:
        super().preempt(row)
        row.reserved = 0

    def seat(self, row: Row, hit: list[int], tokens: int) -> None:
        """Admit `row` on the cached blocks `hit`, with all the blocks of its first `tokens` tokens."""
        self.waiting.remove(row)
        self.running.append(row)
        self.pool.share(hit)
        row.blocks = hit + self.pool.take(self.count(tokens) - len(hit))
        row.named = len(hit)
        row.computed = len(hit) * self.block_size

    def run(self, scheduled: dict[Row, int], row: Row, tokens: int) -> None:
        assert self.grow(row, tokens)
        scheduled[row] = tokens

    def kept(self) -> int:
        """Blocks that an admission leaves free; none in an empty server."""
        return self.watermark if self.running else 0
