"""Repetitions of a trace, of which there is only one: a block bootstrap.

Blocks of L = round(sqrt(n)) consecutive requests, which begin anywhere and go round the end of the
trace, are drawn with replacement until there are n requests.  A request brings along the gap before
it, its lengths, limit, priority, client and hashes; the first one of the trace, which has no gap,
brings the mean gap.

Bursts and runs of alike requests shorter than a block survive; a trend over the whole trace does
not.  Where a request is drawn again, the hashes that no other request of the trace has are made
new: its own text must not hit the cache as if it were sent twice.

Source: circular block bootstrap, Politis and Romano 1992; block length, Hall, Horowitz and Jing 1995.
"""

from __future__ import annotations

from dataclasses import replace
from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from batchwright.errors import InputError
from batchwright.workload.columns import Floats, Ints
from batchwright.workload.prefix import Hashes
from batchwright.workload.streams import BOOTSTRAP, stream, sum_gaps

if TYPE_CHECKING:
    from batchwright.workload.load import Workload


def resampled(load: Workload, k: int) -> Workload:
    """The `k`-th resampling.  Raises InputError if requests follow others."""
    if load.has_followers:
        raise InputError(
            f"{load.name}: requests follow others, so they cannot be resampled; use a load that is made "
            "from a seed, such as closed(...) or sessions(...)"
        )
    if type(k) is not int or k < 0:
        raise InputError(f"repetition {k!r} of {load.name} is asked for; give a whole number of at least 0")
    rows = drawn_rows(len(load), k, load.seed)
    columns = load.columns.take(rows)
    hashes = None if columns.hashes is None else apart(columns.hashes, rows, load.columns.hashes)
    arrival = sum_gaps(gaps_before(load.arrival)[rows][1:])
    columns = replace(columns, arrival=arrival, hashes=hashes)
    return replace(load, columns=columns, token_limit=load.token_limit.take(rows))


def block_length(count: int) -> int:
    """Requests of one block: the square root of their number, rounded."""
    root = isqrt(count)
    return root + (count > root * (root + 1))


def drawn_rows(count: int, k: int, seed: int = 0) -> Ints:
    """The rows of the `k`-th resampling of `count` requests; no two seeds have one in common."""
    length = block_length(count)
    purpose = (BOOTSTRAP, seed) if seed else (BOOTSTRAP,)
    starts = stream(k, *purpose).integers(0, count, -(-count // length))
    rows: Ints = (starts[:, None] + np.arange(length)).ravel()[:count] % count
    return rows


def gaps_before(arrival: Floats) -> Floats:
    """Seconds before each request; the first has the mean of the others."""
    gaps = np.diff(arrival, prepend=0.0)
    if len(gaps) > 1:
        gaps[0] = arrival[-1] / (len(arrival) - 1)
    return gaps


def apart(taken: Hashes, rows: Ints, original: Hashes | None) -> Hashes:
    """`taken`: the hashes of `original` at `rows`, with those of a repeated row's own text made new."""
    assert original is not None
    values, place, uses = np.unique(original.ids, return_inverse=True, return_counts=True)
    numbered = replace(original, ids=place.reshape(-1)).take(rows)  # from 0, so that there is room above
    is_own = uses[numbered.ids] == 1
    is_again = np.ones(len(rows), np.bool_)
    is_again[np.unique(rows, return_index=True)[1]] = False
    is_new = is_own & np.repeat(is_again, numbered.counts)
    ids = numbered.ids.copy()
    ids[is_new] = len(values) + np.arange(np.count_nonzero(is_new))
    return replace(taken, ids=ids)
