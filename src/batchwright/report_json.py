"""Results for programs: all digits, units in the names, null where nothing applies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import combinations
from math import isnan
from typing import Any, Final

from batchwright.client_report import clients_json
from batchwright.explain import paragraph
from batchwright.interval import Interval
from batchwright.limits import Limits
from batchwright.metrics import STATISTICS, number
from batchwright.replications import HIGHER, Estimates
from batchwright.run import ReplicatedRun, Run
from batchwright.run.estimates import SPREAD_METRICS, SPREADS
from batchwright.workload import Workload

SCHEMA_VERSION: Final = 1
NAMES: Final = {  # metric -> key, where it is no spread
    "output_throughput": "output_throughput_tokens_per_s",
    "total_throughput": "total_throughput_tokens_per_s",
    "request_throughput": "request_throughput_per_s",
    "attainment": "attainment",
    "goodput": "goodput_requests_per_s",
    "mean_batch": "mean_batch_requests",
    "peak_batch": "peak_batch_requests",
    "kv_occupancy_mean": "kv_occupancy_mean",
    "kv_occupancy_peak": "kv_occupancy_peak",
    "prefix_cache_hit_rate": "prefix_cache_hit_rate",
}
METRICS: Final = [*NAMES, *SPREAD_METRICS]
RANKED: Final = [*HIGHER, *SPREAD_METRICS]


def as_json(load: Workload, limits: Limits, estimates: Estimates) -> dict[str, Any]:
    """What `--json` prints, but for the cost; the schema is in docs/json.md."""
    runs = estimates.runs
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": {
            "name": load.name,
            "num_requests": len(load),
            "span_s": number(load.span),
            "sha256": load.digest,
        },
        "limits": asdict(limits),
        "slo": None if estimates.slo is None else estimates.slo.to_json(),
        "intervals_from": estimates.method,
        "num_loads": estimates.num_loads,
        "loads_sha256": estimates.digest,
        "num_warm_up_requests": estimates.skip,
        "notes": [run.note for run in runs.values() if run.note],
        "paragraph": paragraph(runs, estimates.value),
        "policies": {name: _policy(name, run, estimates) for name, run in runs.items()},
        "winners": {key_of(metric): estimates.winner(metric) for metric in RANKED},
        "differences": {f"{b} - {a}": _differences(b, a, estimates) for a, b in combinations(runs, 2)},
    }


def key_of(metric: str) -> str:
    """The key of a metric in JSON: `goodput_requests_per_s`, `ttft_s.p99`."""
    return NAMES.get(metric, metric)


def _policy(name: str, run: Run, estimates: Estimates) -> dict[str, Any]:
    summary = run.summary
    return {
        "num_requests": summary.num_requests,
        "num_finished": summary.num_finished,
        "num_rejected": summary.num_rejected,
        "num_cut": summary.num_cut,
        "num_preemptions": summary.num_preemptions,
        "num_steps": summary.num_steps,
        "duration_s": number(summary.duration),
        **{key: number(estimates.interval(name, metric).value) for metric, key in NAMES.items()},
        **{metric: _spread(name, metric, estimates) for metric in SPREADS},
        "slots": run.slots.to_json(),
        "saturation": run.saturation().to_json(),
        "fairness": run.fairness.to_json(),
        "clients": clients_json(run),
        "intervals": dict(_intervals(name, estimates)),
        **({"replicas": [_replica(part) for part in run.parts]} if isinstance(run, ReplicatedRun) else {}),
        "per_load": {} if estimates.num_loads == 1 else dict(_per_load(name, estimates)),
    }


def _replica(run: Run) -> dict[str, Any]:
    """What one of several replicas did on the first load."""
    state = run.state()
    return {
        "num_requests": run.num_requests,
        "num_finished": run.summary.num_finished,
        "num_kv_blocks": run.limits.num_kv_blocks,
        "output_throughput_tokens_per_s": number(run.summary.output_throughput),
        "mean_batch_requests": number(state.mean_batch),
        "kv_occupancy_mean": number(state.kv_occupancy),
        "prefix_cache_hit_rate": number(state.hit_rate),
    }


def _spread(name: str, metric: str, estimates: Estimates) -> dict[str, float | None]:
    return {
        statistic: number(estimates.interval(name, f"{metric}.{statistic}").value) for statistic in STATISTICS
    }


def _intervals(name: str, estimates: Estimates) -> Iterator[tuple[str, list[float]]]:
    """Low and high of every interval that is known."""
    for metric in METRICS:
        found = estimates.interval(name, metric)
        if found.is_known:
            yield key_of(metric), [found.low, found.high]


def _per_load(name: str, estimates: Estimates) -> Iterator[tuple[str, list[float]]]:
    """The value on every load, of what applies to all of them."""
    for metric in METRICS:
        values = [load[metric] for load in estimates.values[name]]
        if not any(map(isnan, values)):
            yield key_of(metric), values


def _differences(b: str, a: str, estimates: Estimates) -> dict[str, list[float | None]]:
    """Value, low and high of every difference that applies."""
    found = {key_of(metric): estimates.difference(b, a, metric) for metric in RANKED}
    return {key: _triple(interval) for key, interval in found.items() if not isnan(interval.value)}


def _triple(found: Interval) -> list[float | None]:
    return [found.value, number(found.low), number(found.high)]
