"""Everything of a run that can be compared, as flat numbers by name: `ttft_s.p99`, `goodput`...

Names say the unit where it is not requests, tokens per second or a share; nan is not applicable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from batchwright.errors import InputError
from batchwright.metrics import STATISTICS, Numbers, Spread, spread
from batchwright.run.summary import served
from batchwright.slo import Slo

if TYPE_CHECKING:
    from batchwright.run import Run

SPREADS: Final = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "normalised_s")
SPREAD_METRICS: Final = tuple(f"{name}.{statistic}" for name in SPREADS for statistic in STATISTICS)


def estimates(run: Run, slo: Slo | None = None, skip: int = 0) -> dict[str, float]:
    """The numbers of `run` without its first `skip` requests, in order of arrival.

    Raises InputError unless `skip` leaves a request.
    """
    kept = kept_requests(run, skip)
    columns = {name: column[kept] for name, column in run.requests().items()}
    found: dict[str, float] = {}
    for name in SPREADS:
        values = run.itl(kept) if name == "itl_s" else spread(columns[name])
        found |= flat(name, values)
    begin = float(np.nanmin(columns["arrival_s"]))
    found |= _rates(columns, begin)
    found |= _objectives(run, slo, kept, found["duration_s"])
    state = run.state(begin)
    found |= {
        "mean_batch": state.mean_batch,
        "peak_batch": state.peak_batch,
        "kv_occupancy_mean": state.kv_occupancy,
        "kv_occupancy_peak": state.kv_peak,
        "prefix_cache_hit_rate": state.hit_rate,
    }
    return found


def kept_requests(run: Run, skip: int) -> Numbers:
    """Ids of all requests but the first `skip`, in order of arrival.  Raises InputError if none is left."""
    count = len(run.load)
    if not 0 <= skip < count:
        raise InputError(f"{skip} of {count} requests are left out as warm-up; give 0 to {count - 1}")
    return np.argsort(run.arrival, kind="stable")[skip:]


def flat(name: str, values: Spread) -> dict[str, float]:
    """`ttft_s.mean` and so on."""
    return {f"{name}.{statistic}": getattr(values, statistic) for statistic in STATISTICS}


def _rates(columns: dict[str, Numbers], begin: float) -> dict[str, float]:
    is_done = ~np.isnan(columns["finished_s"])
    output, total, duration = served(columns, is_done, begin)
    return {
        "output_throughput": output / duration,
        "total_throughput": total / duration,
        "request_throughput": float(is_done.sum()) / duration,
        "duration_s": duration,
        "preemptions": float(columns["preemptions"].sum()),
        "finished": float(is_done.sum()),
    }


def _objectives(run: Run, slo: Slo | None, kept: Numbers, duration: float) -> dict[str, float]:
    met = None if slo is None else run.met(slo)
    if met is None:
        return {"attainment": np.nan, "goodput": np.nan}
    count = float(met[kept].sum())
    return {"attainment": count / len(kept), "goodput": count / duration}
