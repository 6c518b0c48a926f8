"""TensorRT-LLM: the capacity scheduler, then the micro batch scheduler."""

from __future__ import annotations

from random import Random
from typing import Any

from batchwright.policies.tensorrt_llm import TensorrtLlm
from paged import Paged
from reference import Key, Plan, Row

KIND = TensorrtLlm
COUNTS = (0, -1, 1.0, True, "8")
POLICIES = ("guaranteed_no_evict", "max_utilization", "static_batch")
CHUNKING = ("first_come_first_served", "equal_progress")
BAD: dict[str, tuple[Any, ...]] = {
    "capacity_scheduler_policy": ("GUARANTEED", "", None, 1),
    "max_batch_size": COUNTS,
    "max_num_tokens": COUNTS,
    "enable_chunked_context": (0, 1, None, "true"),
    "context_chunking_policy": ("fcfs", "", None, 1),
}


def settings(random: Random) -> TensorrtLlm:
    return TensorrtLlm(
        capacity_scheduler_policy=random.choice(POLICIES),
        max_batch_size=random.choice([None, 1, 64]),
        max_num_tokens=random.choice([None, 512, 4096]),
        enable_chunked_context=random.random() < 0.5,
        context_chunking_policy=random.choice(CHUNKING),
    )


def drawn(random: Random, config: dict[str, Any]) -> Any:
    chunked = random.random() < 0.6
    seats = random.randint(1, config["max_num_seqs"])
    least = max(seats, config["block_size"]) if chunked else seats
    policy = TensorrtLlm(
        capacity_scheduler_policy=random.choice(POLICIES),
        max_batch_size=seats,
        max_num_tokens=least + random.choice([0, 3, 20, 100, 1000]),
        enable_chunked_context=chunked,
        context_chunking_policy=random.choice(CHUNKING),
    )
    return policy, lambda load: Reference(load, policy)


class Reference(Paged):
    def __init__(self, config: dict[str, Any], flags: TensorrtLlm) -> None:
        assert flags.max_batch_size is not None and flags.max_num_tokens is not None
        super().__init__(config, flags.max_batch_size, caching=True)
        self.flags = flags
        self.budget = flags.max_num_tokens
        self.pauses = flags.capacity_scheduler_policy == "max_utilization"
        self.is_static = flags.capacity_scheduler_policy == "static_batch"

    def compose(self, plan: Plan, scheduled: dict[Row, int]) -> None:
        self.decode(plan, scheduled)
        if self.is_static and scheduled:
            return
        fitting = self.prefilling + ([] if plan.preempted else self.capacity())
        hits = [len(self.lookup(row)) if row in self.waiting else 0 for row in fitting]
        lacks = [
            row.known - row.computed - hit * self.block_size for row, hit in zip(fitting, hits, strict=True)
        ]
        is_long = bool(fitting) and fitting[0].known > self.budget
        sizes = self.sizes(lacks, self.budget - len(scheduled), is_long)
        for row, hit, tokens in zip(fitting, hits, sizes, strict=True):
            if tokens > 0:
                self.context(scheduled, row, hit, tokens)

    def decode(self, plan: Plan, scheduled: dict[Row, int]) -> None:
        super().decode(plan, scheduled)
        assert self.pauses or not plan.preempted

    # --- who ----------------------------------------------------------------------

    def capacity(self) -> list[Row]:
        """The waiting rows that may hold KV."""
        fitting: list[Row] = []
        free = len(self.pool.free)
        computing = [self.shared_key(row, row.computed // self.block_size) for row in self.prefilling]
        for row in self.waiting:
            hit = self.lookup(row)
            key = self.shared_key(row, len(hit))
            if key is not None and key in computing and not self.is_static:
                continue
            computing.append(key)
            if len(self.running) + len(fitting) == self.seats:
                break
            free -= self.count(self.held(row)) - sum(self.pool.users[block] > 0 for block in hit)
            if free < 0:
                break
            fitting.append(row)
        return fitting

    def shared_key(self, row: Row, block: int) -> Key | None:
        end = (block + 1) * self.block_size
        return row.key(block, self.block_size) if self.pool.caching and end <= row.shared else None

    def held(self, row: Row) -> int:
        """Tokens whose blocks an admission takes."""
        return row.known if self.pauses else row.prompt + row.max_tokens

    # --- how much -------------------------------------------------------------------

    def sizes(self, lacks: list[int], left: int, is_long: bool) -> list[int]:
        if not self.flags.enable_chunked_context:
            return self.uncut(lacks, left, is_long)
        if self.flags.context_chunking_policy == "equal_progress":
            return self.equal(lacks, left)
        sizes = []
        for lack in lacks:
            size = min(lack, left)
            while size < lack and size % self.block_size != 0:
                size -= 1
            sizes.append(size)
            left -= size
        return sizes

    def uncut(self, lacks: list[int], left: int, is_long: bool) -> list[int]:
        """`is_long`: is the first prompt over the whole budget, cached prefix or not?"""
        sizes = [0] * len(lacks)
        for i, lack in enumerate(lacks):
            if sum(sizes) + lack > left and not (is_long and i == 0):
                break
            sizes[i] = lack
        return sizes

    def equal(self, lacks: list[int], left: int) -> list[int]:
        sizes = [0] * len(lacks)
        while True:
            grown = list(sizes)
            for i, lack in enumerate(lacks):
                more = min(self.block_size, lack - grown[i])
                if sum(grown) + more <= left:
                    grown[i] += more
            if grown == sizes:
                return sizes
            sizes = grown

    def context(self, scheduled: dict[Row, int], row: Row, found: int, tokens: int) -> None:
        """Run a chunk; `found`: blocks in the cache when all were looked at, of which some may have gone."""
        if row in self.waiting:
            self.seat(row, self.lookup(row)[:found], self.held(row))
        is_whole = not self.flags.enable_chunked_context
        self.run(scheduled, row, row.known - row.computed if is_whole else tokens)
