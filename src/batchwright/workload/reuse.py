"""How much of the prompts a prefix cache without end would find again.

A full block of a prompt hits if an earlier request of the load had it, in its prompt or its
answer, all tokens before it included.  Each hash stands for all tokens before it, so this is
counting: a hash of T tokens holds T / b blocks of b tokens, of which the last piece of a request
fills some, and a request finds as many of them as the fullest one before it had.

Requests count in the order of their rows.
"""

from __future__ import annotations

import numpy as np

from batchwright.workload.columns import Ints
from batchwright.workload.prefix import Hashes


def entry_reuse(hashes: Hashes, prompt: Ints) -> float | None:
    """Share of the prompts' hashes that came before, partial ones included; None if there is none."""
    places, owners = _places(hashes), _owners(hashes)
    asked = (places * hashes.tokens < prompt[owners]).astype(np.int64)
    return _found_again(hashes.ids, asked, np.ones(len(asked), np.int64))


def block_reuse(hashes: Hashes, prompt: Ints, block_size: int) -> float | None:
    """Share of all full blocks of the prompts that came before; None if there is no full block.

    Raises InputError unless blocks and hashes fit into each other.
    """
    hashes.check_block_size(block_size)
    places, owners = _places(hashes), _owners(hashes)
    covered = prompt if hashes.covered is None else hashes.covered
    if block_size <= hashes.tokens:
        per_hash = hashes.tokens // block_size
        asked, had = (
            np.clip(lengths[owners] // block_size - places * per_hash, 0, per_hash)
            for lengths in (prompt, covered)
        )
        return _found_again(hashes.ids, asked, had)
    is_end = (places + 1) % (block_size // hashes.tokens) == 0
    ends = (places[is_end] + 1) * hashes.tokens
    asked, had = ((ends <= lengths[owners[is_end]]).astype(np.int64) for lengths in (prompt, covered))
    return _found_again(hashes.ids[is_end], asked, had)


def _places(hashes: Hashes) -> Ints:
    """Of each hash in its own request, from 0."""
    return np.arange(len(hashes.ids)) - np.repeat(hashes.offsets[:-1], hashes.counts)


def _owners(hashes: Hashes) -> Ints:
    """The row of the request of each hash."""
    return np.repeat(np.arange(len(hashes.counts)), hashes.counts)


def _found_again(ids: Ints, asked: Ints, had: Ints) -> float | None:
    """Of what each piece asks for, the share that the fullest piece before it of the same id had."""
    total = int(asked.sum())
    if not total:
        return None
    order = np.argsort(ids, kind="stable")
    is_first = np.diff(ids[order], prepend=ids[order][0] - 1) != 0
    base = np.cumsum(is_first) * (int(had.max()) + 1)  # so that no id sees the one before it
    most = np.maximum.accumulate(had[order] + base) - base
    before = np.where(is_first, 0, np.roll(most, 1))
    return int(np.minimum(asked[order], before).sum()) / total
