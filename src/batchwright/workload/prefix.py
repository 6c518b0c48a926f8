"""Prefix keys from the hashes of a trace.

A trace may give one hash per `tokens` prompt tokens (Mooncake: 512), each standing for all
tokens up to the end of its piece.  Where a KV block is smaller, a hash h yields several keys:

    key(h, j) = h * (tokens / block_size) + j        j = 0 .. tokens / block_size - 1

Where it is larger, the hash at the end of a block is its key.  Only full blocks of the prompt
have a key; the last piece of a prompt is often partial.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError

HASH_TOKENS: Final = 512  # tokens of one hash in a Mooncake trace; its README
GREATEST_HASH: Final = (1 << 63) // HASH_TOKENS - 1  # so that a key fits 64 bits even for blocks of 1


@dataclass(frozen=True, eq=False)
class Hashes:
    """The hashes of all requests in one flat array; request i has `ids[offsets[i]:offsets[i + 1]]`."""

    ids: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    tokens: int = HASH_TOKENS

    def __post_init__(self) -> None:
        self.ids.setflags(write=False)
        self.offsets.setflags(write=False)

    def head(self, count: int) -> Hashes:
        """Those of the first `count` requests."""
        offsets = self.offsets[: count + 1]
        return Hashes(self.ids[: offsets[-1]], offsets, self.tokens)

    def check_block_size(self, block_size: int) -> None:
        """Raises InputError unless blocks of `block_size` tokens and hashes fit into each other."""
        if block_size < 1 or (self.tokens % block_size and block_size % self.tokens):
            raise InputError(
                f"block_size {block_size} does not divide {self.tokens}, the tokens of one prefix hash, nor "
                f"is it a multiple; choose a block_size that is, or read the workload without prefixes"
            )

    def keys(self, index: int, prompt: int, block_size: int) -> array[int]:
        """The keys of the full KV blocks of request `index`, whose prompt has `prompt` tokens."""
        ids = self.ids[self.offsets[index] : self.offsets[index + 1]]
        if block_size > self.tokens:
            per_block = block_size // self.tokens
            keys = ids[per_block - 1 :: per_block]
        else:
            per_hash = self.tokens // block_size
            keys = (ids[:, None] * per_hash + np.arange(per_hash)).ravel()
        return array("q", keys[: prompt // block_size].tobytes())


def wrong_hashes(ids: object, prompt: int) -> str | None:
    """What is wrong with the hashes of a prompt, one per 512 tokens; None if nothing is."""
    if type(ids) is not list or not set(map(type, ids)) <= {int}:
        return "is not a list of whole numbers; correct it, or remove hash_ids from every row"
    wanted = -(-prompt // HASH_TOKENS)
    return wrong_count(len(ids), prompt, HASH_TOKENS, (wanted,)) or wrong_numbers(ids)


def wrong_count(count: int, prompt: int, tokens: int, wanted: tuple[int, ...]) -> str | None:
    """What is wrong with `count` hashes of `tokens` tokens each; None if it is one of `wanted`."""
    if count in wanted:
        return None
    numbers = " or ".join(map(str, dict.fromkeys(wanted)))
    return (
        f"has {count} hashes, but a prompt of {prompt} tokens has {numbers} pieces of {tokens}; "
        "correct either"
    )


def wrong_numbers(ids: Sequence[int]) -> str | None:
    """What is wrong with hashes that are whole numbers; None if nothing is."""
    for worst in (min(ids, default=0), max(ids, default=0)):
        if not 0 <= worst <= GREATEST_HASH:
            return f"has the hash {worst}, outside 0 to {GREATEST_HASH}; renumber the hashes"
    return None


def gather(lists: Sequence[Sequence[int]], tokens: int = HASH_TOKENS) -> Hashes:
    """The hashes of all requests, already checked."""
    ids = np.fromiter(chain.from_iterable(lists), np.int64)
    return Hashes(ids, np.array([0, *accumulate(map(len, lists))], np.int64), tokens)
