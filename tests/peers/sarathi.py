"""Sarathi-Serve: decodes and chunks in one budget, or in turns, or prompts whole."""

from __future__ import annotations

from random import Random
from typing import Any

from batchwright.policies.sarathi import Sarathi
from paged import Paged
from reference import Plan, Row

KIND = Sarathi
COUNTS = (0, -1, 1.0, True, "8")
BOOLS = (0, 1, None, "true")
BAD: dict[str, tuple[Any, ...]] = {
    "max_num_seqs": COUNTS,
    "chunk_size": (*COUNTS, None),
    "enable_dynamic_chunking_schedule": BOOLS,
    "low_chunk_size": COUNTS,
    "high_chunk_size": COUNTS,
    "chunk_schedule_max_tokens": COUNTS,
    "chunk_schedule_stages": COUNTS,
    "enable_chunked_prefill": BOOLS,
    "enable_hybrid_batching": BOOLS,
}


def settings(random: Random) -> Sarathi:
    seats, chunk = random.choice([None, 1, 64]), random.choice([1, 100, 512])
    hybrid = random.random() < 0.5
    if random.random() < 0.5:
        chunked = random.random() < 0.5
        return Sarathi(
            max_num_seqs=seats,
            chunk_size=chunk,
            enable_chunked_prefill=chunked,
            enable_hybrid_batching=hybrid,
        )
    return Sarathi(max_num_seqs=seats, enable_hybrid_batching=hybrid, **schedule(random, 4096))


def schedule(random: Random, most: int) -> dict[str, Any]:
    low = 32 * random.randint(1, 3)
    return {
        "enable_dynamic_chunking_schedule": True,
        "low_chunk_size": low,
        "high_chunk_size": low + 32 * random.randint(0, 5),
        "chunk_schedule_max_tokens": random.randint(1, most),
        "chunk_schedule_stages": random.randint(1, 5),
    }


def drawn(random: Random, config: dict[str, Any]) -> Any:
    flags: dict[str, Any] = {
        "max_num_seqs": random.randint(1, config["max_num_seqs"]),
        "enable_hybrid_batching": random.random() < 0.7,
    }
    if random.random() < 0.3:
        flags |= schedule(random, config["max_model_len"])
    else:
        flags |= {
            "chunk_size": random.choice([1, 5, 32, 100]),
            "enable_chunked_prefill": random.random() < 0.7,
        }
    policy = Sarathi(**flags)
    return policy, lambda load: Reference(load, policy)


class Reference(Paged):
    def __init__(self, config: dict[str, Any], flags: Sarathi) -> None:
        assert flags.max_num_seqs is not None
        super().__init__(config, flags.max_num_seqs, caching=False)
        self.flags = flags
        self.was_prefill = False  # did the last step run chunks?

    def compose(self, plan: Plan, scheduled: dict[Row, int]) -> None:
        if self.flags.enable_hybrid_batching:
            self.decode(plan, scheduled)
            self.prefill(plan, scheduled)
            return
        if not (self.was_prefill and self.decoding):
            self.prefill(plan, scheduled)
        self.was_prefill = bool(scheduled)
        if not scheduled:
            self.decode(plan, scheduled)

    def prefill(self, plan: Plan, scheduled: dict[Row, int]) -> None:
        for row in self.prefilling:
            tokens = self.chunk(row, scheduled)
            if tokens > 0:
                self.run(scheduled, row, tokens)
        while self.waiting and len(self.running) < self.seats and not plan.preempted:
            row = self.waiting[0]
            tokens = self.chunk(row, scheduled)
            if tokens <= 0 or len(self.pool.free) - self.count(row.known) < self.kept():
                return
            self.seat(row, [], row.known)
            self.run(scheduled, row, tokens)

    def chunk(self, row: Row, scheduled: dict[Row, int]) -> int:
        lacks = row.known - row.computed
        left = self.size(row.computed) - sum(scheduled.values())
        return min(lacks, left) if self.flags.enable_chunked_prefill or left <= 0 else lacks

    def size(self, progress: int) -> int:
        """The chunk size after `progress` tokens of a prompt: the first stage has the greatest one."""
        flags = self.flags
        if not flags.enable_dynamic_chunking_schedule:
            return flags.chunk_size
        low, high = flags.low_chunk_size, flags.high_chunk_size
        stages, most = flags.chunk_schedule_stages, flags.chunk_schedule_max_tokens
        assert low and high and stages and most
        stage = 0
        while stage < stages - 1 and progress >= -(-most // stages) * (stage + 1):
            stage += 1
        above = 0 if stages == 1 else (stages - 1 - stage) * (high - low) // (stages - 1)
        return 32 * round((low + above) / 32)
