"""A validation as tables and text."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import TYPE_CHECKING

from batchwright.figures import NOT_APPLICABLE, amount, count, figure, seconds, share, signed_seconds
from batchwright.plain_table import plain_table
from batchwright.validation.brackets import brackets
from batchwright.validation.lines import Line
from batchwright.validation.residuals import Part, Residual
from batchwright.validation.validation import Validation

if TYPE_CHECKING:
    from rich.table import Table

INTERVAL = "± is half of the 95 % interval of the error: how far chance between requests may have moved it"


def table(found: Validation) -> Table:
    """A line per number that both sides have."""
    result = plain_table()
    result.add_column("", overflow="fold")
    for title in ("predicted", "measured", "error"):
        result.add_column(title, justify="right")
    shown = [line for line in found.lines.values() if line.is_defined]
    for line, after in zip(shown, [*shown[1:], None], strict=True):
        values = (figure(value, line.unit) for value in (line.predicted, line.measured))
        result.add_row(line.title, *values, error(line), end_section=_group(line) != _group(after))
    return result


def _group(line: Line | None) -> str:
    """Lines of one group stand together."""
    return "" if line is None else line.key.partition(".")[0] if "." in line.key else "whole"


def error(line: Line) -> str:
    """`+1.2 ±0.4%`; where nothing was measured, the difference."""
    if isnan(line.error):
        return f"{line.difference:+,.3g}"
    half = f" ±{100 * line.error_half:.1f}" if not isnan(line.error_half) else ""
    return f"{100 * line.error:+.1f}{half}%"


def missing(found: Validation) -> list[str]:
    """What only one side has, or none, by the first word of its title."""
    lacking = [line for line in found.lines.values() if not line.is_defined and not _is_level(found, line)]
    one = {_first(line): _who(line) for line in lacking}
    has_some = {_first(line) for line in found.lines.values() if line.is_defined}
    return [f"{title}: {who}" for title, who in one.items() if title not in has_some]


def _is_level(found: Validation, line: Line) -> bool:
    """Is it of a level that both sides have, but at no time together?"""
    return found.has_level(line.key.partition(".")[0])


def _first(line: Line) -> str:
    return line.title.rpartition(" ")[0].rstrip(",") if "." in line.key else line.title


def _who(line: Line) -> str:
    lacking = [name for name in ("predicted", "measured") if isnan(getattr(line, name))]
    return f"not {' and not '.join(lacking)}"


def remarks(found: Validation) -> list[str]:
    """What the table alone does not say."""
    lines = [*found.matching.lines]
    if found.skip:
        skipped = f"the first {found.skip:,} requests by arrival"
        lines.append(f"warm-up: {skipped} are left out on both sides (--skip)")
    lines += [*_unqueued(found), *_failed(found), *brackets(found), *beyond(found)]
    lacking = missing(found)
    if lacking:
        lines.append(f"not compared: {'; '.join(lacking)}")
    if any(not isnan(line.half) for line in found.lines.values()):
        lines.append(INTERVAL)
    return lines


def _unqueued(found: Validation) -> Iterator[str]:
    who = found.who_tells_waits
    if who and not isnan(found.longest_step):
        yield (
            f"unqueued: {count(len(found.unqueued.measured))}, which were admitted within "
            f"{seconds(found.longest_step)} (the longest predicted step), as {who}"
        )


def _failed(found: Validation) -> Iterator[str]:
    """Requests without an end."""
    for name in ("predicted", "measured"):
        side, rows = getattr(found, name), getattr(found.kept, name)
        ends = side.column("e2e_s")[rows]
        num_failed = sum(map(isnan, ends.tolist()))
        if "e2e_s" in side.requests and num_failed:
            yield f"without an end as {name}: {count(num_failed)}, which have no part in times"


def beyond(found: Validation) -> Iterator[str]:
    """Where the cost model was not fitted."""
    if found.fitted is None:
        yield "the cost model has no fitted range (--profile): whether it extrapolates is not known"
    for one in found.beyond:
        ends = f"{amount(one.least)} to {amount(one.greatest)}"
        if isnan(one.steps):
            yield f"{one.feature}: fitted on {ends}; the steps of the run do not tell it"
        elif one.steps:
            yield (
                f"extrapolates: {one.feature} was fitted on {ends}, and {share(one.steps)} of the predicted "
                f"steps ({share(one.seconds)} of their time) are outside, as far as {amount(one.reached)}"
            )
    if found.beyond and not any(one.steps > 0 for one in found.beyond):
        yield "no predicted step is outside the fitted range"


def parts_table(parts: list[Part]) -> Table:
    """Differences by time of arrival."""
    result = plain_table(title="differences by arrival, predicted - measured", title_justify="left")
    for title in ("came", "requests", "TTFT", "TPOT", "E2E", "measured E2E"):
        result.add_column(title, justify="right")
    for part in parts:
        came = f"{part.begin:.1f}-{part.end:.1f} s"
        apart = [signed_seconds(value) for value in (part.ttft, part.tpot, part.e2e)]
        result.add_row(came, count(part.num_requests), *apart, seconds(part.measured_e2e))
    return result


def residual_table(residuals: list[Residual]) -> Table:
    """The requests that are off by most."""
    result = plain_table(title="largest differences of E2E, request by request", title_justify="left")
    for title in ("request", "came", "lengths", "predicted", "measured", "of TTFT", "of the rest"):
        result.add_column(title, justify="right")
    for one in residuals:
        lengths = f"{_whole(one.prompt)}+{_whole(one.output)}"
        times = (seconds(one.predicted), seconds(one.measured))
        apart = (signed_seconds(one.of_ttft), signed_seconds(one.of_decoding))
        result.add_row(str(one.request), _came(one), lengths, *times, *apart)
    return result


def _came(one: Residual) -> str:
    return NOT_APPLICABLE if isnan(one.arrival) else f"{one.arrival:.1f} s"


def _whole(value: float) -> str:
    return "?" if isnan(value) else f"{value:.0f}"
