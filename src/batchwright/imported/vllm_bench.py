"""`vllm bench serve --save-result --save-detailed`: one JSON object, or with --append-result one a line.

    ttfts        first chunk with a choice - sent                       seconds
    itls         between such chunks, one a token unless one chunk has several
    latencies    last chunk - sent, since 0.32; before, TTFT and the gaps in sum
    start_times  when it was sent, after the client's own queue for --max-concurrency
    queue_times  in that queue, since 0.32
    output_lens  by the server's usage, else the text counted again by the tokenizer; 0: it failed
    tpot         (last - first) / (output - 1) of outputs over one token: ours; only its statistics are there

Source: vLLM 0.32.0, `vllm/benchmarks/serve.py` and `lib/endpoint_request_func.py`.
"""

from __future__ import annotations

from math import inf, isnan, nan
from typing import Any, Final

import numpy as np
from msgspec import Struct

from batchwright.errors import InputError
from batchwright.imported.choose import chosen
from batchwright.imported.client import imported
from batchwright.imported.result import Imported
from batchwright.imported.seen import Asked, Claims, Rows, Seen
from batchwright.imported.source import Source, as_type
from batchwright.metrics import Numbers

FORM: Final = "result of vllm bench serve"
KEYS: Final = {"duration", "completed", "total_input_tokens", "request_throughput", "num_prompts"}
CONVENTIONS: Final = (
    "TTFT: first chunk - sent, in seconds; as ours",
    "TPOT: (last - first) / (output - 1) of each request, in milliseconds; as ours, made anew from its times",
    "ITL: between chunks, in seconds; as ours where each chunk is a token",
)
_STATISTICS: Final = {"mean": "mean_{}_ms", "p50": "median_{}_ms", "p90": "p90_{}_ms", "p99": "p99_{}_ms"}
_METRICS: Final = {"ttft_s": "ttft", "tpot_s": "tpot", "itl_s": "itl", "e2e_s": "e2el"}
_TOTALS: Final = {
    "duration": "duration_s",
    "completed": "num_completed",
    "failed": "num_failed",
    "total_input_tokens": "prompt_tokens",
    "total_output_tokens": "output_tokens",
    "request_throughput": "requests_per_s",
    "output_throughput": "output_tokens_per_s",
    "total_token_throughput": "total_tokens_per_s",
}


class _Result(Struct):
    """The entries per request; the rest is read key by key, for versions differ in it."""

    input_lens: list[int]
    output_lens: list[int]
    ttfts: list[float]
    itls: list[list[float]]
    errors: list[str] | None = None
    start_times: list[float] | None = None
    latencies: list[float] | None = None
    queue_times: list[float] | None = None
    request_rate: float | str | None = None
    burstiness: float | str | None = None
    max_concurrency: int | None = None


def matches(source: Source) -> bool:
    return source.first.keys() >= KEYS


def read(source: Source) -> Imported:
    """Raises InputError on a file without its entries per request."""
    runs = [item for _, item in source.objects()]
    item = runs[chosen(source, [_label(run) for run in runs])]
    if "ttfts" not in item:
        raise InputError(f"{source.name}: has sums alone; run vllm bench serve with --save-detailed")
    result = as_type(source, item, _Result, FORM)
    rows = _rows(source, result)
    return imported(
        Seen(
            file=source.name,
            form=_form(item),
            conventions=CONVENTIONS,
            about=_about(item),
            rows=rows,
            claims=_claims(item),
            asked=_asked(item, result),
        )
    )


def _form(item: dict[str, Any]) -> str:
    if item.get("backend") == "batchwright":
        return "batchwright export, as vllm bench serve, detailed JSON"
    return f"vllm bench serve, detailed JSON{' of 0.32 or later' if 'latencies' in item else ''}"


def _label(run: dict[str, Any]) -> str:
    cap = run.get("max_concurrency")
    return f"rate {run.get('request_rate')}{'' if cap is None else f', at most {cap} in flight'}"


def _rows(source: Source, result: _Result) -> Rows:
    count = len(result.input_lens)
    for name in ("output_lens", "ttfts", "itls", "errors", "start_times", "latencies", "queue_times"):
        values = getattr(result, name)
        if values is not None and len(values) != count:
            told = f"has {len(values)} {name}, but {count} input_lens"
            raise InputError(f"{source.name}: {told}; let the tool write it again")
    output = np.array(result.output_lens, np.int64)
    is_completed = output > 0
    if result.errors is not None:
        is_completed &= np.array([not error for error in result.errors], bool)
    gaps = tuple(np.array(one, np.float64) for one in result.itls)
    ttft = np.array(result.ttfts, np.float64)
    e2e = ttft + np.array([one.sum() for one in gaps])
    return Rows(
        prompt=np.array(result.input_lens, np.int64),
        output=output,
        ttft=ttft,
        e2e=e2e if result.latencies is None else np.array(result.latencies),
        is_completed=is_completed,
        sent=_array(result.start_times),
        gaps=gaps,
        is_e2e_from_gaps=result.latencies is None,
        client_queue=_array(result.queue_times),
    )


def _array(values: list[float] | None) -> Numbers | None:
    return None if values is None else np.array(values, np.float64)


def _claims(item: dict[str, Any]) -> Claims:
    totals = {ours: _number(item, key) for key, ours in _TOTALS.items()}
    statistics = {
        metric: {name: _number(item, key.format(word)) / 1000 for name, key in _STATISTICS.items()}
        for metric, word in _METRICS.items()
    }
    return Claims(
        totals={name: value for name, value in totals.items() if not isnan(value)},
        statistics={
            metric: {name: value for name, value in one.items() if not isnan(value)}
            for metric, one in statistics.items()
        },
    )


def _number(item: dict[str, Any], key: str) -> float:
    value = item.get(key)
    return float(value) if isinstance(value, int | float) else nan


def _asked(item: dict[str, Any], result: _Result) -> Asked:
    burstiness = float(result.burstiness) if result.burstiness is not None else 1.0
    return Asked(
        rate=inf if result.request_rate is None else float(result.request_rate),
        cap=inf if result.max_concurrency is None else result.max_concurrency,
        cv=burstiness**-0.5,
        is_steady="ramp_up_strategy" not in item,
    )


def _about(item: dict[str, Any]) -> dict[str, str | int | float | bool]:
    known = {"model_id": "model", "request_rate": "request_rate", "max_concurrency": "max_concurrency"}
    kept = {"backend": "backend", "burstiness": "burstiness", "label": "label", "date": "date"}
    found = {ours: item.get(key) for key, ours in {**known, **kept}.items()}
    return {name: value for name, value in found.items() if value not in (None, "")}
