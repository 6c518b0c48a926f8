"""vLLM V0: prompts alone, else decodes."""

from __future__ import annotations

from random import Random
from typing import Any

from batchwright.policies.vllm_v0 import VllmV0
from paged import Paged
from reference import Plan, Row

KIND = VllmV0
COUNTS = (0, -1, 1.0, True, "8")
BAD: dict[str, tuple[Any, ...]] = {
    "max_num_seqs": COUNTS,
    "max_num_batched_tokens": COUNTS,
    "preemption_mode": ("abort", None, 1),
    "swap_space": (-1, "4", True, None),
    "swap_bandwidth": (0, -1.0, "fast", True),
    "kv_bytes_per_token": (0, -1.0, "few", True),
}


def settings(random: Random) -> VllmV0:
    return VllmV0(
        max_num_seqs=random.choice([None, 1, 64]),
        max_num_batched_tokens=random.choice([None, 512, 4096]),
        preemption_mode=random.choice(["recompute", "swap"]),
        swap_space=random.choice([4.0, 0.5, 16]),
        swap_bandwidth=random.choice([None, 16e9]),
        kv_bytes_per_token=random.choice([None, 131072]),
    )


def drawn(random: Random, config: dict[str, Any]) -> Any:
    seats = random.randint(1, config["max_num_seqs"])
    budget = random.choice([None, config["max_model_len"], 2 * config["max_model_len"]])
    policy = VllmV0(max_num_seqs=seats, max_num_batched_tokens=budget)
    most = budget or max(config["max_num_batched_tokens"], config["max_model_len"])
    return policy, lambda load: Reference(load, seats, most)


class Reference(Paged):
    def __init__(self, config: dict[str, Any], seats: int, budget: int) -> None:
        super().__init__(config, seats, caching=True)
        self.budget = budget

    def compose(self, plan: Plan, scheduled: dict[Row, int]) -> None:
        self.prefill(scheduled)
        if not scheduled:
            self.decode(plan, scheduled)

    def prefill(self, scheduled: dict[Row, int]) -> None:
        while self.waiting and len(self.running) < self.seats:
            row = self.waiting[0]
            hit = self.lookup(row)
            tokens = row.known - len(hit) * self.block_size
            if sum(scheduled.values()) + tokens > self.budget:
                return
            if self.count(row.known) + self.kept() > len(self.pool.free):
                return
            self.admit(row, hit, tokens)
            scheduled[row] = tokens
