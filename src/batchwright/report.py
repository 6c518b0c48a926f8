"""Results as a table and as JSON: three digits for people, all of them for programs.

Nothing that does not apply is shown as 0: it is `n/a` in the table, null in JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import StringIO
from math import isnan
from typing import TYPE_CHECKING, Any

from batchwright.limits import Limits
from batchwright.metrics import Spread
from batchwright.run import Run, Summary
from batchwright.workload import Workload

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION = 1
WIDTH = 110  # characters of a table as text
NARROWEST = 40  # characters of a terminal
NOT_APPLICABLE = "n/a"
CAPTION = "Clients of a batch that is not streamed see all tokens when it ends: TTFT = E2E, no TPOT."


def table(runs: Mapping[str, Run]) -> Table:
    """One column per policy, one row per metric."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    result.add_column("", overflow="fold")
    for name in runs:
        result.add_column(Text(name), justify="right", overflow="fold")
    summaries = [run.summary for run in runs.values()]
    for title, cells in _rows(summaries):
        result.add_row(title, *cells)
    return result


def tables(runs: Mapping[str, Run], width: int) -> Iterator[Table]:
    """As many tables as `width` characters need, each with one run at least."""
    from rich.console import Console

    wide = Console(width=10_000)
    part: dict[str, Run] = {}
    for name, run in runs.items():
        if part and wide.measure(table({**part, name: run})).maximum > width:
            yield table(part)
            part = {}
        part[name] = run
    yield table(part)


def remarks(runs: Mapping[str, Run]) -> list[str]:
    """What the numbers alone do not say."""
    found = [CAPTION] if any(not run.is_streamed for run in runs.values()) else []
    for name, run in runs.items():
        if run.falls_behind:
            took, came = _seconds(run.summary.duration), _seconds(run.load.span)
            found.append(
                f"{name} falls behind: it takes {took} for {came} of arrivals; its waits grow with the trace."
            )
    return found


def text(result: Table, width: int = WIDTH) -> str:
    """The table as plain text."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=width, color_system=None).print(result)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join(lines).strip("\n")


def as_json(load: Workload, limits: Limits, runs: Mapping[str, Run]) -> dict[str, Any]:
    """What `--json` prints; units are in the names, null is not applicable."""
    return {
        "schema_version": SCHEMA_VERSION,
        "workload": {
            "name": load.name,
            "num_requests": len(load),
            "span_s": _number(load.span),
            "sha256": load.digest,
        },
        "limits": asdict(limits),
        "notes": [run.note for run in runs.values() if run.note],
        "policies": {name: _json_row(run) for name, run in runs.items()},
    }


def _json_row(run: Run) -> dict[str, Any]:
    summary = run.summary
    return {
        "num_requests": summary.num_requests,
        "num_finished": summary.num_finished,
        "num_rejected": summary.num_rejected,
        "num_cut": summary.num_cut,
        "num_preemptions": summary.num_preemptions,
        "num_steps": summary.num_steps,
        "duration_s": _number(summary.duration),
        "output_throughput_tokens_per_s": _number(summary.output_throughput),
        "total_throughput_tokens_per_s": _number(summary.total_throughput),
        "ttft_s": _json_spread(summary.ttft),
        "tpot_s": _json_spread(summary.tpot),
        "e2e_s": _json_spread(summary.e2e),
        "mean_batch_requests": _number(summary.mean_batch),
        "kv_occupancy_mean": _number(summary.kv_occupancy),
        "kv_occupancy_peak": _number(summary.kv_peak),
        "prefix_cache_hit_rate": _number(summary.hit_rate),
    }


def _json_spread(spread: Spread) -> dict[str, float | None]:
    return {"mean": _number(spread.mean), "p50": _number(spread.p50), "p99": _number(spread.p99)}


def _number(value: float) -> float | None:
    return None if isnan(value) else value


def _rows(summaries: list[Summary]) -> list[tuple[str, list[str]]]:
    rows = [
        ("output tokens/s", [_amount(s.output_throughput) for s in summaries]),
        ("total tokens/s", [_amount(s.total_throughput) for s in summaries]),
    ]
    for title, name in (("TTFT", "ttft"), ("TPOT", "tpot"), ("E2E", "e2e")):
        for statistic, label in (("mean", "mean"), ("p50", "P50"), ("p99", "P99")):
            spreads = [getattr(s, name) for s in summaries]
            rows.append((f"{title} {label}", [_seconds(getattr(spread, statistic)) for spread in spreads]))
    return [
        *rows,
        ("preemptions", [f"{s.num_preemptions:,}" for s in summaries]),
        ("mean batch", [_amount(s.mean_batch) for s in summaries]),
        ("KV occupancy mean", [_share(s.kv_occupancy) for s in summaries]),
        ("KV occupancy peak", [_share(s.kv_peak) for s in summaries]),
        ("prefix cache hits", [_share(s.hit_rate) for s in summaries]),
        ("rejected", [f"{s.num_rejected:,}" for s in summaries]),
        ("cut at max_model_len", [f"{s.num_cut:,}" for s in summaries]),
        ("finished", [f"{s.num_finished:,}" for s in summaries]),
        ("duration", [_seconds(s.duration) for s in summaries]),
    ]


def _seconds(value: float) -> str:
    if isnan(value):
        return NOT_APPLICABLE
    if value < 0.9995:  # what rounds to 1,000 ms is 1 s
        return f"{_three(value * 1e3)} ms"
    return f"{_three(value)} s"


def _amount(value: float) -> str:
    if isnan(value):
        return NOT_APPLICABLE
    return _three(value)


def _three(value: float) -> str:
    """Three significant digits, trailing zeros too; all digits before the point."""
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".") if value else "0"


def _share(value: float) -> str:
    return NOT_APPLICABLE if isnan(value) else f"{value:.1%}"
