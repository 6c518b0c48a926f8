"""How the next token is chosen.

Logits over the temperature, then top-k, then top-p, as vLLM orders them, then one draw.  Two
requests with the same prompt, parameters and seed get the same tokens, whatever else is in the batch:
the n-th draw of a sequence is a hash of its seed and n, so there is no state that another could move.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import pack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchwright.engines.sampling import SEEDS, Sampling
from batchwright.engines.sequence import Sequence

Row = NDArray[np.floating[Any]]  # one number per token id


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
