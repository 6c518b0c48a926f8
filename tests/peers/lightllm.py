"""LightLLM: the peak from its definition, and the counter of decode steps left before a prefill."""

from __future__ import annotations

from random import Random
from typing import Any

from batchwright.policies.lightllm import Lightllm
from peers._blocks import OnBlocks, Tokens
from reference import Row

KIND = Lightllm
COUNTS = (0, -1, 1.0, True, "8")
BOOLS = (0, 1, None, "true")
BAD: dict[str, tuple[Any, ...]] = {
    "max_total_tokens": COUNTS,
    "batch_max_tokens": COUNTS,
    "chunked_prefill_size": (*COUNTS, None),
    "disable_chunked_prefill": BOOLS,
    "running_max_req_size": COUNTS,
    "router_token_ratio": (-0.1, 1.1, "0", None, True),
    "router_max_new_token_len": (*COUNTS, None),
    "router_max_wait_tokens": (-1, 1.0, None, True, "8"),
    "disable_aggressive_schedule": BOOLS,
}


def settings(random: Random) -> Lightllm:
    return Lightllm(
        max_total_tokens=random.choice([None, 10**6]),
        batch_max_tokens=random.choice([None, 8192]),
        chunked_prefill_size=random.choice([1, 4096]),
        disable_chunked_prefill=random.random() < 0.5,
        running_max_req_size=random.choice([None, 8]),
        router_token_ratio=random.choice([0.0, 0.5, 1.0]),
        router_max_new_token_len=random.choice([1, 1024]),
        router_max_wait_tokens=random.choice([0, 6]),
        disable_aggressive_schedule=random.random() < 0.5,
    )


def drawn(random: Random, config: dict[str, Any]) -> Any:
    chunk = random.choice([4, 40, config["max_model_len"]])
    total = (config["num_blocks"] - 1) * config["block_size"]
    longest = -(-config["max_model_len"] // config["block_size"]) * config["block_size"]
    is_whole = random.random() < 0.3
    policy = Lightllm(
        max_total_tokens=random.choice([None, random.randint(longest, total)]),
        batch_max_tokens=(config["max_model_len"] if is_whole else chunk) + random.choice([0, 10, 1000]),
        chunked_prefill_size=chunk,
        disable_chunked_prefill=is_whole,
        running_max_req_size=random.choice([None, random.randint(1, config["max_num_seqs"])]),
        router_token_ratio=random.choice([0.0, 0.0, 0.3, 0.8, 1.0]),
        router_max_new_token_len=random.choice([1, 10, 40, 1024]),
        router_max_wait_tokens=random.choice([0, 1, 2, 6, 30]),
        disable_aggressive_schedule=random.random() < 0.5,
    )
    return policy, lambda load: Reference(load, policy)


class Reference(OnBlocks):
    def __init__(self, config: dict[str, Any], flags: Lightllm) -> None:
        super().__init__(config, flags.running_max_req_size or 1000)
        self.flags = flags
        self.is_whole = flags.disable_chunked_prefill
        self.chunk = self.longest if self.is_whole else flags.chunked_prefill_size
        self.total = flags.max_total_tokens or (config["num_blocks"] - 1) * self.block_size
        assert flags.batch_max_tokens is not None
        self.prefill_budget: int = flags.batch_max_tokens
        self.most_decodes = max(1, flags.router_max_wait_tokens)
        self.decodes_left = self.most_decodes

    def step(self) -> Tokens | None:
        if not self.flags.disable_aggressive_schedule or not self.decoding or self.decodes_left == 0:
            new = self.prefill()
            if new:
                self.decodes_left = self.most_decodes
                return new
        elif self.decoding:
            self.decodes_left -= 1
        return self.decodes()

    def prefill(self) -> Tokens:
        tokens: Tokens = {}
        seats = len(self.running)
        for row in self.prefilling:
            while row in self.running and not self.grow(row, self.next_chunk(row)):
                self.preempt(self.running[-1])
            if row in self.running:
                tokens[row] = self.next_chunk(row)
        return tokens if len(self.running) < seats else tokens | self.join(tokens)

    def next_chunk(self, row: Row) -> int:
        return min(row.known - row.computed, self.chunk)

    def join(self, chunks: Tokens) -> Tokens:
        new: Tokens = {}
        used = 0 if self.is_whole else len(self.decoding) + sum(chunks.values())
        coming = sum(len(row.blocks) < self.count(row.computed + 1) for row in self.decoding)
        while self.waiting and len(self.running) < self.seats:
            row = self.waiting[0]
            used += min(row.known, self.chunk)
            if used > self.prefill_budget:
                break
            if self.needs(row.known, self.lookup(row)) > len(self.pool.free) - coming:
                break
            if self.running and not self.peak([*self.running, row]) < self.total:
                break
            tokens = min(self.uncached(row), self.chunk)
            self.seat(row, tokens)
            new[row] = tokens
        return new

    def peak(self, rows: list[Row]) -> int:
        """Let all go on to their expected ends: the most tokens that are ever held."""
        held = [(self.now(row), self.left(row)) for row in rows]
        ends = [left for _, left in held]
        return max(sum(now + after for now, left in held if left >= after) for after in ends)

    def now(self, row: Row) -> int:
        return row.prompt + row.generated + 1

    def left(self, row: Row) -> int:
        """Steps that `row` is expected to go on, its chunks among them."""
        limit = row.max_tokens
        if sum(other.computed for other in self.running) / self.total < self.flags.router_token_ratio:
            limit = min(limit, max(int(1.1 * row.generated), self.flags.router_max_new_token_len))
        chunks = 0 if self.is_whole else -(-(row.known - row.computed) // self.chunk)
        return max(0, chunks + limit - row.generated - 1) + 6
