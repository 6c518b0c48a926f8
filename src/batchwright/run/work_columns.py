"""What every step of a run computed, as cost models see it: columns made from its log, in arrays.

A decode of a stay reads, in a tick t in which decodes run,

    context at the end - clock at the end + clock of t
        + holds of the stay after t - drafts that it gained from t on

KV tokens.  The sum over stays is counted for the first step of every stretch, as all of a stretch
decode in each of its steps, and grows by the number of rows; who is held is taken off again.
"""

from __future__ import annotations

import numpy as np

from batchwright.metrics import Numbers
from batchwright.run.decode_runs import prompt_and_more
from batchwright.run.timeline import Timeline


def work_columns(timeline: Timeline) -> dict[str, Numbers]:
    """One row per step, in order: fields of `Step` by their names, the padding of prompts left out.

    `prefill_tokens` and `num_decodes` are in `step_columns`.
    """
    ticks, tokens, past = _chunks(timeline)
    count = timeline.num_steps
    return {
        "num_chunks": np.bincount(ticks, minlength=count),
        "past_tokens": np.bincount(ticks, past, count).astype(np.int64),
        "prefill_attention": np.bincount(ticks, tokens * (past + tokens / 2), count),
        "padded_rows": np.repeat(timeline.padded, timeline.steps),
        "context_tokens": _context(timeline),
    }


def _chunks(timeline: Timeline) -> tuple[Numbers, Numbers, Numbers]:
    """Tick, tokens and past tokens of every chunk, stay by stay."""
    stays, early = timeline.admitted, timeline.column("chunks").reshape(-1, 3)
    owners = np.searchsorted(stays["seat"], early[:, 1])
    begin = stays["cached"] + stays["brought"]
    rest = prompt_and_more(timeline) - begin - np.bincount(owners, early[:, 2], len(begin)).astype(np.int64)
    last = np.flatnonzero(timeline.has_prompt)
    ticks = np.concatenate((early[:, 0], stays["since"][last] - 1))
    places = np.concatenate((owners, last))
    tokens = np.concatenate((early[:, 2], rest[last]))
    order = np.lexsort((ticks, places))
    ticks, places, tokens = ticks[order], places[order], tokens[order]
    before = np.cumsum(tokens) - tokens  # of all chunks, those of other stays too
    own = before - before[np.searchsorted(places, places)]
    return ticks, tokens, begin[places] + own


def _context(timeline: Timeline) -> Numbers:
    """KV tokens that decodes and padded rows read in every step."""
    stays, (ticks, places, gained) = timeline.admitted, timeline.accepted
    first = timeline.first_context - _held_context(timeline)
    first = first - timeline.count(stays["since"][places], ticks + 1, gained)  # that came later
    first[timeline.is_paused] = 0
    rows = np.repeat(timeline.decodes + timeline.padded, timeline.steps)
    inside = np.arange(timeline.num_steps) - np.repeat(timeline.first, timeline.steps)
    context: Numbers = np.repeat(first, timeline.steps) + rows * inside
    return context


def _held_context(timeline: Timeline) -> Numbers:
    """Per stretch, what `first_context` counts of the decodes that missed it."""
    stays, (ticks, places) = timeline.admitted, timeline.held
    shift = stays["context"][places] - timeline.clock(stays["stopped"][places])
    tokens = shift + timeline.clock(ticks) + _from_on(places, ticks + 1, places, ticks, np.ones_like(ticks))
    when, who, gained = timeline.accepted
    tokens = tokens - _from_on(places, ticks, who, when, gained)
    held: Numbers = np.bincount(timeline.stretch_of(ticks), tokens, len(timeline.steps)).astype(np.int64)
    return held


def _from_on(place: Numbers, tick: Numbers, places: Numbers, ticks: Numbers, amounts: Numbers) -> Numbers:
    """Of each pair of a stay and a tick, the amounts of that stay from the tick on."""
    width = max([1, *(int(values.max()) + 2 for values in (tick, ticks) if len(values))])
    keys = places * width + ticks
    order = np.argsort(keys, kind="stable")
    total = np.concatenate(([0], np.cumsum(amounts[order])))
    begin = np.searchsorted(keys[order], place * width + tick)
    end = np.searchsorted(keys[order], (place + 1) * width)
    sums: Numbers = total[end] - total[begin]
    return sums
