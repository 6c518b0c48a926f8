"""GuideLLM's JSON report: benchmarks, each with its requests that succeeded, failed or did not end.

    time_to_first_token_ms    first token - request start                          as ours
    inter_token_latency_ms    (last token - first) / (output - 1) of a request     our TPOT, and no gaps
    time_per_output_token_ms  (last token - request start) / output: counts the wait for the first token
                              before 0.4: (last - first) / output
    request_latency           end of the stream - request start, in seconds; ours ends with the last token
    output_tokens             by the server's usage, else the number of chunks

Since 0.4 the times are in `info.timings`, seconds since 1970; before, in the request itself.

Source: GuideLLM 0.8.1, `schemas/base/request_stats.py` and `info.py`; 0.2.1, `benchmark/benchmark.py`.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from batchwright.imported.arrays import floats, scalars, wholes
from batchwright.imported.choose import chosen
from batchwright.imported.client import imported
from batchwright.imported.result import About, Imported
from batchwright.imported.seen import Asked, Claims, Column, Rows, Seen
from batchwright.imported.serving_result import number
from batchwright.imported.source import Source, as_type
from batchwright.metrics import Numbers

FORM: Final = "GuideLLM report"
CONVENTIONS: Final = (
    "TTFT: first token - request start, in milliseconds: as ours",
    "ITL: (last token - first) / (N - 1) of each request, in milliseconds: our TPOT; there are no gaps",
    "TPOT: {}, in milliseconds: not ours, which is made anew",
    "E2E: to the end of the stream, in seconds: ours ends with the last token",
)
FORMULA: Final = "(last token - request start) / N, which counts the wait for the first token"
OLD_FORMULA: Final = "(last token - first) / N, which counts a gap too many"


class _Timings(Struct):
    request_start: float | None = None
    first_token_iteration: float | None = None
    last_token_iteration: float | None = None
    token_iterations: int | None = None


class _Info(Struct):
    timings: _Timings


class _Request(Struct):
    """One request.  `info` since 0.4; the times of its own before."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    info: _Info | None = None
    start_time: float | None = None
    first_token_time: float | None = None
    last_token_time: float | None = None
    time_to_first_token_ms: float | None = None
    inter_token_latency_ms: float | None = None
    time_per_output_token_ms: float | None = None

    @property
    def was_sent(self) -> bool:
        return self.timings.request_start is not None

    @property
    def timings(self) -> _Timings:
        if self.info is not None:
            return self.info.timings
        return _Timings(self.start_time, self.first_token_time, self.last_token_time)


class _Requests(Struct):
    successful: list[_Request]
    errored: list[_Request] = []
    incomplete: list[_Request] = []


class _Strategy(Struct):
    kind: str = field(name="type_")
    rate: float | None = None
    streams: int | None = None
    max_concurrency: int | None = None


class _Setting(Struct):
    strategy: _Strategy


class _Benchmark(Struct):
    """`config` since 0.4, `args` before."""

    requests: _Requests
    config: _Setting | None = None
    args: _Setting | None = None
    duration: float | None = None
    metrics: dict[str, Any] = {}

    @property
    def strategy(self) -> _Strategy:
        found = self.config or self.args
        return _Strategy(kind="unknown") if found is None else found.strategy


class _Report(Struct):
    benchmarks: list[_Benchmark]
    metadata: dict[str, Any] = {}


def matches(source: Source) -> bool:
    """Has it benchmarks, each with requests by how they ended?"""
    found = source.first.get("benchmarks")
    first = found[0] if isinstance(found, list) and found else None
    requests = first.get("requests") if isinstance(first, dict) else None
    return isinstance(requests, dict) and "successful" in requests


def read(source: Source) -> Imported:
    """Raises InputError on a report that is not whole."""
    report = as_type(source, source.whole, _Report, FORM)
    labels = [_label(each.strategy) for each in report.benchmarks]
    number = chosen(source, labels)
    benchmark = report.benchmarks[number]
    requests = benchmark.requests
    others = [each for each in (*requests.errored, *requests.incomplete) if each.was_sent]
    rows = _rows([*requests.successful, *others], len(requests.successful))
    is_old = all(each.info is None for each in requests.successful)
    return imported(
        Seen(
            file=source.name,
            form=_form(report, is_old),
            conventions=_conventions(is_old),
            about=_about(report, benchmark, labels[number]),
            rows=rows,
            claims=_claims(benchmark),
            columns=_columns(requests.successful, rows, is_old),
            asked=_asked(benchmark.strategy),
        )
    )


