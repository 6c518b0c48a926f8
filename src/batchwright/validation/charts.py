"""The two sides as charts of characters: `x` predicted, `o` measured, `#` both.

Three kinds: a level over time, the share of requests below a time (cumulative distribution), and one
request a point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from batchwright.figures import three
from batchwright.metrics import Numbers
from batchwright.run.run import METRICS
from batchwright.validation.lines import window
from batchwright.validation.side import RUNNING, WAITING, Side
from batchwright.validation.validation import Validation

if TYPE_CHECKING:
    from rich.text import Text

PREDICTED, MEASURED, BOTH = "x", "o", "#"
LEGEND: Final = f"{PREDICTED} predicted   {MEASURED} measured   {BOTH} both"
STYLES: Final = {PREDICTED: "cyan", MEASURED: "yellow", BOTH: "green"}
HEIGHT: Final = 8  # lines of the area
NARROWEST: Final = 28  # columns of the area
MARGIN: Final = 8  # columns of the numbers on the left
GAP: Final = "   "  # between two charts in one row


@dataclass(frozen=True, kw_only=True)
class Chart:
    """`rows`, the first on top, of as many characters each.

    `ticks`: what stands left of the first and the last row; `ends`: below, left and right.
    """

    title: str
    rows: tuple[str, ...]
    ticks: tuple[str, str]
    ends: tuple[str, str]

    def lines(self) -> Iterator[str]:
        """As text, all of one width."""
        width = len(self.rows[0])
        yield self.title.ljust(MARGIN + width)
        last = len(self.rows) - 1
        for i, row in enumerate(self.rows):
            tick = self.ticks[0] if i == 0 else self.ticks[1] if i == last else ""
            yield f"{tick:>{MARGIN - 2}} |{row}"
        left, right = self.ends
        yield " " * MARGIN + left + right.rjust(width - len(left))


def charts(found: Validation, width: int) -> list[Chart]:
    """What the two sides allow, each in an area `width` columns wide."""
    made = [_level(found, name, width) for name in (RUNNING, WAITING)]
    made += [_shares(found, name, width) for name in METRICS]
    if found.kept.is_paired:
        made.append(_points(found, "e2e_s", width))
    return [chart for chart in made if chart is not None]


def drawn(found: Sequence[Chart], width: int) -> list[str]:
    """The charts in rows of two where `width` characters hold them, each row as lines of text."""
    per_row = 2 if found and 2 * len(next(found[0].lines())) + len(GAP) <= width else 1
    lines: list[str] = []
    for i in range(0, len(found), per_row):
        beside = zip(*(chart.lines() for chart in found[i : i + per_row]), strict=True)
        lines += [*(GAP.join(parts).rstrip() for parts in beside), ""]
    return lines


def area_width(width: int) -> int:
    """Columns of the area of each chart, so that two fit `width` characters."""
    return max((width - len(GAP)) // 2 - MARGIN, NARROWEST)


def styled(lines: Sequence[str]) -> Text:
    """For rich: the marks in colours, where a line is one of an area."""
    from rich.text import Text

    text = Text()
    for line in lines:
        is_area = "|" in line
        for cell in line:
            text.append(cell, STYLES.get(cell, "") if is_area else "")
        text.append("\n")
    return text


# --- the three kinds ---------------------------------------------------------------------


def _level(found: Validation, name: str, width: int) -> Chart | None:
    begin, end = window(found.predicted, found.measured, found.kept, name)
    if not end > begin or not found.has_level(name):
        return None
    at = begin + (np.arange(width) + 0.5) * (end - begin) / width
    values = [side.levels[name].at(at) for side in (found.predicted, found.measured)]
    most = float(max(each.max() for each in values))
    heights = [_scaled(each, 0.0, most, HEIGHT) for each in values]
    return Chart(
        title=f"{name}, requests over time",
        rows=_drawn([_joined(height) for height in heights], width),
        ticks=(three(most), "0"),
        ends=(f"{begin:.0f} s", f"{end:.0f} s"),
    )


def _shares(found: Validation, name: str, width: int) -> Chart | None:
    """The share of the requests that took at most so long."""
    values = [_sorted(side, name, rows) for side, rows in _sides(found)]
    if not all(len(each) for each in values):
        return None
    most = max(float(each[-1]) for each in values)
    at = (np.arange(width) + 1) * most / width
    shares = [np.searchsorted(each, at, side="right") / len(each) for each in values]
    return Chart(
        title=f"{METRICS[name]}, share of the requests below",
        rows=_drawn([_joined(_scaled(share, 0.0, 1.0, HEIGHT)) for share in shares], width),
        ticks=("100%", "0%"),
        ends=("0", f"{three(most)} s"),
    )


def _points(found: Validation, name: str, width: int) -> Chart | None:
    """Predicted against measured, request by request; on the line both are equal."""
    a, b = (side.column(name)[rows] for side, rows in _sides(found))
    has_both = ~np.isnan(a - b)
    if not has_both.any():
        return None
    a, b = a[has_both], b[has_both]
    most = float(max(a.max(), b.max()))
    equal = (np.arange(width), np.arange(width) * HEIGHT // width)
    points = (_scaled(b, 0.0, most, width), _scaled(a, 0.0, most, HEIGHT))
    return Chart(
        title=f"{METRICS[name]}, predicted by measured; o: equal",
        rows=_drawn([points, equal], width),
        ticks=(f"{three(most)} s", "0"),
        ends=("0", f"{three(most)} s"),
    )


def _sides(found: Validation) -> list[tuple[Side, Numbers]]:
    return [(found.predicted, found.kept.predicted), (found.measured, found.kept.measured)]


def _sorted(side: Side, name: str, rows: Numbers) -> Numbers:
    values = side.column(name)[rows]
    return np.sort(values[~np.isnan(values)])


def _scaled(values: Numbers, least: float, most: float, cells: int) -> Numbers:
    """The cell of each value, from 0."""
    span = most - least if most > least else 1.0
    return np.minimum(((values - least) / span * cells).astype(np.int64), cells - 1)


def _joined(heights: Numbers) -> tuple[Numbers, Numbers]:
    """Columns and heights of a line without holes: each column reaches up or down to the one before."""
    before = np.concatenate((heights[:1], heights[:-1]))
    low = np.where(heights > before, before + 1, heights)
    high = np.where(heights < before, before - 1, heights)
    columns = np.repeat(np.arange(len(heights)), high - low + 1)
    first = np.repeat(np.cumsum(high - low + 1) - (high - low + 1), high - low + 1)
    return columns, np.repeat(low, high - low + 1) + np.arange(len(columns)) - first


def _drawn(marks: Sequence[tuple[Numbers, Numbers]], width: int) -> tuple[str, ...]:
    """Columns and heights of the predicted marks, then of the measured ones, as rows from the top."""
    area = np.zeros((HEIGHT, width), np.int64)
    for bit, (columns, heights) in enumerate(marks):
        area[heights, columns] |= 1 << bit
    marks_of = np.array([" ", PREDICTED, MEASURED, BOTH])
    return tuple("".join(marks_of[row]) for row in area[::-1])
