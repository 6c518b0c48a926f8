"""`batchwright validate RUN --against MEASURED`: predicted beside measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Final

from batchwright import imported
from batchwright.cli.screen import screen
from batchwright.files import check_free, write_whole
from batchwright.run_folder import SUMMARY, RunFolder
from batchwright.validation import (
    Bound,
    Side,
    Validation,
    measured_side,
    paragraph,
    predicted_side,
    read_bounds,
)
from batchwright.validation.charts import LEGEND, area_width, charts, drawn, styled
from batchwright.validation.fitted import fitted_range
from batchwright.validation.picture import check_plot, picture
from batchwright.validation.report import error, parts_table, remarks, residual_table, table
from batchwright.validation.report_json import as_json

BROKEN: Final = 3  # exit status: a bound does not hold


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command's flags.  `run`: which one of a measured file that holds several."""

    against: Path
    run: str | None
    policy: str | None
    skip: int
    bounds: Sequence[str]
    plot: Path | None
    force: bool
    as_json: bool


def validate(place: Path, settings: Settings) -> int:
    """Print how the prediction in the run folder `place` differs from what was measured; the exit status.

    Raises BatchwrightError on bad input.
    """
    if settings.plot is not None:
        check_plot(settings.plot)
        check_free(settings.plot, settings.force)
    folder = RunFolder.open(place)
    predicted = predicted_side(folder, settings.policy)
    found = Validation(
        predicted=predicted,
        measured=_measured(settings, predicted),
        skip=settings.skip,
        fitted=fitted_range(folder),
    )
    bounds = read_bounds(settings.bounds, found.lines)
    if settings.plot is not None:
        write_whole(settings.plot, picture(found, settings.plot.suffix), settings.force)
    if settings.as_json:
        print(json.dumps(as_json(found, bounds), indent=2))
    else:
        _print(found, bounds, settings.plot)
    return BROKEN if any(bound.is_broken(found.lines) for bound in bounds) else 0


def _measured(settings: Settings, predicted: Side) -> Side:
    """A run folder, as `live -o` writes one of what it measured, or what `batchwright import` reads."""
    place = settings.against
    if (place / SUMMARY).is_file():
        return _of_run(RunFolder.open(place), predicted.name)
    return measured_side(imported.read(place, settings.run))


def _of_run(folder: RunFolder, policy: str) -> Side:
    """The policy of the same name, else the only one."""
    same = policy if policy in folder.summary["policies"] else None
    return predicted_side(folder, same, str(folder.folder))


def _print(found: Validation, bounds: Sequence[Bound], plot: Path | None) -> None:
    console = screen()
    width = console.width
    console.print(f"{found.predicted.name} is predicted; measured: {found.measured.name}")
    for line in (*found.predicted.remarks, *found.measured.remarks):
        console.print(_filled(line, width, "  "))
    console.print(table(found))
    console.print(styled(drawn(charts(found, area_width(width)), width)))
    console.print(LEGEND)
    for part in (parts_table(found.parts), residual_table(found.residuals)):
        if part.row_count:
            console.print()
            console.print(part)
    for line in (*remarks(found), *_verdicts(found, bounds), "", paragraph(found)):
        console.print(_filled(line, width))
    if plot is not None:
        console.print(f"{plot}: the same as a picture")


def _filled(line: str, width: int, indent: str = "") -> str:
    return fill(
        line,
        width,
        initial_indent=indent,
        subsequent_indent=2 * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _verdicts(found: Validation, bounds: Sequence[Bound]) -> list[str]:
    """A line per bound."""
    lines = []
    for bound in bounds:
        line = found.lines[bound.key]
        verdict = "is broken" if bound.is_broken(found.lines) else "holds"
        lines.append(f"bound {bound.key} within {bound.most:.3g}: {verdict}, {line.title} {error(line)}")
    return lines
