"""Conversations: each turn's prompt is all that was said before, and then what is new.

    prompt(t) = shared prefix + new(0) + answer(0) + ... + answer(t - 1) + new(t)

Sessions start as a Poisson process; turn t + 1 arrives a think time after the answer of turn t has
ended.  A session is a client.  Its turns share their prefix: the pieces of a conversation are
numbered as it grows, answers included, and those of the shared prefix are common to all sessions
that have it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload import gaps
from batchwright.workload.checks import check_rate
from batchwright.workload.columns import Columns, Floats, Ints
from batchwright.workload.laws import Seconds, Tokens, seconds_of, tokens_of
from batchwright.workload.lengths import Shape, hashes_of, prefix_of, shape_of
from batchwright.workload.load import Workload
from batchwright.workload.made import remade
from batchwright.workload.prefix import Hashes, offsets_of, ranges
from batchwright.workload.streams import THINK, TURNS, gap_stream, stream
from batchwright.workload.token_limit import token_limit


@remade
def sessions(
    *, rate: float, turns: Tokens, think: Seconds, n: int = 1000, seed: int = 0, **rest: Any
) -> Workload:
    """`rate` conversations a second begin, with `turns` requests each; `n` requests in all.

    `prompt` and `output` are the new tokens of a turn; `think` seconds lie between an answer and
    the next turn.  The last session is cut short at `n`.  Raises InputError.
    """
    check_rate("rate", rate)
    shape = shape_of(n=n, seed=seed, **rest)
    counts = _turn_counts(turns, shape)
    starts = offsets_of(counts)[:-1]
    turn = ranges(np.zeros(len(counts), np.int64), counts)
    new, output = shape.draw()
    prompt = _conversation(new, output, starts, counts) + shape.shared_prefix
    pauses = seconds_of("think", think, stream(seed, THINK), n)
    pauses[starts] = 0.0
    columns = Columns(
        arrival=_arrivals(gaps.poisson_arrivals(gap_stream(seed), len(counts), rate), starts, n),
        prompt=prompt,
        output=output,
        client=np.repeat(np.arange(len(counts)), counts),
        hashes=_hashes(prompt + output, starts, counts, shape),
        after=np.where(turn > 0, np.arange(n) - 1, -1) if n > len(counts) else None,
        think=pauses,
        notes=(f"{len(counts)} sessions of {counts.mean():.3g} turns in the mean", *shape.notes()),
    )
    return Workload("sessions", columns, token_limit(columns, None))


def _turn_counts(turns: Tokens, shape: Shape) -> Ints:
    """Requests of each session, `n` in all."""
    counts = tokens_of("turns", turns, stream(shape.seed, TURNS), shape.n)  # n sessions are enough
    ends = np.cumsum(counts)
    last = int(np.searchsorted(ends, shape.n))
    counts = counts[: last + 1].copy()
    counts[last] -= ends[last] - shape.n
    return counts


def _conversation(new: Ints, output: Ints, starts: Ints, counts: Ints) -> Ints:
    """Tokens of the conversation before each answer, without a shared prefix.  Raises InputError."""
    said = np.cumsum(new + output)
    before = np.repeat((said - new - output)[starts], counts)
    prompt: Ints = said - before - output
    longest = int((prompt + output).max())
    if longest > LONGEST:
        raise InputError(
            f"a conversation has {longest} tokens, over {LONGEST}; lower turns or the lengths of a turn"
        )
    return prompt


def _arrivals(firsts: Floats, starts: Ints, count: int) -> Floats:
    """Those of first turns; nan for the others."""
    arrival = np.full(count, np.nan)
    arrival[starts] = firsts
    return arrival


def _hashes(covered: Ints, starts: Ints, counts: Ints, shape: Shape) -> Hashes:
    """`covered`: tokens of the conversation after each answer."""
    shared = shape.shared_prefix // shape.piece
    own = -(-covered // shape.piece) - shared
    ends = starts + counts - 1  # the last turn has all pieces of its session
    first_own = shape.prefixes * shared + offsets_of(own[ends])[:-1]
    first_shared = prefix_of(len(counts), shape) * shared
    return hashes_of(
        np.repeat(first_shared, counts), shared, np.repeat(first_own, counts), own, shape.piece, covered
    )
