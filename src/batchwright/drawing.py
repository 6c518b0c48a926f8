"""A few requests as rows of a terminal, one character a step.

    static(4)       1 character = 5 steps
    step            0         50        100
    seconds         0.00      0.41      0.82
    0   654+260     ~~~P--------------------

A column is a step, or `scale` steps where all of them would not fit; it then shows a prefill
if one of its steps has one, else what the request does in most of them.  Time in which nothing
runs is one column, however long: `~` for the requests that wait in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from batchwright.errors import InputError
from batchwright.run import Run
from batchwright.run.phases import (
    DECODES,
    HAS_ENDED,
    IS_HELD,
    IS_PADDING,
    IS_SWAPPED,
    PREFILLS,
    WAITS,
    Course,
    courses,
)

if TYPE_CHECKING:
    from rich.text import Text

WAITS_IDLE: Final = "~"
LEGEND: Final = {
    WAITS: "waits",
    IS_SWAPPED: "swapped: waits, its KV in host memory",
    PREFILLS: "prefill",
    DECODES: "decode",
    IS_HELD: "held: has a seat, misses the step",
    HAS_ENDED: "ended, keeps its seat",
    IS_PADDING: "ended, computed as padding",
    WAITS_IDLE: "waits while nothing runs (one column, however long)",
}
STYLES: Final = {
    WAITS: "yellow",
    IS_SWAPPED: "bright_yellow",
    PREFILLS: "bold cyan",
    DECODES: "green",
    IS_HELD: "bold magenta",
    HAS_ENDED: "blue",
    IS_PADDING: "red",
    WAITS_IDLE: "yellow",
}
SCHEMA_VERSION: Final = 1
MOST: Final = 12  # requests that are drawn unless others are asked for
LABELLED: Final = 10  # columns from one label of the axis to the next
NARROWEST: Final = 20  # columns
ROUND: Final = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)  # steps of a column, times powers of 10


@dataclass(frozen=True, kw_only=True)
class Window:
    """What is drawn: requests `ids` in the steps from `first` on.

    `first`: None is the first step of these requests.
    `steps`: how many; None: to the end of the last of these requests.  `scale`: steps of one
    character; None: the fewest that fit `width`, the characters of a line.
    """

    ids: Sequence[int]
    first: int | None = None
    steps: int | None = None
    scale: int | None = None
    width: int = 100

    def __post_init__(self) -> None:
        for name, value, least in (
            ("requests", len(self.ids), 1),
            ("first step", self.first, 0),
            ("steps", self.steps, 1),
            ("scale", self.scale, 1),
        ):
            if value is not None and value < least:
                raise InputError(f"timeline: {name} is {value}; give at least {least}")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The rows of one policy: `axis` above, then one label and one string of characters each.

    It shows the steps `first` .. `end` - 1, at most `scale` of them in one character.
    """

    policy: str
    first: int
    end: int
    scale: int
    title: str
    axis: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]

    def lines(self) -> list[str]:
        """As plain text."""
        return [self.title, *self.axis, *(f"{label}{cells}".rstrip() for label, cells in self.rows)]

    def styled(self) -> Text:
        """For rich: the same characters, in colours."""
        from rich.text import Text

        text = Text("\n".join([self.title, *self.axis]), style="")
        for label, cells in self.rows:
            text.append(f"\n{label}")
            for cell in cells.rstrip():
                text.append(cell, STYLES.get(cell, ""))
        return text


def panels(runs: Mapping[str, Run], window: Window) -> list[Panel]:
    """One panel per run, all at the same scale.  Raises InputError on an id or a step that is not there."""
    sketches = [_Sketch(name, run, window) for name, run in runs.items()]
    room = max(window.width - max(sketch.label_width for sketch in sketches), NARROWEST)
    scale = window.scale or max(sketch.scale_for(room) for sketch in sketches)
    return [sketch.panel(scale, room) for sketch in sketches]


def legend(found: Sequence[Panel], width: int = 100) -> list[str]:
    """What the characters that occur mean, in lines of at most `width`."""
    used = {cell for panel in found for _, cells in panel.rows for cell in cells}
    lines = ["rows: request, prompt+output tokens"]
    for part in (f"{code} {meaning}" for code, meaning in LEGEND.items() if code in used):
        if lines[-1] and len(lines[-1]) + 3 + len(part) > width:
            lines.append("")
        lines[-1] += f"   {part}" if lines[-1] else part
    return lines


def draw(runs: Mapping[str, Run], window: Window) -> str:
    """All panels and the legend as plain text."""
    found = panels(runs, window)
    parts = ["\n".join(panel.lines()) for panel in found]
    return "\n\n".join([*parts, "\n".join(legend(found, window.width))]) + "\n"


def as_json(found: Sequence[Panel], ids: Sequence[int]) -> dict[str, Any]:
    """What `--json` prints; the schema is in docs/timeline.md."""
    return {
        "schema_version": SCHEMA_VERSION,
        "policies": {
            panel.policy: {
                "first_step": panel.first,
                "end_step": panel.end,
                "steps_per_character": panel.scale,
                "rows": {str(id): cells for id, (_, cells) in zip(ids, panel.rows, strict=True)},
            }
            for panel in found
        },
    }


