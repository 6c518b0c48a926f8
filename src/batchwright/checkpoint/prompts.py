"""Token ids for a request of a workload, which has lengths and prefix keys but no text.

Token i of a prompt is plain_ids[mix(seed, source, i) mod n].  In a block that has a key the source is
the key, so two prompts share tokens exactly where they share keys; behind those blocks it is the
request's id.  `mix` is the finaliser of SplitMix64, three multiply-xor-shift rounds over one 64-bit
counter per token.  Source: Steele, Lea and Flood, 2014.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.request import Request

_Words = npt.NDArray[np.uint64]
_STRIDE: Final = np.uint64(0x9E3779B97F4A7C15)
_OWN: Final = np.uint64(1 << 63)  # tells a request's id from a key, which is less


def prompt_ids(request: Request, block_size: int, plain_ids: npt.NDArray[np.int64], seed: int) -> list[int]:
    """The prompt of `request`: uniform over `plain_ids`, and the same for the same arguments.

    `block_size`: tokens that one key of `request.prefix` stands for.  Raises InputError.
    """
    keyed = len(request.prefix) * block_size
    if keyed > request.prompt:
        raise InputError(
            f"request {request.id}: {len(request.prefix)} prefix keys of {block_size} tokens are more than "
            f"its prompt of {request.prompt}; give the block size that the workload was made with"
        )
    sources = np.full(request.prompt, _OWN + np.uint64(request.id), np.uint64)
    sources[:keyed] = np.repeat(np.array(request.prefix, np.uint64), block_size)
    counters = np.arange(request.prompt, dtype=np.uint64)
    start = _mix(np.array([seed % (1 << 64)], np.uint64))
    drawn = _mix(_mix(start ^ sources) + counters * _STRIDE)
    found: list[int] = plain_ids[drawn % np.uint64(len(plain_ids))].tolist()
    return found


def _mix(words: _Words) -> _Words:
    """Each word scrambled, one to one."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
