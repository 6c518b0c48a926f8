"""What `vllm bench serve` and SGLang's bench_serving write alike: lists with an entry per request, and sums.

SGLang's tool began as a copy of vLLM's, so the names of most keys, and their units, are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, nan
from typing import Any, Final

import numpy as np
from msgspec import Struct

from batchwright.errors import InputError
from batchwright.imported.arrays import floats, known, scalars, wholes
from batchwright.imported.result import About
from batchwright.imported.seen import Asked, Claims, Rows
from batchwright.imported.source import Source, as_type
from batchwright.metrics import Numbers

_STATISTICS: Final = {"mean": "mean_{}_ms", "p50": "median_{}_ms", "p90": "p90_{}_ms", "p99": "p99_{}_ms"}
_LISTS: Final = (
    "output_lens", "ttfts", "itls", "errors", "start_times", "latencies", "queue_times", "cached_tokens",
)  # fmt: skip
_ABOUT: Final = {
    "model_id": "model",
    "request_rate": "request_rate",
    "max_concurrency": "max_concurrency",
    "burstiness": "burstiness",
    "backend": "backend",
    "label": "label",
    "tag": "label",
    "date": "date",
}


class Result(Struct):
    """The entries per request, and what the client was asked for."""

    input_lens: list[int]
    output_lens: list[int]
    ttfts: list[float]
    itls: list[list[float]]
    errors: list[str] | None = None
    start_times: list[float] | None = None
    latencies: list[float] | None = None
    queue_times: list[float] | None = None
    cached_tokens: list[int] | None = None
    request_rate: float | str | None = None
    burstiness: float | str | None = None
    max_concurrency: int | None = None


def result_of(source: Source, item: dict[str, Any], form: str, flag: str) -> Result:
    """Raises InputError where the entries per request are missing, which `flag` asks the tool for."""
    if "ttfts" not in item:
        raise InputError(f"{source.name}: has sums alone; run the tool with {flag}")
    result = as_type(source, item, Result, form)
    count = len(result.input_lens)
    for name in _LISTS:
        values = getattr(result, name)
        if values is not None and len(values) != count:
            told = f"has {len(values)} {name}, but {count} input_lens"
            raise InputError(f"{source.name}: {told}; let the tool write it again")
    return result


def rows_of(result: Result) -> Rows:
    """A text in `errors`, or neither a token nor its time: the request failed."""
    output, ttft = wholes(result.output_lens), floats(result.ttfts)
    is_completed = (output > 0) | (ttft > 0)
    if result.errors is not None:
        is_completed &= np.array([not error for error in result.errors], bool)
    gaps = tuple(map(floats, result.itls))
    e2e = ttft + np.array([one.sum() for one in gaps])
    return Rows(
        prompt=wholes(result.input_lens),
        output=output,
        ttft=ttft,
        e2e=e2e if result.latencies is None else floats(result.latencies),
        is_completed=is_completed,
        sent=None if result.start_times is None else floats(result.start_times),
        gaps=gaps,
        is_e2e_from_gaps=result.latencies is None,
        more=_more(result),
    )


def _more(result: Result) -> dict[str, Numbers]:
    found = {}
    if result.queue_times is not None:
        found["client_queue_s"] = floats(result.queue_times)
    if result.cached_tokens is not None:
        found["cached_tokens"] = wholes(result.cached_tokens)
    return found


def claims_of(item: dict[str, Any], totals: Mapping[str, str], metrics: Mapping[str, str]) -> Claims:
    """`totals`: our name by key; `metrics`: the file's word for each of ours, as ttft in mean_ttft_ms."""
    statistics = {
        metric: {name: number(item, key.format(word)) / 1000 for name, key in _STATISTICS.items()}
        for metric, word in metrics.items()
    }
    return Claims(
        totals=known({ours: number(item, key) for key, ours in totals.items()}),
        statistics={metric: known(one) for metric, one in statistics.items()},
    )


def number(item: object, key: str) -> float:
    """`key` of an object; nan where it is no number, or a whole one that no float holds."""
    value = item.get(key) if isinstance(item, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return nan
    try:
        return float(value)
    except OverflowError:
        return nan


def asked_of(result: Result, is_steady: bool = True) -> Asked:
    """A rate that is no number is none: SGLang writes trace where requests come by a trace."""
    return Asked(
        rate=_positive(result.request_rate),
        cap=inf if result.max_concurrency is None else result.max_concurrency,
        cv=_positive(result.burstiness) ** -0.5 if result.burstiness is not None else 1.0,
        is_steady=is_steady,
    )


def _positive(value: float | str | None) -> float:
    try:
        found = inf if value is None else float(value)
    except ValueError:
        return inf
    return found if found > 0 else inf


def about_of(item: dict[str, Any]) -> About:
    """What it says of server and client, under our names."""
    return scalars({ours: item.get(key) for key, ours in _ABOUT.items()})


def label_of(item: dict[str, Any]) -> str:
    """As a file of several runs lists this one."""
    cap = item.get("max_concurrency")
    return f"rate {item.get('request_rate')}{'' if cap is None else f', at most {cap} in flight'}"
