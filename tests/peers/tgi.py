"""TGI: the router's loop with its counter of waiting tokens, and the queue's packing."""

from __future__ import annotations

from math import floor
from random import Random
from typing import Any

from batchwright.policies.tgi import Tgi
from peers._blocks import OnBlocks, Tokens
from reference import Row

KIND = Tgi
COUNTS = (0, -1, 1.0, True, "8")
BAD: dict[str, tuple[Any, ...]] = {
    "version": ("1", 3, None),
    "prefill_chunking": (0, 1, None, "true"),
    "waiting_served_ratio": (-0.1, float("nan"), "1", True, 1e7),
    "max_waiting_tokens": (-1, 1.0, None, True, "8"),
    "max_batch_prefill_tokens": COUNTS,
    "max_batch_total_tokens": COUNTS,
    "max_batch_size": COUNTS,
    "max_concurrent_requests": (*COUNTS, None),
}


def settings(random: Random) -> Tgi:
    version = random.choice(["3", "2"])
    return Tgi(
        version=version,
        prefill_chunking=version == "2" or random.random() < 0.5,
        waiting_served_ratio=random.choice([None, 0.0, 0.3, 1.5]),
        max_waiting_tokens=random.choice([0, 20]),
        max_batch_prefill_tokens=random.choice([None, 1, 4096]),
        max_batch_total_tokens=random.choice([None, 10**6]),
        max_batch_size=random.choice([None, 4]),
        max_concurrent_requests=random.choice([1, 128]),
    )


def drawn(random: Random, config: dict[str, Any]) -> Any:
    version = random.choice(["3", "3", "2"])
    chunking = version == "2" or random.random() < 0.5
    whole = config["max_model_len"] + random.choice([0, 100])
    total = (config["num_blocks"] - 1) * config["block_size"]
    longest = -(-config["max_model_len"] // config["block_size"]) * config["block_size"]
    chunked = version == "3" and chunking
    policy = Tgi(
        version=version,
        prefill_chunking=chunking,
        waiting_served_ratio=random.choice([None, 0.0, 0.3, 0.7, 1.5]),
        max_waiting_tokens=random.choice([0, 1, 2, 5, 20, 60]),
        max_batch_prefill_tokens=random.choice([3, 32, whole]) if chunked else whole,
        max_batch_total_tokens=random.choice([None, None, random.randint(longest, total)]),
        max_batch_size=random.choice([None, random.randint(1, config["max_num_seqs"])]),
        max_concurrent_requests=random.choice([1, 2, 5, 128]),
    )
    return policy, lambda load: Reference(load, policy)


class Reference(OnBlocks):
    def __init__(self, config: dict[str, Any], flags: Tgi) -> None:
        super().__init__(config, flags.max_concurrent_requests, caching=flags.version == "3")
        self.flags = flags
        self.is_chunked = flags.version == "3" and flags.prefill_chunking
        ratio = {"3": 0.3, "2": 1.2}[flags.version]
        self.ratio = ratio if flags.waiting_served_ratio is None else flags.waiting_served_ratio
        assert flags.max_batch_prefill_tokens is not None
        self.prefill_budget: int = flags.max_batch_prefill_tokens
        everything = (config["num_blocks"] - 1) * self.block_size
        self.total = (flags.max_batch_total_tokens or everything) // self.block_size
        self.size = flags.max_batch_size or self.seats
        self.waiting_tokens = 0
        self.must_run = False

    def step(self) -> Tokens | None:
        """One turn of the router: it looks at the queue unless the batch must run first."""
        if not self.running:
            new = self.next_batch(0, self.size, self.prefill_budget)
            self.waiting_tokens = 1
            self.must_run = False
            return new
        chunks = self.chunks()
        if not self.must_run:
            new = self.look(chunks)
            if new:
                self.waiting_tokens = 1
                self.must_run = True
                return chunks | self.decodes_of(chunks) | new if self.is_chunked else new
        self.must_run = False
        self.waiting_tokens += 1
        for row, tokens in chunks.items():
            assert self.grow(row, tokens)
        return chunks | self.decodes_of(chunks)

    def decodes_of(self, chunks: Tokens) -> Tokens:
        """A token for those that ran before this turn and have their prompt."""
        rows = [row for row in self.running if row not in chunks and not row.is_prefilling]
        for row in rows:
            assert self.grow(row, 1)
        return dict.fromkeys(rows, 1)

    def look(self, chunks: Tokens) -> Tokens:
        if self.is_chunked:
            used = sum(chunks.values()) + len(self.decoding)
            for row, tokens in chunks.items():
                assert self.grow(row, tokens)
            return self.next_batch(0, self.seats, self.prefill_budget - used)
        least = floor(len(self.running) * self.ratio)
        if self.waiting_tokens >= self.flags.max_waiting_tokens:
            least = 0
        return self.next_batch(least, self.size - len(self.running), self.prefill_budget)

    def chunks(self) -> Tokens:
        """The next chunk of each prompt that is not complete, within the next forward's budget."""
        budget = self.prefill_budget - (len(self.running) - 1)
        found: Tokens = {}
        for row in self.running:
            if row.is_prefilling:
                found[row] = max(1, min(row.known - row.computed, budget))
                budget -= found[row]
            else:
                budget -= 1
        return found

    def next_batch(self, least: int, most: int, budget: int) -> Tokens:
        """Who joins: tokens by row."""
        most = min(most, self.seats - len(self.running), len(self.waiting))
        budget = self.count(max(budget, 0)) * self.block_size
        if most < least or (least > 1 and self.packed(least, budget) < least):
            return {}
        new: Tokens = {}
        charged, used = self.held(), 0
        while len(new) < most:
            row = self.waiting[0]
            needs, tokens, cost = self.charge(row)
            if self.running and charged + needs > self.total:
                break
            if used + cost > budget:
                if not self.is_chunked or used >= budget:
                    break
                tokens = cost = budget - used
            charged, used = charged + needs, used + cost
            self.seat(row, tokens, row.prompt + row.max_tokens - 1)
            new[row] = tokens
        return new

    def held(self) -> int:
        """Blocks that are in use."""
        return len(self.pool.users) - 1 - len(self.pool.free)

    def charge(self, row: Row) -> tuple[int, int, int]:
        """Blocks that `row` is charged for, its tokens to compute, and what they cost of the budget."""
        if self.flags.version == "2":
            blocks = self.count(row.prompt) + self.count(row.max_tokens)
            return blocks, row.prompt, self.count(row.prompt) * self.block_size
        tokens = self.uncached(row)
        return self.needs(row.prompt + row.max_tokens - 1, self.lookup(row)), tokens, tokens

    def packed(self, most: int, budget: int) -> int:
        """How many of the first `most` fit, by what is cached now."""
        charged, used = self.held(), 0
        for i, row in enumerate(self.waiting[:most]):
            needs, _, cost = self.charge(row)
            charged, used = charged + needs, used + cost
            if charged > self.total or used > budget:
                return i
        return min(most, len(self.waiting))
