"""inference-perf's `per_request_lifecycle_metrics.json`: a list with an object per request.

    start_time, end_time  of the request, seconds of a monotonic clock; the end is that of the stream
    output_token_times    of each token, where the client counts the tokens of each chunk again
    output_tokens         counted again by the client from the whole text; the server's usage is beside it
    time_per_output_token (last - first) / (output - 1), by the client's count unless it is told otherwise
    inter_token_latency   the mean of the gaps of a request

Until 0.5 the times and counts stood in `info` itself.  Settings are in `config.yaml` beside it, if that is
there.  A list of several stages does not say which request was of which.

Source: inference-perf 0.7.0, `reportgen/base.py` and `apis/base.py`.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, Final

import numpy as np
import yaml
from msgspec import Struct

from batchwright.errors import InputError
from batchwright.imported.arrays import floats, scalars, wholes
from batchwright.imported.client import imported
from batchwright.imported.counted import differences, tokens
from batchwright.imported.result import About, Finding, Imported
from batchwright.imported.seen import Asked, Column, Rows, Seen
from batchwright.imported.serving_result import number
from batchwright.imported.source import Source, as_type
from batchwright.metrics import Numbers

FORM: Final = "per-request report of inference-perf"
CONVENTIONS: Final = (
    "TTFT: first token - start, in seconds: as ours",
    "TPOT: (last token - first) / (N - 1), N as the client counts text: ours takes the server's N",
    "ITL: between tokens, those of one chunk at once, in seconds: as ours",
    "E2E: to the end of the stream, in seconds: ours ends with the last token",
)


class _Response(Struct):
    output_tokens: int | None = None
    output_token_times: list[float] = []
    server_usage: dict[str, Any] | None = None


class _Text(Struct):
    input_tokens: int | None = None


class _Asked(Struct):
    text: _Text | None = None


class _Info(Struct):
    """Until 0.5 it was its own response."""

    input_tokens: int | None = None
    request_metrics: _Asked | None = None
    response_metrics: _Response | None = None
    output_tokens: int | None = None
    output_token_times: list[float] = []

    @property
    def prompt(self) -> int | None:
        text = None if self.request_metrics is None else self.request_metrics.text
        return self.input_tokens if text is None else text.input_tokens

    @property
    def response(self) -> _Response:
        return self.response_metrics or _Response(self.output_tokens, self.output_token_times)


class _Entry(Struct):
    start_time: float
    end_time: float
    info: _Info
    error: Any = None
    computed_metrics: dict[str, Any] | None = None

    @property
    def response(self) -> _Response:
        return self.info.response

    def used(self, *names: str) -> int | None:
        """The first of these that the server's usage tells."""
        found = (number(self.response.server_usage, name) for name in names)
        return next((int(value) for value in found if isfinite(value)), None)

    @property
    def cached(self) -> int | None:
        found = number((self.response.server_usage or {}).get("prompt_tokens_details"), "cached_tokens")
        return int(found) if isfinite(found) else None


def matches(source: Source) -> bool:
    """Is it a list of requests, or one of the summaries beside it?"""
    found = source.whole
    first = found[0] if isinstance(found, list) and found else None
    is_list = isinstance(first, dict) and first.keys() >= {"start_time", "end_time", "info"}
    return is_list or source.first.keys() >= {"benchmark_time_seconds", "load_summary", "successes"}


def read(source: Source) -> Imported:
    """Raises InputError on a list that is not whole, or on a summary."""
    if not isinstance(source.whole, list):
        raise InputError(
            f"{source.name}: has sums alone; give per_request_lifecycle_metrics.json, which "
            "report.request_lifecycle.per_request asks for"
        )
    entries = as_type(source, source.whole, list[_Entry], FORM)
    rows, load = _rows(entries), _load(source)
    return imported(
        Seen(
            file=source.name,
            form="inference-perf, per-request JSON",
            conventions=CONVENTIONS,
            about=_about(load),
            rows=rows,
            columns=_columns(entries, rows),
            asked=_asked(load),
            findings=(
                *_of_stages(len(_stages(load))),
                *differences("prompt", *_prompt(entries)),
                *differences("output", *_output(entries)),
            ),
        )
    )


