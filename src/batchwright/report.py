"""Results as a table: three digits for people, and half of the 95 % interval where it is known.

Nothing that does not apply is shown as 0: it is `n/a`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from textwrap import fill
from typing import TYPE_CHECKING, Final, NamedTuple

from batchwright.explain import paragraph
from batchwright.figures import (
    Unit,
    amount,
    count,
    plain_unit,
    seconds,
    seconds_unit,
    share,
    share_unit,
    with_interval,
)
from batchwright.metrics import STATISTICS
from batchwright.plain_table import plain_table
from batchwright.replications import Estimates, is_ranked
from batchwright.run import ReplicatedRun, Run
from batchwright.run.saturation import UNCLEAR
from batchwright.slo import Slo

if TYPE_CHECKING:
    from rich.table import Table

BEST: Final = " *"
CAPTION: Final = (
    "Clients of a batch that is not streamed see all tokens when it ends: TTFT = E2E, no TPOT, no ITL."
)
METHODS: Final = {
    "sections": (
        "± is half of the 95 % interval, from parts of this one run: near saturation too narrow, "
        "--repeat is surer"
    ),
    "replications": "± is half of the 95 % interval, over {count} loads made with other seeds",
    "bootstrap": "± is half of the 95 % interval, over {count} resamples of the trace",
}
AT_ONCE: Final = "All requests come at once, so one run tells no interval; --repeat runs more loads."
WINNER: Final = "* better than every other policy: the paired 95 % interval of each difference excludes 0"


class Row(NamedTuple):
    """A title, the metric that stands in it, and how it is written."""

    title: str
    metric: str
    unit: Unit


def _spread_rows(title: str, metric: str, statistics: Sequence[str] = tuple(STATISTICS)) -> list[Row]:
    return [Row(f"{title} {_label(name)}", f"{metric}.{name}", seconds_unit) for name in statistics]


def _label(statistic: str) -> str:
    return statistic.replace("p", "P")


GROUPS: Final[list[list[Row]]] = [
    [
        Row("output tokens/s", "output_throughput", plain_unit),
        Row("total tokens/s", "total_throughput", plain_unit),
        Row("requests/s", "request_throughput", plain_unit),
    ],
    _spread_rows("TTFT", "ttft_s"),
    _spread_rows("TPOT", "tpot_s"),
    _spread_rows("ITL", "itl_s"),
    _spread_rows("E2E", "e2e_s"),
    _spread_rows("E2E per token", "normalised_s", ("mean", "p99")),
]
OBJECTIVES: Final = [
    Row("SLO attainment", "attainment", share_unit),
    Row("goodput, requests/s", "goodput", plain_unit),
]
SLOTS: Final = {
    "prefill": "slots: prefill",
    "decode": "slots: decode",
    "padding": "slots: padding",
    "held": "slots: held",
    "idle_with_queue": "slots: idle, some wait",
    "idle_without_queue": "slots: idle, none wait",
}
STATE: Final = [
    Row("mean batch", "mean_batch", plain_unit),
    Row("peak batch", "peak_batch", plain_unit),
    Row("KV occupancy mean", "kv_occupancy_mean", share_unit),
    Row("KV occupancy peak", "kv_occupancy_peak", share_unit),
    Row("prefix cache hits", "prefix_cache_hit_rate", share_unit),
]


def table(estimates: Estimates, names: Sequence[str]) -> Table:
    """One column per policy, one row per metric."""
    from rich.text import Text

    result = plain_table()
    result.add_column("", overflow="fold")
    for name in names:
        result.add_column(Text(name), justify="right", overflow="fold")
    groups = [*GROUPS, *([OBJECTIVES] if estimates.slo is not None else []), STATE]
    for group in groups:
        for row in group:
            result.add_row(row.title, *_cells(estimates, row, names))
        result.add_section()
    runs = [estimates.runs[name] for name in names]
    for rows in (_slots(runs), _replicas(estimates, runs), _fairness(runs), _counts(runs)):
        for title, cells in rows:
            result.add_row(title, *cells)
        result.add_section()
    return result


def tables(estimates: Estimates, width: int) -> Iterator[Table]:
    """As many tables as `width` characters need, each with one run at least."""
    from rich.console import Console

    wide = Console(width=10_000)
    part: list[str] = []
    for name in estimates.runs:
        if part and wide.measure(table(estimates, [*part, name])).maximum > width:
            yield table(estimates, part)
            part = []
        part.append(name)
    yield table(estimates, part)


def remarks(estimates: Estimates) -> list[str]:
    """What the numbers alone do not say."""
    runs = estimates.runs
    found = [_method(estimates)]
    if any(estimates.winner(row.metric) for group in (*GROUPS, OBJECTIVES) for row in group):
        found.append(WINNER)
    if estimates.skip:
        found.append(
            f"warm-up: the first {estimates.skip} requests are left out (MSER-5), though counted below"
        )
    if estimates.num_loads > 1:
        found.append("slots, counts and duration are those of the first load")
    if any(not run.is_streamed for run in runs.values()):
        found.append(CAPTION)
    verdicts = {name: run.saturation() for name, run in runs.items()}
    found += [f"{name} is past saturation: {it.text}" for name, it in verdicts.items() if it.is_saturated]
    found += [f"{name}: {it.text}" for name, it in verdicts.items() if it.kind == UNCLEAR]
    return found


def prose(estimates: Estimates, width: int) -> str:
    """The remarks, a line each, and then the paragraph, in lines of `width` characters."""
    lines = [*remarks(estimates), "", paragraph(estimates.runs, estimates.value)]
    return "\n".join(fill(line, width, break_long_words=False, break_on_hyphens=False) for line in lines)


def _method(estimates: Estimates) -> str:
    if estimates.method == "sections" and not estimates.is_steady:
        return AT_ONCE
    return METHODS[estimates.method].format(count=estimates.num_replications)


def window_table(run: Run, length: float, slo: Slo | None = None) -> Table:
    """A row per window of `length` seconds of arrivals.  Raises InputError on too many."""
    from rich.text import Text

    result = plain_table(collapse_padding=True, title_justify="left")
    result.title = Text(f"{run.name}, times in seconds")
    titles = ["from", "\ncame", "tokens\n/s", "\nwaiting", "TTFT\nP50", "\nP90", "\nP99"]
    titles += ["TPOT\nP99", "E2E\nP99", *(["SLO\nmet"] if slo is not None else [])]
    for title in titles:
        result.add_column(title, justify="right", no_wrap=True)
    for window in run.windows(length, slo):
        cells = [str(timedelta(seconds=round(window.start))), count(window.num_requests)]
        cells += [amount(window.output_throughput), count(window.waiting)]
        times = (window.ttft.p50, window.ttft.p90, window.ttft.p99, window.tpot.p99, window.e2e.p99)
        cells += [amount(value) for value in times]
        result.add_row(*cells, *([share(window.attainment)] if slo is not None else []))
    return result


def _cells(estimates: Estimates, row: Row, names: Sequence[str]) -> list[str]:
    """The value of every policy; that of the winner among all policies is marked."""
    winner = estimates.winner(row.metric) if is_ranked(row.metric) else None
    shown = []
    for name in names:
        cell = with_interval(estimates.interval(name, row.metric), row.unit)
        shown.append(cell + (BEST if name == winner else ""))
    return shown


def _slots(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Where the slot-seconds of the first load went; they sum to 100 %."""
    shares = [run.slots.shares for run in runs]
    return [(title, [share(part[name]) for part in shares]) for name, title in SLOTS.items()]


