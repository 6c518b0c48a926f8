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
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError

HASH_TOKENS: Final = 512  # tokens of one hash in a Mooncake trace; its README
GREATEST_HASH: Final = (1 << 63) // HASH_TOKENS - 1  # so that a key fits 64 bits even for blocks of 1


@dataclass(frozen=True, eq=False)
class Hashes:
    """The hashes of all requests in one flat array; request i has `ids[offsets[i]:offsets[i + 1]]`.

    `tokens`: of one piece.  `covered`: tokens of each request that its pieces are made of, where
    they go on through the answer, which a later prompt repeats; None: those of its prompt.
    """

    ids: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    tokens: int = HASH_TOKENS
    covered: npt.NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        self.ids.setflags(write=False)
        self.offsets.setflags(write=False)

    def head(self, count: int) -> Hashes:
        """Those of the first `count` requests."""
        offsets = self.offsets[: count + 1]
        covered = None if self.covered is None else self.covered[:count]
        return replace(self, ids=self.ids[: offsets[-1]], offsets=offsets, covered=covered)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Pieces of each request."""
        return np.diff(self.offsets)

    def take(self, rows: npt.NDArray[np.int64]) -> Hashes:
        """Those of the requests at `rows`."""
        return self.first(self.counts[rows], rows)

    def first(self, counts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Hashes:
        """Of each of the requests at `rows` as many of its pieces as `counts` says."""
        places = ranges(self.offsets[rows], counts)
        covered = None if self.covered is None else self.covered[rows]
        return replace(self, ids=self.ids[places], offsets=offsets_of(counts), covered=covered)

    def finer(self, tokens: int, prompts: npt.NDArray[np.int64]) -> Hashes:
        """The same in pieces of `tokens`, which divide the present ones."""
        lengths = prompts if self.covered is None else self.covered
        parts = self.tokens // tokens
        ids = (self.ids[:, None] * parts + np.arange(parts)).ravel()
        split = replace(self, ids=ids, offsets=self.offsets * parts, tokens=tokens)
        counts = np.minimum(-(-lengths // tokens), split.counts)
        return split.first(counts, np.arange(len(counts)))

    def check_block_size(self, block_size: int) -> None:
        """Raises InputError unless blocks of `block_size` tokens and hashes fit into each other."""
        if block_size < 1 or (self.tokens % block_size and block_size % self.tokens):
            raise InputError(
                f"block_size {block_size} does not divide {self.tokens}, the tokens of one prefix hash, nor "
                f"is it a multiple; choose a block_size that is, or read the workload without prefixes"
            )

    def keys(self, index: int, prompt: int, block_size: int) -> array[int]:
        """The keys of the full KV blocks of request `index`, whose prompt has `prompt` tokens."""
        tokens = prompt if self.covered is None else int(self.covered[index])
        ids = self.ids[self.offsets[index] : self.offsets[index + 1]]
        if block_size > self.tokens:
            per_block = block_size // self.tokens
            keys = ids[per_block - 1 :: per_block]
        else:
            per_hash = self.tokens // block_size
            keys = (ids[:, None] * per_hash + np.arange(per_hash)).ravel()
        return array("q", keys[: tokens // block_size].tobytes())


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


def ranges(starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """`start, start + 1, ...`, as many as `counts` says, for each of `starts`, in one flat array."""
    offsets = offsets_of(counts)
    return np.repeat(starts - offsets[:-1], counts) + np.arange(offsets[-1])


def offsets_of(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Where the entries of each request begin, and the end of the last."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def gather(lists: Sequence[Sequence[int]], tokens: int = HASH_TOKENS) -> Hashes:
    """The hashes of all requests, already checked."""
    ids = np.fromiter(chain.from_iterable(lists), np.int64)
    return Hashes(ids, np.array([0, *accumulate(map(len, lists))], np.int64), tokens)
