"""The numbers of a comparison: averages over the requests and over the time of one run.

    mean batch    = sum of all stays / busy time          (seconds of requests that run)
    KV occupancy  = sum of taken share * seconds / busy time, over the stretches
    throughput    = tokens of finished requests / duration

Busy time is the time in which steps run.  Blocks are taken evenly inside a stretch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchwright.limits import UNLIMITED
from batchwright.metrics import Numbers, Spread, spread
from batchwright.run.timeline import Timeline

if TYPE_CHECKING:
    from batchwright.run import Run


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One row of a comparison.  Seconds, tokens and requests; nan: not applicable.

    itl            gaps between successive tokens of a request, all gaps of all requests alike
    normalised     E2E per output token
    mean_batch     requests that run, averaged over the time in which the engine is busy
    peak_batch     the most that had a seat in one step
    kv_occupancy   share of the KV blocks that are taken, averaged over the same time; nan if
                   memory is not modelled.  Blocks set aside at admission count as taken
    """

    num_requests: int
    num_finished: int
    num_rejected: int
    num_cut: int  # outputs that ended at max_model_len (the workload has cut those over max_tokens)
    num_preemptions: int
    num_steps: int
    num_decisions: int
    duration: float  # from the first arrival to the last end
    output_throughput: float  # output tokens/s
    total_throughput: float  # prompt and output tokens/s
    ttft: Spread
    tpot: Spread
    itl: Spread
    e2e: Spread
    normalised: Spread
    mean_batch: float
    peak_batch: float
    kv_occupancy: float
    kv_peak: float
    hit_rate: float  # share of prompt tokens found in the prefix cache when first admitted; nan if
    # caching is off or the workload says of no prompt how it begins


def summarise(run: Run) -> Summary:
    """The summary of a run."""
    columns = run.requests()
    is_done = ~np.isnan(columns["finished_s"])
    output, total, duration = served(columns, is_done)
    occupancy, peak = kv_occupancy(run.timeline, run.limits.blocks)
    return Summary(
        num_requests=len(is_done),
        num_finished=int(is_done.sum()),
        num_rejected=len(run.rejected),
        num_cut=run.num_cut,
        num_preemptions=int(columns["preemptions"].sum()),
        num_steps=run.timeline.num_steps,
        num_decisions=run.num_decisions,
        duration=duration,
        output_throughput=output / duration,
        total_throughput=total / duration,
        ttft=spread(columns["ttft_s"]),
        tpot=spread(columns["tpot_s"]),
        itl=run.itl(),
        e2e=spread(columns["e2e_s"]),
        normalised=spread(columns["normalised_s"]),
        mean_batch=mean_batch(run.timeline),
        peak_batch=peak_batch(run.timeline),
        kv_occupancy=occupancy,
        kv_peak=peak,
        hit_rate=hit_rate(run),
    )


def served(columns: dict[str, Numbers], is_done: Numbers, begin: float = 0.0) -> tuple[int, int, float]:
    """Output tokens, all tokens, and seconds from `begin` to the last end, of the requests that are done."""
    output = int(columns["output_tokens"][is_done].sum())
    prompt = int(columns["prompt_tokens"][is_done].sum())
    duration = float(columns["finished_s"][is_done].max()) - begin if is_done.any() else np.nan
    return output, output + prompt, duration


def mean_batch(timeline: Timeline, since: float = 0.0) -> float:
    """Requests with a seat, over the busy time from second `since` on; nan if there is none."""
    stays = timeline.admitted
    began = np.maximum(timeline.begin_of(stays["admitted"]), since)
    ended = np.maximum(timeline.end_before(np.maximum(stays["until"], 1)), since)
    busy = busy_since(timeline, since).sum()
    return float((ended - began).sum() / busy) if busy > 0 else np.nan


def busy_since(timeline: Timeline, since: float) -> Numbers:
    """Seconds of every stretch from second `since` on."""
    seconds: Numbers = np.maximum(timeline.times, since) - np.maximum(timeline.begins, since)
    return seconds


def peak_batch(timeline: Timeline) -> float:
    """The most requests that had a seat in one step; nan if none ran."""
    if len(timeline.steps) == 0:
        return np.nan
    stays = timeline.admitted
    return float(timeline.count(stays["admitted"], stays["until"]).max())


def hit_rate(run: Run) -> float:
    """Cached tokens over prompt tokens, in the first stay of every request that was admitted."""
    ids, cached = run.timeline.admitted["id"], run.timeline.admitted["cached"]
    ids, first = np.unique(ids, return_index=True)  # stays are in order of admission
    if len(ids) == 0 or not (run.caches or cached[first].any()):
        return np.nan
    return float(cached[first].sum() / run.load.prompt[ids].sum())


def kv_occupancy(timeline: Timeline, blocks: int, since: float = 0.0) -> tuple[float, float]:
    """Share of taken blocks: the mean over the busy time from second `since` on, and the peak of the run.

    Inside a stretch of k steps they are taken evenly: b / k in each, so that the mean over its
    steps is what is free at its end and b (k - 1) / 2k.
    """
    seconds = busy_since(timeline, since)
    if blocks == UNLIMITED or not seconds.any():
        return np.nan, np.nan
    taken, freed = timeline.column("taken"), timeline.column("freed")
    after = blocks + np.cumsum(freed - taken)
    free = after - freed
    before = np.concatenate(([blocks], after[:-1]))
    mean = free + np.maximum(before - free, 0) * (timeline.steps - 1) / (2 * timeline.steps)
    share = ((1 - mean / blocks) * seconds).sum() / seconds.sum()
    return float(share), float(1 - free.min() / blocks)
