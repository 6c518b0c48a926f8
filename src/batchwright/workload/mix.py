"""Several loads as one, merged by arrival.

Each keeps its own limits; clients, and what prompts share, are numbered apart, so that no two
loads have a client or a prefix in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from batchwright.errors import InputError
from batchwright.workload.columns import Columns, Floats, Ints
from batchwright.workload.prefix import Hashes, offsets_of
from batchwright.workload.token_limit import TokenLimit

if TYPE_CHECKING:
    from batchwright.workload.load import Workload


def mixed(loads: Sequence[Workload]) -> Workload:
    """All requests of `loads`.  Raises InputError if there are none."""
    parts = tuple(loads)
    if not parts:
        raise InputError("a mix of 0 loads; give at least 1")
    order = np.lexsort((np.arange(sum(map(len, parts))), np.concatenate([_clock(load) for load in parts])))
    limit = TokenLimit(
        np.concatenate([load.max_tokens for load in parts])[order],
        "max_tokens is that of each load of the mix: " + "; ".join(_limits(parts)),
        is_default=all(load.token_limit.is_default for load in parts),
        is_oracle=any(load.token_limit.is_oracle for load in parts),
    )
    return replace(
        parts[0],
        name="mix(" + ", ".join(load.name for load in parts) + ")",
        columns=_joined(parts).take(order),
        token_limit=limit,
        made=partial(_again, parts),
        seed=0,
    )


def _again(parts: tuple[Workload, ...], seed: int) -> Workload:
    """The mix of the repetitions of its loads."""
    return mixed([load.replicate(seed) for load in parts])


def _limits(parts: tuple[Workload, ...]) -> list[str]:
    return list(dict.fromkeys(f"{load.name}: {load.token_limit.note}" for load in parts))


def _clock(load: Workload) -> Floats:
    """When each request comes, or the last one before it that does not follow another."""
    times = np.where(np.isnan(load.arrival), 0.0, load.arrival)
    return np.maximum.accumulate(times)


def _joined(parts: tuple[Workload, ...]) -> Columns:
    """The columns one after the other."""
    columns = [load.columns for load in parts]
    firsts = offsets_of(np.array([len(load) for load in parts]))[:-1].tolist()
    notes = [f"{load.name}: {note}" for load in parts for note in load.columns.notes]
    return Columns(
        arrival=np.concatenate([load.arrival for load in parts]),
        prompt=np.concatenate([load.prompt for load in parts]),
        output=np.concatenate([part.output for part in columns]),
        max_tokens=_optional([part.max_tokens for part in columns], [load.max_tokens for load in parts]),
        priority=_optional([part.priority for part in columns], [_zeros(load) for load in parts]),
        client=np.concatenate(_clients(parts)),
        hashes=_hashes(columns),
        after=_after(columns, firsts),
        think=_optional_floats(columns),
        has_arrivals=any(part.has_arrivals for part in columns),
        notes=tuple(dict.fromkeys(notes)),
    )


def _zeros(load: Workload) -> Ints:
    return np.zeros(len(load), np.int64)


def _optional(values: list[Ints | None], others: list[Ints]) -> Ints | None:
    """A column that some loads have; `others`: what stands for it in those that do not."""
    if all(value is None for value in values):
        return None
    pairs = zip(values, others, strict=True)
    return np.concatenate([other if value is None else value for value, other in pairs])


def _optional_floats(columns: list[Columns]) -> Floats | None:
    if all(part.think is None for part in columns):
        return None
    return np.concatenate([np.zeros(len(c.arrival)) if c.think is None else c.think for c in columns])


def _after(columns: list[Columns], firsts: list[int]) -> Ints | None:
    if all(part.after is None for part in columns):
        return None
    found = []
    for part, first in zip(columns, firsts, strict=True):
        after = np.full(len(part.arrival), -1) if part.after is None else part.after
        found.append(np.where(after < 0, -1, after + first))
    return np.concatenate(found)


def _clients(parts: tuple[Workload, ...]) -> list[Ints]:
    """Numbered apart; a load that names none is one client."""
    found, first = [], 0
    for load in parts:
        clients = _zeros(load) if load.client is None else load.client
        found.append(clients + first)
        first += int(clients.max()) + 1
    return found


def _hashes(columns: list[Columns]) -> Hashes | None:
    """All hashes in pieces of one size; prompts without any share nothing."""
    if all(part.hashes is None for part in columns):
        return None
    tokens = int(np.gcd.reduce([part.hashes.tokens for part in columns if part.hashes is not None]))
    found = [_alike(part, tokens) for part in columns]
    ids, first = [], 0
    for hashes in found:
        numbers, place = np.unique(hashes.ids, return_inverse=True)
        ids.append(place.reshape(-1) + first)
        first += len(numbers)
    counts = np.concatenate([hashes.counts for hashes in found])
    covered = _optional([hashes.covered for hashes in found], [part.prompt for part in columns])
    return Hashes(np.concatenate(ids), offsets_of(counts), tokens, covered)


def _alike(part: Columns, tokens: int) -> Hashes:
    """The hashes of one load, in pieces of `tokens`."""
    if part.hashes is not None:
        return part.hashes.finer(tokens, part.prompt)
    counts = -(-part.prompt // tokens)
    return Hashes(np.arange(counts.sum()), offsets_of(counts), tokens)
