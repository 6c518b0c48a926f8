"""AIPerf's `profile_export.jsonl`: a record per request.  Each number says its unit.

    time_to_first_token      first chunk with content - request start             as ours
    inter_token_latency      (last - first) / (output - 1) of a request           our TPOT
    inter_chunk_latency      the gaps between chunks with content                 our ITL if each is a token
    request_latency          last chunk with content - request start              our E2E
    output_sequence_length   output and reasoning tokens, by the client unless it is told to ask the server;
                             output_token_count leaves reasoning out; usage_completion_tokens: by the server
    time_to_first_token      is of a reasoning token, if that comes first

With --per-chunk-usage AIPerf divides by output less the tokens of the first chunk.  Records of the
warm-up are left out.  Settings and sums are in `profile_export_aiperf.json` beside it, if that is there;
its rates are over the time of observation, not over its benchmark_duration, and are not compared.

Source: AIPerf 0.13.0, `aiperf/metrics/types`.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, Final

import numpy as np
from msgspec import Struct

from batchwright.errors import InputError, nearest
from batchwright.imported.arrays import BadValue, floats, known, scalars, wholes
from batchwright.imported.client import imported
from batchwright.imported.counted import differences, tokens
from batchwright.imported.result import About, Finding, Imported
from batchwright.imported.seen import Asked, Claims, Column, Rows, Seen
from batchwright.imported.serving_result import number
from batchwright.imported.source import Source, as_type, beside
from batchwright.metrics import Numbers
from batchwright.workload.cells import shown

FORM: Final = "AIPerf record"
UNITS: Final = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
CONVENTIONS: Final = (
    "TTFT: first chunk with content, reasoning too, - request start, in milliseconds: as ours",
    "ITL (inter_token_latency): (last - first) / (N - 1) of each request, in milliseconds: this is our TPOT",
    "inter_chunk_latency: the gaps between chunks, in milliseconds: our ITL where each chunk is a token",
    "E2E: last chunk with content - request start, in milliseconds: as ours",
    "N: output_sequence_length, which counts reasoning tokens too; ours takes the server's usage if it tells",
)
PROMPT: Final = ("input_sequence_length", "usage_prompt_tokens")  # by the client, by the server
OUTPUT: Final = ("output_sequence_length", "usage_completion_tokens")
_METRICS: Final = {
    "ttft_s": "time_to_first_token",
    "tpot_s": "inter_token_latency",
    "itl_s": "inter_chunk_latency",
    "e2e_s": "request_latency",
}
_STATISTICS: Final = {"mean": "avg", "p50": "p50", "p90": "p90", "p99": "p99"}
_TOTALS: Final = {
    "benchmark_duration": "duration_s",
    "request_count": "num_completed",
    "total_usage_prompt_tokens": "prompt_tokens",
    "total_usage_completion_tokens": "output_tokens",
}


class _Metadata(Struct):
    request_start_ns: int
    credit_issued_ns: int | None = None
    benchmark_phase: str = "profiling"
    was_cancelled: bool = False


class _Record(Struct):
    """`metrics`: name to an object of `value` and `unit`."""

    metadata: _Metadata
    metrics: dict[str, Any] = {}
    error: Any = None

    def seconds(self, name: str) -> float | None:
        """None where the record has none."""
        found = self._values(name)
        return found[0] if len(found) == 1 else None

    def tokens(self, name: str) -> int | None:
        """None where the record has none."""
        found = number(self.metrics.get(name), "value")
        return int(found) if isfinite(found) else None

    @property
    def gaps(self) -> Numbers:
        return floats(self._values("inter_chunk_latency"))

    def _values(self, name: str) -> list[float]:
        """Seconds.  Raises BadValue on what is no number, or in no unit of time."""
        found = self.metrics.get(name)
        if not isinstance(found, dict) or found.get("value") is None:
            return []
        value, unit = found["value"], str(found.get("unit"))
        if unit not in UNITS:
            raise BadValue(f"{name} is in {shown(unit)}{nearest(unit, UNITS)}")
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(each, int | float) for each in values):
            raise BadValue(f"{name} is no number")
        try:
            return [each * UNITS[unit] for each in values]
        except OverflowError:
            raise BadValue(f"{name} is a number that no clock tells") from None


def matches(source: Source) -> bool:
    """Is its first line a record, or is it the summary beside them?"""
    metadata = source.first.get("metadata")
    is_record = isinstance(metadata, dict) and "request_start_ns" in metadata
    return is_record or "aiperf_version" in source.first


def read(source: Source) -> Imported:
    """Raises InputError on a record that is not whole, or on the summary alone."""
    if "metadata" not in source.first:
        raise InputError(f"{source.name}: has sums alone; give the records, profile_export.jsonl beside it")
    records = [as_type(source, item, _Record, FORM, row) for row, item in source.objects()]
    kept = [each for each in records if each.metadata.benchmark_phase == "profiling"]
    if not kept:
        raise InputError(f"{source.name}: has {len(records)} records, all of the warm-up; measure longer")
    counted = _counted(kept)
    summary = beside(source, f"{source.path.name.split('.')[0]}_aiperf.json")
    rows, given = _rows(kept), floats(each.seconds("inter_token_latency") for each in kept)
    return imported(
        Seen(
            file=source.name,
            form=f"AIPerf {summary.get('aiperf_version', '')}, JSONL records".replace(" ,", ","),
            conventions=CONVENTIONS,
            about=_about(summary),
            rows=rows,
            claims=_claims(summary, has_own_counts=not counted),
            columns=(Column("inter_token_latency", "(E2E - TTFT) / (N - 1)", given, rows.tpot),),
            asked=_asked(summary),
            findings=(*_warm_up(len(records) - len(kept)), *counted),
        )
    )


def _warm_up(count: int) -> tuple[Finding, ...]:
    text = f"{count:,} records of the warm-up are left out; the server had their load, too"
    return (Finding(text=text, is_wrong=False),) if count else ()


def _rows(records: list[_Record]) -> Rows:
    sent = [each.metadata.request_start_ns for each in records]
    issued = [each.metadata.credit_issued_ns for each in records]
    first = min(sent)
    waits = [None if at is None else (start - at) / 1e9 for start, at in zip(sent, issued, strict=True)]
    gaps = tuple(each.gaps for each in records)
    cached = _tokens(records, "usage_prompt_cache_read_tokens")
    return Rows(
        prompt=tokens(*(_tokens(records, name) for name in PROMPT)),
        output=tokens(*(_tokens(records, name) for name in OUTPUT)),
        ttft=floats(each.seconds("time_to_first_token") for each in records),
        e2e=floats(each.seconds("request_latency") for each in records),
        is_completed=np.array([_is_completed(each) for each in records], bool),
        sent=floats((start - first) / 1e9 for start in sent),
        gaps=gaps if any(len(one) for one in gaps) else None,
        more={
            **({} if None in waits else {"client_queue_s": floats(waits)}),
            **({} if None in cached else {"cached_tokens": wholes(cached)}),
        },
    )


def _tokens(records: list[_Record], name: str) -> list[int | None]:
    return [each.tokens(name) for each in records]


def _counted(records: list[_Record]) -> tuple[Finding, ...]:
    """What client and server count differently."""
    named = {"prompt": PROMPT, "output": OUTPUT}
    found = [differences(what, *(_tokens(records, name) for name in pair)) for what, pair in named.items()]
    return tuple(each for one in found for each in one)


def _is_completed(record: _Record) -> bool:
    return record.error is None and not record.metadata.was_cancelled


def _claims(summary: dict[str, Any], has_own_counts: bool) -> Claims:
    """Its TPOT only where client and server count alike: else it is of another N."""

    def value(name: str, statistic: str) -> float:
        found = summary.get(name)
        if not isinstance(found, dict):
            return np.nan
        return number(found, statistic) * UNITS.get(str(found.get("unit")), 1.0)

    statistics = {
        metric: known({ours: value(name, theirs) for ours, theirs in _STATISTICS.items()})
        for metric, name in _METRICS.items()
        if metric != "tpot_s" or has_own_counts
    }
    return Claims(
        totals=known({ours: value(name, "avg") for name, ours in _TOTALS.items()}), statistics=statistics
    )


def _config(summary: dict[str, Any]) -> dict[str, Any]:
    """The settings; nothing if there are none."""
    found = summary.get("input_config")
    return found if isinstance(found, dict) else {}


def _model(summary: dict[str, Any]) -> object:
    """The name of the first model; None if none is told."""
    models = _config(summary).get("models")
    items = models.get("items") if isinstance(models, dict) else None
    first = items[0] if isinstance(items, list) and items else None
    return first.get("name") if isinstance(first, dict) else None


def _phase(summary: dict[str, Any]) -> dict[str, Any]:
    """The settings of the phase that is measured."""
    phases = _config(summary).get("phases")
    found = [
        each
        for each in (phases if isinstance(phases, list) else [])
        if isinstance(each, dict) and each.get("kind", "profiling") == "profiling"
    ]
    return found[-1] if found else {}


def _asked(summary: dict[str, Any]) -> Asked:
    phase = _phase(summary)
    rate, cap = number(phase, "rate"), number(phase, "concurrency")
    return Asked(
        rate=rate if rate > 0 else inf,
        cap=cap if cap > 0 else inf,
        cv=0.0 if phase.get("type") == "constant" else 1.0,
    )


def _about(summary: dict[str, Any]) -> About:
    asked = _asked(summary)
    found = {
        "model": _model(summary),
        "request_rate": None if asked.rate == inf else asked.rate,
        "max_concurrency": None if asked.cap == inf else int(asked.cap),
        "aiperf_version": summary.get("aiperf_version"),
    }
    return scalars(found)
