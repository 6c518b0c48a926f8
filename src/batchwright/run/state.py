"""What the servers of a run did, over the time in which they were busy.

    mean batch    = sum of all stays / busy time          (seconds of requests that run)
    KV occupancy  = sum of taken share * seconds / busy time, over the stretches

Busy time is the time in which steps run.  Blocks are taken evenly inside a stretch.  Of several
replicas busy times add up, so the mean is that of one replica while it is busy, and a replica with
more blocks counts for more; peaks are the greatest of any one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchwright.limits import UNLIMITED
from batchwright.metrics import Numbers
from batchwright.run.timeline import Timeline

if TYPE_CHECKING:
    from batchwright.run import Run


@dataclass(frozen=True, kw_only=True)
class State:
    """Requests, and shares of the KV blocks and of the prompts; nan: not applicable."""

    mean_batch: float
    peak_batch: float
    kv_occupancy: float
    kv_peak: float
    hit_rate: float


def state(run: Run, since: float = 0.0) -> State:
    """From second `since` on; peaks and hits are those of the whole run."""
    timelines = [part.timeline for part in run.parts]
    occupancy, peak = _kv_occupancy(run.parts, since)
    return State(
        mean_batch=_mean_batch(timelines, since),
        peak_batch=_peak_batch(timelines),
        kv_occupancy=occupancy,
        kv_peak=peak,
        hit_rate=_hit_rate(run),
    )


def _mean_batch(timelines: Sequence[Timeline], since: float) -> float:
    """Requests with a seat, over the busy time; nan if there is none."""
    busy = sum(float(busy_since(timeline, since).sum()) for timeline in timelines)
    return sum(_seat_seconds(timeline, since) for timeline in timelines) / busy if busy > 0 else np.nan


def _seat_seconds(timeline: Timeline, since: float) -> float:
    stays = timeline.admitted
    began = np.maximum(timeline.begin_of(stays["admitted"]), since)
    ended = np.maximum(timeline.end_before(np.maximum(stays["until"], 1)), since)
    return float((ended - began).sum())


def busy_since(timeline: Timeline, since: float) -> Numbers:
    """Seconds of every stretch from second `since` on."""
    seconds: Numbers = np.maximum(timeline.times, since) - np.maximum(timeline.begins, since)
    return seconds


def _peak_batch(timelines: Sequence[Timeline]) -> float:
    """The most requests that had a seat in one step; nan if none ran."""
    peaks = [_peak(timeline) for timeline in timelines if len(timeline.steps)]
    return float(max(peaks)) if peaks else np.nan


def _peak(timeline: Timeline) -> int:
    stays = timeline.admitted
    return int(timeline.count(stays["admitted"], stays["until"]).max())


def _hit_rate(run: Run) -> float:
    """Cached tokens over prompt tokens, in the first stay of every request that was admitted."""
    admitted = prompt = cached = 0
    for part in run.parts:
        stays = part.timeline.admitted
        ids, first = np.unique(stays["id"], return_index=True)  # stays are in order of admission
        admitted += len(ids)
        cached += int(stays["cached"][first].sum())
        prompt += int(run.load.prompt[ids].sum())
    if admitted == 0 or not (run.caches or cached > 0):
        return np.nan
    return cached / prompt


def _kv_occupancy(parts: Sequence[Run], since: float) -> tuple[float, float]:
    """Share of taken blocks: the mean over the busy time, and the peak of the run."""
    busy = taken = 0.0
    peaks = []
    for part in parts:
        seconds = busy_since(part.timeline, since)
        if part.limits.blocks < UNLIMITED and seconds.any():
            weight = part.limits.blocks / parts[0].limits.blocks
            share, peak = _taken(part.timeline, part.limits.blocks)
            taken += weight * float((share * seconds).sum())
            busy += weight * float(seconds.sum())
            peaks.append(peak)
    return (taken / busy, max(peaks)) if peaks else (np.nan, np.nan)


def _taken(timeline: Timeline, blocks: int) -> tuple[Numbers, float]:
    """The share of taken blocks in every stretch, on average, and the greatest.

    Inside a stretch of k steps they are taken evenly: b / k in each, so that the mean over its
    steps is what is free at its end and b (k - 1) / 2k.
    """
    taken, freed = timeline.column("taken"), timeline.column("freed")
    after = blocks + np.cumsum(freed - taken)
    free = after - freed
    before = np.concatenate(([blocks], after[:-1]))
    mean = free + np.maximum(before - free, 0) * (timeline.steps - 1) / (2 * timeline.steps)
    share: Numbers = 1 - mean / blocks
    return share, float(1 - free.min() / blocks)
