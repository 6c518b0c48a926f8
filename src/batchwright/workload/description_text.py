"""A description for people: at most 80 columns, small pictures, one paragraph on what it means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from batchwright.plain_table import plain_table, table_text
from batchwright.workload.cells import counted
from batchwright.workload.description import BATCH_SIZES, Arrivals, Description, Lengths, Reuse

if TYPE_CHECKING:
    from rich.table import Table

WIDTH: Final = 80
_LEVELS: Final = " ▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_BAR: Final = 16  # characters of the longest bar
_CLOCKLIKE, _BURSTY = 0.7, 1.3  # CV of gaps
_MILLION: Final = 1_000_000
_LONG_BURSTS: Final = 5.0  # dispersion of counts
_WORTH_CACHING: Final = 0.05  # share of blocks
_ABOUT_EQUAL: Final = 1.02  # longest over mean
_TOGETHER: Final = 0.5  # share of gaps that are 0


def text(found: Description) -> str:
    """All of it, lines of at most 80 characters."""
    lines = [_title(found), *(line for note in found.notes for line in _note(note)), ""]
    if found.arrivals is not None:
        lines += [*_arrivals(found.arrivals), ""]
    lines += [table_text(_rows(found), WIDTH), "", *_histograms(found), ""]
    if found.reuse is not None:
        lines += [*_reuse(found.reuse), ""]
    if found.clients is not None:
        share = found.clients.busiest_share
        lines += [f"Clients: {found.clients.count}; the busiest sends {share:.1%} of the requests", ""]
    return "\n".join([*lines, *wrap(" ".join(meaning(found)), WIDTH)]) + "\n"


def _title(found: Description) -> str:
    return "\n  ".join(wrap(f"{found.name}: {counted(found.num_requests, 'request')}", WIDTH - 2))


def _note(note: str) -> list[str]:
    return wrap(note, WIDTH, initial_indent="  ", subsequent_indent="    ")


def _arrivals(found: Arrivals) -> Iterator[str]:
    yield f"Arrivals: {found.rate:.3g} requests/s over {found.span_s:.1f} s"
    together = f"; {found.together:.0%} of them are 0" if found.together >= 0.01 else ""
    yield f"  gaps         CV {found.gap_cv:.2f} (Poisson 1){together}"
    if found.dispersion:
        parts = ", ".join(f"{_number(value)} in {window:g} s" for window, value in found.dispersion)
        counts = f"counts       variance/mean {parts} (Poisson 1)"
        yield from wrap(counts, WIDTH, initial_indent="  ", subsequent_indent=" " * 15)
    rates = found.rate_over_time
    yield f"  over time    {len(rates)} bars of {found.bar_s:.3g} s, 0 to {max(rates):.3g} requests/s"
    yield f"  |{sparkline(rates)}|"


def sparkline(values: Sequence[float]) -> str:
    """One character a value, its height from 0 to the greatest; anything over 0 shows."""
    most = max(values)
    steps = len(_LEVELS) - 1
    return "".join(_LEVELS[0 if not value else max(1, round(value / most * steps))] for value in values)


def _rows(found: Description) -> Table:
    table = plain_table(show_edge=False)
    table.add_column("tokens")
    for title in ("mean", "P50", "P90", "P95", "P99", "max"):
        table.add_column(title, justify="right")
    for batch_size in BATCH_SIZES:
        table.add_column(f"B={batch_size}", justify="right")
    for name, lengths in (("prompt", found.prompt), ("output", found.output), ("total", found.total)):
        cells = (lengths.mean, lengths.p50, lengths.p90, lengths.p95, lengths.p99, lengths.max)
        table.add_row(name, *map(_tokens, cells), *(f"x{value:.2f}" for value in lengths.stretch))
    table.caption = "B=...: the longest of B requests, on average, over the mean"
    table.caption_style = ""
    table.caption_justify = "left"
    return table


def _histograms(found: Description) -> Iterator[str]:
    """Prompt and output side by side."""
    left, right = list(_bars("prompt", found.prompt)), list(_bars("output", found.output))
    for one, other in zip_longest(left, right, fillvalue=""):
        yield f"{one:<40}{other}".rstrip()


def _bars(title: str, lengths: Lengths) -> Iterator[str]:
    most = max(count for _, _, count in lengths.histogram)
    total = sum(count for _, _, count in lengths.histogram)
    yield f"{title} tokens"
    for low, high, count in lengths.histogram:
        span = f"{low}" if low == high else f"{low}-{high}" if high < _MILLION else f"from {low}"
        yield f"{span:>13} {_percent(count / total):>6} {bar(count / most)}"


def _percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def bar(share: float) -> str:
    """A bar of `share` of the longest; anything over 0 shows."""
    eighths = max(round(share * _BAR * 8), 1 if share else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def _reuse(found: Reuse) -> Iterator[str]:
    yield "Prefixes: what an endless cache finds again"
    yield f"  {found.entries:>6.1%} of the hashes ({found.hash_tokens} tokens, or what is left of a prompt)"
    for size, share in found.blocks:
        yield f"  {'n/a' if share is None else f'{share:.1%}':>6} of full {size}-token blocks"


def meaning(found: Description) -> Iterator[str]:
    """What the numbers say of batching, in sentences."""
    middle = BATCH_SIZES[1]
    output, prompt = found.output.stretch[1], found.prompt.stretch[1]
    yield (
        _equal(middle)
        if output < _ABOUT_EQUAL
        else (
            f"A static batch of {middle} decodes until its longest output ends, {_number(output)} times the "
            "mean: "
            f"{1 - 1 / output:.0%} of its decode slots are padding that continuous batching does not have; "
            f"prompts padded to the longest waste {1 - 1 / prompt:.0%}."
        )
    )
    if found.num_followers:
        waiting = (
            f"{counted(found.num_followers, 'request')} {'waits' if found.num_followers == 1 else 'wait'}"
        )
        yield f"{waiting} for the end of another: the server sets their pace."
    elif found.num_requests == 1:
        yield "One request alone: nothing is batched."
    elif found.arrivals is None:
        yield "All requests come at once: throughput and the order of service are all that can differ."
    else:
        yield _pace(found.arrivals)
    if found.reuse is not None and (share := found.reuse.blocks[-1][1]) is not None:
        worth = "saves up to that share of the prefill" if share > _WORTH_CACHING else "saves little"
        yield f"Prefix caching finds {share:.0%} of the prompt blocks at best and {worth}."


def _equal(batch_size: int) -> str:
    return f"Outputs are about equally long: a static batch of {batch_size} has no decode slots to pad."


def _pace(found: Arrivals) -> str:
    if found.together > _TOGETHER:
        return (
            f"{found.together:.0%} of the requests arrive at the very moment of the one before, as if a "
            "coarse clock had been read: the bursts within its ticks may be the trace's, not the clients'."
        )
    widest = found.dispersion[-1] if found.dispersion else None
    if found.gap_cv > _BURSTY:
        start = (
            f"Gaps vary more than Poisson's (CV {_number(found.gap_cv)}): requests come in bursts that queue"
        )
    elif found.gap_cv < _CLOCKLIKE:
        start = (
            f"Gaps vary less than Poisson's (CV {_number(found.gap_cv)}): queues stay short below saturation"
        )
    else:
        start = f"Gaps vary about as Poisson's do (CV {_number(found.gap_cv)})"
    if widest is None or widest[1] < _LONG_BURSTS:
        return f"{start}."
    window, value = widest
    return (
        f"{start}, and the rate itself drifts: counts in {window:g} s vary {_number(value)} times as much as "
        "Poisson's, so that the mean rate understates the peaks."
    )


def _number(value: float) -> str:
    """Three digits or so, never as a power of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _tokens(value: float) -> str:
    return f"{value:.0f}" if value < _MILLION else f"{value / _MILLION:.1f}M"
