"""The folder that LLMServingSim's bench writes, which drives vLLM in its own process.

    requests.jsonl  input_toks, output_toks; arrival_time in seconds since 1970; queued_ts, scheduled_ts,
                    first_token_ts and last_token_ts in seconds of the engine's monotonic clock
    timeseries.csv  t in seconds, running, waiting, kv_cache_pct, and throughputs in tokens/s
    meta.json       engine arguments, resolved configuration, hardware, KV blocks

Its bench counts from `queued_ts`, when the engine saw the request: TTFT = first_token_ts - queued_ts,
E2E = last_token_ts - queued_ts.  We keep these as the file's own.  `arrival_s` is by `arrival_time`, which
another clock told before the request reached the engine; a finding says how much later that was.

Source: casys-kaist/LLMServingSim, `bench`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from msgspec import Struct

from batchwright.errors import InputError
from batchwright.imported.arrays import floats, wholes
from batchwright.imported.numbers_table import columns
from batchwright.imported.result import Columns, Finding, Imported
from batchwright.imported.serving_about import about
from batchwright.imported.serving_checks import checks
from batchwright.imported.source import Source, as_type
from batchwright.metrics import Numbers, tpot

FORM: Final = "LLMServingSim bench folder"
META, REQUESTS, SERIES = "meta.json", "requests.jsonl", "timeseries.csv"
TITLES: Final = ("t", "prompt_throughput", "gen_throughput", "running", "waiting", "kv_cache_pct")
CONVENTIONS: Final = (
    "TTFT is first_token_ts - queued_ts, E2E is last_token_ts - queued_ts: from when the engine had "
    "the request",
    "TPOT is (last_token_ts - first_token_ts) / (output_toks - 1), as ours",
    "arrival_s is arrival_time, by the wall clock; all other times are moved to it by the least "
    "difference of the two clocks",
)


class _Row(Struct):
    input_toks: int
    output_toks: int
    arrival_time: float
    queued_ts: float | None = None
    scheduled_ts: float | None = None
    first_token_ts: float | None = None
    last_token_ts: float | None = None


def matches(source: Source) -> bool:
    return source.is_folder and all((source.path / name).is_file() for name in (META, REQUESTS))


def read(source: Source) -> Imported:
    """Raises InputError on a file of the folder that is cut, or lacks what such a file has."""
    meta = _meta(source)
    rows = _rows(source)
    requests, apart = _requests(rows)
    file = source.path / SERIES
    series = _series(Source.open(file, None)) if file.is_file() else None
    facts = about(meta)
    return Imported(
        file=source.name,
        form=FORM,
        conventions=CONVENTIONS,
        findings=tuple([*_counts(meta, rows), *checks(requests, apart, series, facts)]),
        about=facts,
        requests=requests,
        series=series,
        totals=_totals(requests),
    )


def _meta(source: Source) -> Mapping[str, Any]:
    file = Source.open(source.path / META, None)
    if not isinstance(file.whole, dict) or "engine_kwargs" not in file.whole:
        raise InputError(
            f"{file.name}: is no JSON object with engine_kwargs; give the whole folder of the bench"
        )
    found: Mapping[str, Any] = file.whole
    return found


def _rows(source: Source) -> list[_Row]:
    file = Source.open(source.path / REQUESTS, None)
    rows = [as_type(file, item, _Row, "request of the bench", row) for row, item in file.objects()]
    return sorted(rows, key=lambda row: row.arrival_time)


def _requests(rows: list[_Row]) -> tuple[dict[str, Numbers], Numbers]:
    """Columns, and how much later than the quickest one each request reached the engine, in seconds."""

    def column(name: str) -> Numbers:
        return floats(getattr(row, name) for row in rows)

    arrival, queued = column("arrival_time"), column("queued_ts")
    first, last = column("first_token_ts"), column("last_token_ts")
    output = wholes(row.output_toks for row in rows)
    is_completed = ~np.isnan(last)
    lag = queued - arrival
    offset = float(np.min(lag[~np.isnan(lag)], initial=np.inf))  # of the two clocks
    offset = offset if np.isfinite(offset) else 0.0
    origin = arrival[0] + offset
    found = {
        "arrival_s": arrival - arrival[0],
        "prompt_tokens": wholes(row.input_toks for row in rows),
        "output_tokens": output,
        "queued_s": queued - origin,
        "scheduled_s": column("scheduled_ts") - origin,
        "first_token_s": first - origin,
        "finished_s": last - origin,
        "ttft_s": first - queued,
        "tpot_s": tpot(first, last, output),
        "e2e_s": last - queued,
        "is_completed": is_completed.astype(np.int64),
    }
    return found, lag - offset


def _series(file: Source) -> dict[str, Numbers]:
    found = columns(file, TITLES, "a time series of the bench")
    series = {
        "time_s": found["t"],
        "running": found["running"],
        "waiting": found["waiting"],
        "prompt_tokens_per_s": found["prompt_throughput"],
        "output_tokens_per_s": found["gen_throughput"],
    }
    usage = found["kv_cache_pct"] / 100
    is_recorded = usage.any() or not found["running"].any()
    return {**series, "kv_usage": usage} if is_recorded else series


def _totals(requests: Columns) -> dict[str, float]:
    done = requests["is_completed"] == 1
    totals = {"num_completed": float(done.sum()), "num_failed": float((~done).sum())}
    if not done.any():
        return totals
    duration = float(requests["finished_s"][done].max() - np.nanmin(requests["queued_s"]))
    output = float(requests["output_tokens"][done].sum())
    if not duration > 0:
        return totals
    rates = {"requests_per_s": totals["num_completed"] / duration, "output_tokens_per_s": output / duration}
    return {**totals, "duration_s": duration, "output_tokens": output, **rates}


def _counts(meta: Mapping[str, Any], rows: list[_Row]) -> Iterator[Finding]:
    said = meta.get("num_requests")
    if said is not None and said != len(rows):
        yield Finding(
            text=f"{META} tells of {said} requests, {REQUESTS} has {len(rows)}: the folder is not whole",
            is_wrong=True,
        )
