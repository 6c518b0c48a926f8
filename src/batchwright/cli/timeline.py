"""`batchwright timeline`: a few requests as rows, one character a step, for each policy."""

from __future__ import annotations

import json
from dataclasses import dataclass

from batchwright.cli.progress import run_each
from batchwright.cli.screen import heading, screen
from batchwright.drawing import MOST, Window, as_json, legend, panels
from batchwright.errors import InputError
from batchwright.scenario.build import prepare
from batchwright.scenario.keys import Scenario


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command's own flags; None: not given."""

    ids: str | None
    first: int | None
    start: int | None
    steps: int | None
    scale: int | None
    as_json: bool


def timeline(scenario: Scenario, settings: Settings) -> None:
    """Run every policy and draw it.  Raises BatchwrightError."""
    console = screen()
    prepared = prepare(scenario)
    window = Window(
        ids=_ids(settings, len(prepared.load)),
        first=settings.start,
        steps=settings.steps,
        scale=settings.scale,
        width=console.width,
    )
    runs = run_each(prepared)
    found = panels(runs, window)
    if settings.as_json:
        print(json.dumps(as_json(found, window.ids), indent=2))
        return
    notes = [*prepared.notes, *(made.note for made in runs.values() if made.note), *prepared.beyond(runs)]
    console.print(heading(prepared.load, notes))
    for panel in found:
        console.print()
        console.print(panel.styled())
    console.print("\n".join(["", *legend(found, window.width)]))


def _ids(settings: Settings, count: int) -> list[int]:
    """The requests to draw."""
    if settings.ids is None:
        first = MOST if settings.first is None else settings.first
        if first < 1:
            raise InputError(f"--first is {first}; give at least 1")
        return list(range(min(first, count)))
    if settings.first is not None:
        raise InputError("--ids is given together with --first; leave one of them out")
    parts = [part.strip() for part in settings.ids.split(",")]
    wrong = [part for part in parts if not (part.isascii() and part.isdecimal())]
    if wrong:
        raise InputError(f"--ids has {wrong[0]!r}, which is no request; give numbers such as 3,7,12")
    return list(dict.fromkeys(map(int, parts)))