def _replicas(estimates: Estimates, runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """What one replica does, where any policy of the comparison has replicas."""
    if not any(isinstance(run, ReplicatedRun) for run in estimates.runs.values()):
        return []
    sent = [[part.num_requests for part in run.parts] for run in runs]
    return [
        ("replicas", [count(len(run.parts)) for run in runs]),
        ("output tokens/s each", [amount(run.summary.output_throughput / len(run.parts)) for run in runs]),
        ("requests each, least", [count(min(each)) for each in sent]),
        ("requests each, most", [count(max(each)) for each in sent]),
    ]


def _fairness(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Between the clients of the first load, where it has some."""
    if runs[0].load.client is None:
        return []
    found = [run.fairness for run in runs]
    return [
        ("clients", [count(one.num_clients) for one in found]),
        ("clients starved", [count(one.num_starved) for one in found]),
        ("Jain index", [amount(one.jain) for one in found]),
        ("Jain index, slowdown", [amount(one.jain_slowdown) for one in found]),
        ("worst client TTFT P99", [seconds(one.worst_ttft) for one in found]),
        ("slowdown mean", [amount(one.mean_slowdown) for one in found]),
        ("slowdown max", [amount(one.max_slowdown) for one in found]),
    ]


def _counts(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Of the first load, warm-up included."""
    summaries = [run.summary for run in runs]
    return [
        ("preemptions", [count(s.num_preemptions) for s in summaries]),
        ("rejected", [count(s.num_rejected) for s in summaries]),
        ("cut at max_model_len", [count(s.num_cut) for s in summaries]),
        ("finished", [count(s.num_finished) for s in summaries]),
        ("duration", [seconds(s.duration) for s in summaries]),
    ]
