"""LMDeploy: decisions between rounds, with its counter of decode rounds."""

from __future__ import annotations

from random import Random
from typing import Any

from batchwright.policies.lmdeploy import Lmdeploy
from peers._blocks import OnBlocks, Tokens

KIND = Lmdeploy
COUNTS = (0, -1, 1.0, True, "8")
BAD: dict[str, tuple[Any, ...]] = {
    "max_batch_size": COUNTS,
    "max_prefill_token_num": (*COUNTS, None),
    "prefill_interval": (*COUNTS, None),
    "num_loops": COUNTS,
    "enable_prefix_caching": (0, 1, None, "true"),
}


def settings(random: Random) -> Lmdeploy:
    return Lmdeploy(
        max_batch_size=random.choice([None, 64]),
        max_prefill_token_num=random.choice([1, 8192]),
        prefill_interval=random.choice([1, 16]),
        num_loops=random.choice([None, 1, 4]),
        enable_prefix_caching=random.random() < 0.5,
    )


def drawn(random: Random, config: dict[str, Any]) -> Any:
    policy = Lmdeploy(
        max_batch_size=random.choice([None, random.randint(1, config["max_num_seqs"])]),
        max_prefill_token_num=random.choice([16, 100, 1000]),
        prefill_interval=random.choice([1, 2, 3, 16]),
        num_loops=random.choice([None, 1, 2, 5]),
        enable_prefix_caching=random.random() < 0.7,
    )
    return policy, lambda load: Reference(load, policy)


class Reference(OnBlocks):
    def __init__(self, config: dict[str, Any], flags: Lmdeploy) -> None:
        super().__init__(config, flags.max_batch_size or 10**6, caching=flags.enable_prefix_caching)
        self.flags = flags
        self.round = flags.num_loops or flags.prefill_interval
        self.left = 0  # steps of the round
        self.decode_count = 0  # rounds since the last prefill that started though somebody waited

    def step(self) -> Tokens | None:
        if self.prefilling:
            return self.chunk()
        if self.left == 0 or not self.running:
            new = self.join() if self.do_prefill() else {}
            if new:
                self.left = self.decode_count = 0
                return new
            self.make_room()
            self.left = self.round
        self.left -= 1
        return self.decodes()

    def do_prefill(self) -> bool:
        if not self.waiting:
            self.decode_count = 0
            return False
        if self.decode_count >= self.flags.prefill_interval:
            return True
        if sum(row.known for row in self.waiting) >= self.flags.max_prefill_token_num:
            return True
        if len(self.running) < self.seats / 2:
            return True
        self.decode_count += 1
        return False

    def join(self) -> Tokens:
        new: Tokens = {}
        packed = 0
        while self.waiting and len(self.running) < self.seats:
            row = self.waiting[0]
            tokens = self.uncached(row)
            if packed > 0 and packed + tokens > self.flags.max_prefill_token_num:
                break
            ahead = self.round if self.running else 0
            if self.needs(row.known + ahead, self.lookup(row)) > len(self.pool.free):
                break
            packed += tokens
            new[row] = min(tokens, self.flags.max_prefill_token_num)
            self.seat(row, new[row])
        return new

    def chunk(self) -> Tokens:
        (row,) = self.prefilling
        tokens = min(row.known - row.computed, self.flags.max_prefill_token_num)
        assert self.grow(row, tokens)
        return {row: tokens}

    def make_room(self) -> None:
        """The newest go until the others have blocks for a round."""
        while len(self.running) > 1 and self.lacks() > 0:
            self.preempt(self.running[-1])

    def lacks(self) -> int:
        wanted = sum(self.count(row.computed + self.round) - len(row.blocks) for row in self.running)
        return wanted - len(self.pool.free)
