"""How much of the prompts a prefix cache without end would find again.

A full block of a prompt hits if an earlier request of the load had it, all tokens before it
included.  As each hash stands for all tokens before it, this is counting: of all blocks, those
that are not the first of their kind.  A hash of T tokens holds T / b blocks of b tokens, of which
the last piece of a prompt fills only some.
"""

from __future__ import annotations

import numpy as np

from batchwright.workload.columns import Ints
from batchwright.workload.prefix import Hashes


def entry_reuse(hashes: Hashes) -> float:
    """Share of all hashes that came before, the partial ones at the end of prompts included."""
    return 1 - len(np.unique(hashes.ids)) / len(hashes.ids) if len(hashes.ids) else 0.0


def block_reuse(hashes: Hashes, prompt: Ints, block_size: int) -> float | None:
    """Share of all full blocks of the prompts that came before; None if there is no full block.

    Raises InputError unless blocks and hashes fit into each other.
    """
    hashes.check_block_size(block_size)
    places = _places(hashes)
    owners = np.repeat(np.arange(len(prompt)), np.diff(hashes.offsets))
    if block_size > hashes.tokens:
        per_block = block_size // hashes.tokens
        is_end = (places + 1) % per_block == 0
        is_full = (places + 1) * hashes.tokens <= prompt[owners]
        return _share_again(hashes.ids[is_end & is_full])
    per_hash = hashes.tokens // block_size
    full = np.clip(prompt[owners] // block_size - places * per_hash, 0, per_hash)
    return _share_of_pieces(hashes.ids, full)


def _places(hashes: Hashes) -> Ints:
    """Of each hash in its own prompt, from 0."""
    counts = np.diff(hashes.offsets)
    return np.arange(len(hashes.ids)) - np.repeat(hashes.offsets[:-1], counts)


def _share_again(ids: Ints) -> float | None:
    return 1 - len(np.unique(ids)) / len(ids) if len(ids) else None


def _share_of_pieces(ids: Ints, full: Ints) -> float | None:
    """`full[i]`: blocks that piece i fills.  The blocks of a hash are nested: the most is all of them."""
    total = int(full.sum())
    if not total:
        return None
    order = np.lexsort((full, ids))
    is_last = np.append(np.diff(ids[order]) != 0, True)  # the fullest piece of each hash
    return 1 - int(full[order][is_last].sum()) / total