def _form(report: _Report, is_old: bool) -> str:
    version = report.metadata.get("guidellm_version")
    told = f" {version}" if isinstance(version, str) else " before 0.4" if is_old else ""
    return f"GuideLLM{told}, JSON report"


def _conventions(is_old: bool) -> tuple[str, ...]:
    return tuple(line.format(OLD_FORMULA if is_old else FORMULA) for line in CONVENTIONS)


def _label(strategy: _Strategy) -> str:
    if strategy.rate is not None:
        return f"{strategy.kind} {strategy.rate:g}/s"
    return strategy.kind if strategy.streams is None else f"{strategy.kind} {strategy.streams}"


def _rows(requests: list[_Request], num_completed: int) -> Rows:
    times = [each.timings for each in requests]
    sent = floats(each.request_start for each in times)
    chunks = [each.token_iterations for each in times]
    cached = [each.cached_tokens for each in requests]
    return Rows(
        prompt=wholes(each.prompt_tokens for each in requests),
        output=wholes(each.output_tokens for each in requests),
        ttft=floats(each.first_token_iteration for each in times) - sent,
        e2e=floats(each.last_token_iteration for each in times) - sent,
        is_completed=np.arange(len(requests)) < num_completed,
        sent=sent,
        num_chunks=None if None in chunks else wholes(chunks),
        more={} if None in cached else {"cached_tokens": wholes(cached)},
    )


def _columns(successful: list[_Request], rows: Rows, is_old: bool) -> tuple[Column, ...]:
    """Of those that failed there is nothing to compare."""
    missing = np.full(len(rows) - len(successful), np.nan)

    def given(name: str) -> Numbers:
        values = floats(getattr(each, name) for each in successful) / 1000
        return np.concatenate((values, missing))

    spent = rows.e2e - rows.ttft if is_old else rows.e2e
    formula = "(E2E - TTFT) / N" if is_old else "E2E / N"
    per_token = spent / np.maximum(rows.output, 1)
    return (
        Column("time_to_first_token_ms", "TTFT", given("time_to_first_token_ms"), rows.ttft),
        Column(
            "inter_token_latency_ms", "(E2E - TTFT) / (N - 1)", given("inter_token_latency_ms"), rows.tpot
        ),
        Column("time_per_output_token_ms", formula, given("time_per_output_token_ms"), per_token),
    )


def _claims(benchmark: _Benchmark) -> Claims:
    """Means alone: its percentiles are of its own definition."""
    metrics = benchmark.metrics
    totals = {"num_completed": _sum(metrics, "request_totals")}
    totals |= {
        "prompt_tokens": _deep(metrics, "prompt_token_count", "successful", "total_sum"),
        "output_tokens": _deep(metrics, "output_token_count", "successful", "total_sum"),
    }
    means = {
        "ttft_s": _deep(metrics, "time_to_first_token_ms", "successful", "mean"),
        "tpot_s": _deep(metrics, "inter_token_latency_ms", "successful", "mean"),
    }
    return Claims(
        totals={name: value for name, value in totals.items() if value is not None},
        statistics={name: {"mean": value / 1000} for name, value in means.items() if value is not None},
    )


def _sum(metrics: dict[str, Any], name: str) -> float | None:
    return _deep(metrics, name, "successful")


def _deep(found: Any, *keys: str) -> float | None:
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    value = number({"": found}, "")
    return value if isfinite(value) else None


def _asked(strategy: _Strategy) -> Asked:
    """Streams, or one at a time, are a cap; a rate is constant or Poisson."""
    cap = strategy.streams if strategy.streams is not None else strategy.max_concurrency
    if strategy.kind == "synchronous":
        cap = 1
    return Asked(
        rate=strategy.rate if strategy.rate is not None and strategy.rate > 0 else inf,
        cap=inf if cap is None else cap,
        cv=1.0 if strategy.kind == "poisson" else 0.0,
    )


def _about(report: _Report, benchmark: _Benchmark, label: str) -> About:
    asked = _asked(benchmark.strategy)
    found = {
        "profile": label,
        "request_rate": None if asked.rate == inf else asked.rate,
        "max_concurrency": None if asked.cap == inf else asked.cap,
        "guidellm_version": report.metadata.get("guidellm_version"),
    }
    return scalars(found)
