"""The steps of a run as columns, made from its log in arrays; no step is expanded.

Inside a stretch only the free blocks change.  A decode takes a block in every `block_size`-th clock:

    a decode at clock c, k of whose clocks since `low` were holds, reads filled + c - low - k tokens,
    and takes a block where that is a multiple of block_size

With the clocks laid out in rows of one remainder each, c = block_size * column + row, those are
neighbours in one row, so a run of them costs two entries of a difference, however long it is.
"""

from __future__ import annotations

import numpy as np

from batchwright.errors import InputError
from batchwright.log import ABORTED, COMPLETE, DROPPED, MOVED, PREEMPTED, SWAPPED
from batchwright.metrics import Numbers
from batchwright.run.decode_runs import prompt_and_more, runs
from batchwright.run.timeline import Timeline


def step_columns(timeline: Timeline, blocks: int, block_size: int) -> dict[str, Numbers]:
    """One row per step, in order: the columns of `Run.steps`; `blocks`, `block_size`: of its KV cache.

    Raises InputError if requests still have seats.
    """
    seats = timeline.stays["seat"]
    if len(np.unique(seats[seats > 0])) < timeline.log.num_seats:
        raise InputError("the run is not over: requests have seats; drain it and advance to the end")
    count, stays = timeline.num_steps, timeline.stays
    until, how = stays["until"], stays["how"]
    preempted = until[np.isin(how, (PREEMPTED, SWAPPED))]
    finished = until[np.isin(how, (COMPLETE, DROPPED))] - 1
    return {
        "step": np.arange(count),
        "start_s": timeline.starts,
        "end_s": timeline.ends,
        "prefill_tokens": _prefill_tokens(timeline),
        "num_decodes": np.repeat(timeline.decodes, timeline.steps),
        "running": _running(timeline),
        "waiting": _waiting(timeline),
        "preempted": np.bincount(preempted, minlength=count)[:count],
        "finished": np.bincount(finished, minlength=count),
        "free_blocks": _free_blocks(timeline, blocks, block_size),
    }


def _running(timeline: Timeline) -> Numbers:
    """Requests with a seat after each step; who is preempted or aborted has left before it."""
    stays = timeline.admitted
    ends_with_step = np.isin(stays["how"], (COMPLETE, MOVED))
    return _level(timeline, [stays["admitted"]], [stays["until"] - ends_with_step])


def _waiting(timeline: Timeline) -> Numbers:
    """Requests that have come, and have no seat after each step."""
    stays = timeline.stays
    until, how = stays["until"], stays["how"]
    first = np.unique(stays["id"], return_index=True)[1]
    is_aborted = (how == ABORTED) & (stays["seat"] == 0)
    return _level(
        timeline,
        [stays["queued"][first], until[np.isin(how, (PREEMPTED, SWAPPED))]],
        [timeline.admitted["admitted"], until[how == DROPPED] - 1, until[is_aborted]],
    )


def _level(timeline: Timeline, come: list[Numbers], go: list[Numbers]) -> Numbers:
    """How many are there at each tick; what happens after the last step is left out."""
    count = timeline.num_steps
    change = np.bincount(np.concatenate(come), minlength=count)[:count]
    change = change - np.bincount(np.concatenate(go), minlength=count)[:count]
    return np.cumsum(change)


def _prefill_tokens(timeline: Timeline) -> Numbers:
    """Prompt tokens of each step, padding left out."""
    stays, early = timeline.admitted, timeline.column("chunks").reshape(-1, 3)
    places = np.searchsorted(stays["seat"], early[:, 1])
    done = np.bincount(places, early[:, 2], len(stays["seat"]))
    rest = prompt_and_more(timeline) - stays["cached"] - stays["brought"] - done
    has_all = timeline.has_prompt
    ticks = np.concatenate((early[:, 0], stays["since"][has_all] - 1))
    tokens = np.concatenate((early[:, 2], rest[has_all]))
    return np.bincount(ticks, tokens, timeline.num_steps).astype(np.int64)


def _free_blocks(timeline: Timeline, blocks: int, block_size: int) -> Numbers:
    """Free blocks in each step, before requests leave at its end."""
    freed = timeline.column("freed")
    free = blocks + np.cumsum(freed - timeline.column("taken")) - freed
    taken = np.zeros(timeline.num_steps, np.int64)
    is_decoding = np.ones(timeline.num_steps, bool)
    is_decoding[timeline.column("paused")] = False
    taken[is_decoding] = _taken(timeline, block_size, int(is_decoding.sum()))
    taken = np.cumsum(taken)
    return np.repeat(free + taken[timeline.last - 1], timeline.steps) - taken


def _taken(timeline: Timeline, block_size: int, num_clocks: int) -> Numbers:
    """Blocks that decodes take in each clock."""
    takes = (timeline.admitted["since"] >= 0) & (timeline.admitted["reserved"] == 0)
    low, high, phase = runs(timeline, takes, timeline.admitted["stopped"])
    row = phase % block_size
    begin, end = (
        -(-(clock - row) // block_size) for clock in (low, high)
    )
    width = num_clocks // block_size + 2
    change = np.bincount(row * width + begin, minlength=block_size * width)
    change -= np.bincount(row * width + end, minlength=block_size * width)
    by_row = np.cumsum(change.reshape(block_size, width), axis=1)
    return by_row.T.ravel()[:num_clocks]
