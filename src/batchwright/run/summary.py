"""The numbers of a comparison: averages over the requests and over the time of one run.

    throughput    = tokens of finished requests / duration

What the servers did (batch, KV blocks) is in `state`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from batchwright.metrics import Numbers, Spread, spread

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
    state = run.state()
    return Summary(
        num_requests=len(is_done),
        num_finished=int(is_done.sum()),
        num_rejected=len(run.rejected),
        num_cut=run.num_cut,
        num_preemptions=int(columns["preemptions"].sum()),
        num_steps=sum(part.timeline.num_steps for part in run.parts),
        num_decisions=run.num_decisions,
        duration=duration,
        output_throughput=output / duration,
        total_throughput=total / duration,
        ttft=spread(columns["ttft_s"]),
        tpot=spread(columns["tpot_s"]),
        itl=run.itl(),
        e2e=spread(columns["e2e_s"]),
        normalised=spread(columns["normalised_s"]),
        mean_batch=state.mean_batch,
        peak_batch=state.peak_batch,
        kv_occupancy=state.kv_occupancy,
        kv_peak=state.kv_peak,
        hit_rate=state.hit_rate,
    )


def served(columns: dict[str, Numbers], is_done: Numbers, begin: float = 0.0) -> tuple[int, int, float]:
    """Output tokens, all tokens, and seconds from `begin` to the last end, of the requests that are done."""
    output = int(columns["output_tokens"][is_done].sum())
    prompt = int(columns["prompt_tokens"][is_done].sum())
    duration = float(columns["finished_s"][is_done].max()) - begin if is_done.any() else np.nan
    return output, output + prompt, duration