def _of_stages(count: int) -> tuple[Finding, ...]:
    text = f"requests do not say which of the {count} stages of the load they are of: taken as one run"
    return (Finding(text=text, is_wrong=False),) if count > 1 else ()


def _rows(entries: list[_Entry]) -> Rows:
    sent = floats(each.start_time for each in entries)
    times = [floats(each.response.output_token_times) for each in entries]
    cached = [each.cached for each in entries]
    is_streamed = any(len(one) for one in times)
    first = floats(one[0] if len(one) else None for one in times)
    last = floats(one[-1] if len(one) else None for one in times)
    ended = last if is_streamed else floats(each.end_time for each in entries)
    return Rows(
        prompt=tokens(*_prompt(entries)),
        output=tokens(*_output(entries)),
        ttft=first - sent,
        e2e=ended - sent,
        is_completed=np.array([each.error is None for each in entries], bool),
        sent=sent,
        gaps=tuple(np.diff(one) for one in times) if is_streamed else None,
        more={} if None in cached else {"cached_tokens": wholes(cached)},
    )


def _prompt(entries: list[_Entry]) -> tuple[list[int | None], list[int | None]]:
    """By the client, and by the server."""
    by_client = [each.info.prompt for each in entries]
    return by_client, [each.used("prompt_tokens", "input_tokens") for each in entries]


def _output(entries: list[_Entry]) -> tuple[list[int | None], list[int | None]]:
    """By the client, and by the server."""
    by_client = [each.response.output_tokens for each in entries]
    return by_client, [each.used("completion_tokens", "output_tokens") for each in entries]


def _columns(entries: list[_Entry], rows: Rows) -> tuple[Column, ...]:
    """What it computed, where it was asked to write that."""

    def given(name: str) -> Numbers:
        return floats(number(each.computed_metrics or {}, name) for each in entries)

    gaps = rows.gaps or ()
    mean = floats(float(one.mean()) if len(one) else None for one in gaps) if gaps else rows.tpot
    return (
        Column("time_to_first_token", "TTFT", given("time_to_first_token"), rows.ttft),
        Column("time_per_output_token", "(E2E - TTFT) / (N - 1)", given("time_per_output_token"), rows.tpot),
        Column("inter_token_latency", "the mean of the gaps", given("inter_token_latency"), mean),
    )


def _load(source: Source) -> dict[str, Any]:
    """`load` of config.yaml beside it; nothing if there is none."""
    file = source.path.with_name("config.yaml")
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return {}
    load = found.get("load") if isinstance(found, dict) else None
    return load if isinstance(load, dict) else {}


def _stages(load: dict[str, Any]) -> list[dict[str, Any]]:
    stages = load.get("stages")
    return [each for each in stages if isinstance(each, dict)] if isinstance(stages, list) else []


def _asked(load: dict[str, Any]) -> Asked:
    stages = _stages(load)
    if len(stages) != 1:
        return Asked(is_steady=False)
    rate, cap = number(stages[0], "rate"), number(stages[0], "concurrency_level")
    return Asked(
        rate=rate if rate > 0 else inf,
        cap=cap if cap > 0 else inf,
        cv=0.0 if load.get("type") == "constant" else 1.0,
    )


def _about(load: dict[str, Any]) -> About:
    asked, stages = _asked(load), _stages(load)
    found = {
        "load": load.get("type"),
        "num_stages": len(stages) if len(stages) > 1 else None,
        "request_rate": None if asked.rate == inf else asked.rate,
        "max_concurrency": None if asked.cap == inf else int(asked.cap),
    }
    return scalars(found)