@dataclass(frozen=True)
class _Column:
    """The steps `first` .. `end` - 1; none: the idle time before step `first`."""

    first: int
    end: int

    @property
    def is_idle(self) -> bool:
        return self.end == self.first


class _Sketch:
    """One run in the window."""

    def __init__(self, name: str, run: Run, window: Window) -> None:
        self.name = name
        self.run = run
        self.ids = list(window.ids)
        self.courses = courses(run, self.ids)
        self.starts, self.ends = run.timeline.starts, run.timeline.ends
        self.jumps = sorted(set(run.log.jumps))
        earliest = min((course.first for course in self.courses.values()), default=0)
        self.first = earliest if window.first is None else window.first
        if self.first >= len(self.starts):
            raise InputError(
                f"timeline: {name} has {len(self.starts)} steps, but the first one to draw is {self.first}; "
                "give an earlier one, or a request that runs"
            )
        last = max((course.end for course in self.courses.values()), default=0)
        asked = max(last, self.first + 1) if window.steps is None else self.first + window.steps
        self.end = min(asked, len(self.starts))
        self.labels = [self._label(id) for id in self.ids]
        self.label_width = max(len("seconds"), *(len(label) for label in self.labels)) + 2

    def _label(self, id: int) -> str:
        is_rejected = id not in self.courses
        served = self.run.load.output if is_rejected else self.run.requests()["output_tokens"]
        prompt, output = int(self.run.load.prompt[id]), int(served[id])
        return f"{id:>{len(str(max(self.ids)))}}  {prompt}+{output}{'  rejected' * is_rejected}"

    def columns(self, scale: int) -> list[_Column]:
        """The window in columns of at most `scale` steps, parted where nothing ran."""
        found: list[_Column] = []
        first = self.first
        for jump in [*(jump for jump in self.jumps if self.first <= jump < self.end), None]:
            end = self.end if jump is None else jump
            found += [_Column(at, min(at + scale, end)) for at in range(first, end, scale)]
            if jump is not None:
                found.append(_Column(jump, jump))
            first = end
        return found

    def scale_for(self, room: int) -> int:
        """The fewest steps a column, of `ROUND`, with which the window fits `room` columns.

        If idle times alone are too many, the window in one column between any two of them.
        """
        scales: Iterator[int] = chain(range(1, 10), (r * 10**power for power in range(20) for r in ROUND))
        return next(s for s in scales if s >= self.end - self.first or len(self.columns(s)) <= room)

    def panel(self, scale: int, room: int) -> Panel:
        columns = self.columns(scale)
        shown = columns[:room]
        end = shown[-1].end
        title = f"{self.name}: steps {self.first} to {end - 1} of {len(self.starts)}"
        title += f", 1 character = {scale} steps" if scale > 1 else ", 1 character = 1 step"
        if end < self.end:
            title += f"; cut at the right, before step {end}"
        cells = zip(self.ids, self.labels, strict=True)
        return Panel(
            policy=self.name,
            first=self.first,
            end=end,
            scale=scale,
            title=title,
            axis=tuple(self._axis(shown)),
            rows=tuple((label.ljust(self.label_width), self._row(id, shown)) for id, label in cells),
        )

    def _axis(self, columns: list[_Column]) -> Iterator[str]:
        steps = [str(column.first) for column in columns[::LABELLED]]
        seconds = [_shortened(self._begin(column)) for column in columns[::LABELLED]]
        yield ("step".ljust(self.label_width) + "".join(text.ljust(LABELLED) for text in steps)).rstrip()
        yield ("seconds".ljust(self.label_width) + "".join(text.ljust(LABELLED) for text in seconds)).rstrip()

    def _begin(self, column: _Column) -> float:
        """When a column begins: a step, or the idle time after the step before."""
        if not column.is_idle:
            return float(self.starts[column.first])
        return float(self.ends[column.first - 1]) if column.first else 0.0

    def _row(self, id: int, columns: list[_Column]) -> str:
        course = self.courses.get(id)
        return "" if course is None else "".join(self._cell(course, column) for column in columns)

    def _cell(self, course: Course, column: _Column) -> str:
        if column.is_idle:
            return self._idle_cell(course, column.first)
        return _shown(course.text(column.first, column.end))

    def _idle_cell(self, course: Course, tick: int) -> str:
        """What the request did in the idle time before step `tick`."""
        if not course.first <= tick < course.end or self.run.arrival[course.id] >= self.starts[tick]:
            return " "
        code = course.text(tick, tick + 1)
        if code in (WAITS, IS_SWAPPED) or any(stay.admitted == tick for stay in course.stays):
            return WAITS_IDLE
        return code if code == HAS_ENDED else IS_HELD


def _shown(codes: str) -> str:
    """One character for some steps: a prefill if there is one, else the most frequent."""
    if PREFILLS in codes:
        return PREFILLS
    there = codes.replace(" ", "")
    return Counter(there).most_common(1)[0][0] if there else " "


def _shortened(seconds: float) -> str:
    """In at most 9 characters, for a billion seconds."""
    return f"{seconds:.3f}" if seconds < 10_000 else f"{seconds:.0f}"
