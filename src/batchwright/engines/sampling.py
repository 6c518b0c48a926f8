"""How the next token is chosen.

Logits over the temperature, then top-k, then top-p, as vLLM orders them, then one draw.  Two
requests with the same prompt, parameters and seed get the same tokens, whatever else is in the batch:
the n-th draw of a sequence is a hash of its seed and n, so there is no state that another could move.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from struct import pack
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from batchwright.errors import InputError

if TYPE_CHECKING:
    from batchwright.engines.sequence import Sequence

SEEDS: Final = 1 << 64  # a seed has 64 bits, with a sign or without

Row = NDArray[np.floating[Any]]  # one number per token id


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


def sample(logits: Row, sequence: Sequence) -> int:
    """The next token of `sequence`, of which `logits` has one for each token id."""
    if not sequence.may_stop:
        logits = _without(logits, sequence.stop_ids)
    sampling = sequence.sampling
    if sampling is None:
        return int(logits.argmax())
    found = weights(logits, sampling)
    kept = found.nonzero()[0]
    cumulative = np.cumsum(found[kept], dtype=np.float64)
    point = uniform(sampling.seed, len(sequence.tokens)) * cumulative[-1]
    return int(kept[cumulative.searchsorted(point, side="right")])


def weights(logits: Row, sampling: Sampling) -> Row:
    """What each token is drawn in proportion to.

    Tokens as likely as the last one that top-k or top-p keeps are kept too, so that no order of equals
    matters.
    """
    with np.errstate(over="ignore"):  # to minus infinity, where the temperature is next to nothing
        scaled = (logits - logits.max()).astype(np.float64) / sampling.temperature
        found: Row = np.exp(scaled.astype(np.float32))
    if 0 < sampling.top_k < len(found):
        found[found < np.partition(found, -sampling.top_k)[-sampling.top_k]] = 0.0
    if sampling.top_p < 1:
        found[found < _least_of_top(found, sampling.top_p)] = 0.0
    return found


def _least_of_top(found: Row, top_p: float) -> float:
    """The least of the greatest weights that reach the share `top_p` of all.

    Those below their mean times 1 - `top_p` never reach 1 - `top_p` of all: they need no sorting.
    """
    total = found.sum(dtype=np.float64)
    falling = np.sort(found[found >= total * (1 - top_p) / len(found)])[::-1]
    reached = np.cumsum(falling, dtype=np.float64)
    return float(falling[reached.searchsorted(min(top_p * total, reached[-1]))])


def uniform(seed: int, n: int) -> float:
    """Draw `n` of `seed`, at least 0 and below 1.

    Of 52 bits: then its product with any number is below that number, after rounding too.
    """
    digest = blake2b(pack("<QQ", seed % SEEDS, n), digest_size=8).digest()
    return float(int.from_bytes(digest, "little") >> 12) * 2.0**-52


def _without(logits: Row, ids: frozenset[int]) -> Row:
    allowed = logits.copy()
    allowed[[i for i in ids if 0 <= i < len(logits)]] = -np.inf
    return allowed


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
