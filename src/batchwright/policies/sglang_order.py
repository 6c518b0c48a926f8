"""The orders in which SGLang takes those that wait (`--schedule-policy`).

    fcfs, priority, lof       a key that does not change: the queue keeps the order
    lpm                       the longest cached prefix first
    dfs-weight                depth first through the cached prefixes, where most wait first
    hrrn                      greatest (prompt tokens computed since it came) / (its uncached ones) first
    shortest-prefill-first    fewest uncached tokens first
    random                    shuffled anew for every prefill step, by seed and step

The latter are computed before a prefill step.  Ties are broken by who queued first.  Where requests with
little in the cache share a prefix, all but the first of them come last: they will find it in the cache.

Source: SGLang 0.5, `managers/schedule_policy.py`.  Its queue is sorted in place, so its ties, and the
queue of `lpm` and `hrrn` when it is long, keep the order of the step before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from math import inf
from random import Random
from typing import Final

from batchwright.batch import Batch
from batchwright.request import Request
from batchwright.waiting import Key

SHARED: Final = 32  # tokens in the cache, at most, and in common with another one that waits, at least
AWARE: Final = ("lpm", "dfs-weight", "hrrn", "shortest-prefill-first")  # they read the prefix cache
SMALL_ONLY: Final = ("lpm", "hrrn")  # not computed for a long queue
NEWER_ORDERS: Final = ("hrrn", "shortest-prefill-first")  # than 0.4


class Past:
    """What orders remember: a seed, and the prompt tokens computed so far, by step."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._steps: list[int] = []
        self._sums: list[int] = [0]

    def note(self, step: int, tokens: int) -> None:
        """So many prompt tokens are computed in `step`."""
        self._steps.append(step)
        self._sums.append(self._sums[-1] + tokens)

    def since(self, step: int) -> int:
        """Prompt tokens computed in `step` and after it."""
        return self._sums[-1] - self._sums[bisect_left(self._steps, step)]


Order = Callable[[Batch, list[Request], Past], list[Request]]  # those that wait, as they queue, in order


def queue_key(order: str, sign: int) -> Key:
    """How the queue is kept; `sign`: of the priority, 0: it does not count."""
    if order == "lof":
        return lambda r: (sign * r.priority, -r.max_tokens)
    return lambda r: (sign * r.priority,)


def longest_prefix(b: Batch, waiting: list[Request], past: Past) -> list[Request]:
    cached = cached_tokens(b, waiting)
    late = duplicates(b, waiting, cached)
    return sorted(waiting, key=lambda r: inf if r.id in late else -cached[r.id])


def depth_first(b: Batch, waiting: list[Request], past: Past) -> list[Request]:
    size = b.blocks.block_size
    cached = cached_tokens(b, waiting)
    paths = {r.id: [block.key for block in b.blocks.lookup(r)[: cached[r.id] // size]] for r in waiting}
    weight: dict[int, int] = {}  # how many wait that found a block; who found one first comes first
    for path in paths.values():
        for key in path:
            weight[key] = weight.get(key, 0) + 1
    rank = {key: (-weight[key], i) for i, key in enumerate(weight)}
    end = (1, 0)  # who goes on comes before who ends here
    return sorted(waiting, key=lambda r: [*[rank[key] for key in paths[r.id]], end])


def response_ratio(b: Batch, waiting: list[Request], past: Past) -> list[Request]:
    cached = cached_tokens(b, waiting)
    late = duplicates(b, waiting, cached)

    def key(r: Request) -> tuple[float, int]:
        uncached = r.prompt - cached[r.id]
        if r.id in late:
            return (inf, r.id)
        if uncached <= 0:
            return (-inf, r.id)
        return (-past.since(r.until if r.preemptions > 0 else r.queued) / uncached, r.id)

    return sorted(waiting, key=key)


def shortest_prefill(b: Batch, waiting: list[Request], past: Past) -> list[Request]:
    cached = cached_tokens(b, waiting)
    late = duplicates(b, waiting, cached)
    return sorted(waiting, key=lambda r: (r.id in late, r.prompt + r.generated - cached[r.id]))


def shuffled(b: Batch, waiting: list[Request], past: Past) -> list[Request]:
    line = list(waiting)
    Random(past.seed << 64 | b.tick_count).shuffle(line)
    return line


ORDERS: Final[dict[str, Order]] = {  # those that are computed for every prefill step
    "lpm": longest_prefix,
    "dfs-weight": depth_first,
    "hrrn": response_ratio,
    "shortest-prefill-first": shortest_prefill,
    "random": shuffled,
}
KNOWN: Final = ("fcfs", "lof", *ORDERS)


def cached_tokens(b: Batch, waiting: list[Request]) -> dict[int, int]:
    """Prompt tokens that each would find in the cache, by id."""
    size = b.blocks.block_size
    return {r.id: min(len(b.blocks.lookup(r)), r.prompt // size) * size for r in waiting}


def duplicates(b: Batch, waiting: list[Request], cached: dict[int, int]) -> set[int]:
    """Ids of those with little in the cache that share a prefix with one like them that queued before."""
    size = b.blocks.block_size
    seen: set[int] = set()
    found: set[int] = set()
    for r in waiting:
        if cached[r.id] > SHARED:
            continue
        if shared_blocks(r, seen) * size >= SHARED:
            found.add(r.id)
        else:
            seen.update(r.prefix)
    return found


def shared_blocks(r: Request, seen: set[int]) -> int:
    """Leading blocks of `r` that are among those `seen`."""
    for i, key in enumerate(r.prefix):
        if key not in seen:
            return i
    return len(r.prefix)
