"""How a client wants the next token to be chosen: of which tokens, and with which seed."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Final

from batchwright.errors import InputError

SEEDS: Final = 1 << 64  # a seed has 64 bits, with a sign or without


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """`top_k` 0 and `top_p` 1 keep all tokens; greedy is no `Sampling` at all.

    Raises InputError on a value that cannot be.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (isfinite(self.temperature) and self.temperature > 0):
            raise InputError(f"temperature is {self.temperature}, but must be a number above 0")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}, but must be above 0 and at most 1")
        if not _is_int(self.top_k) or self.top_k < 0:
            raise InputError(f"top_k is {self.top_k}, but must be a whole number; 0 keeps all tokens")
        if not _is_int(self.seed) or not -SEEDS // 2 <= self.seed < SEEDS:
            raise InputError(f"seed is {self.seed}, but must be a whole number of at most 64 bits")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
