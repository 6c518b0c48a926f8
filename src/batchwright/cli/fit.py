"""`batchwright fit`: a cost model with error bars from measurements, and a profile file of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from batchwright.calibration.measured import read_steps
from batchwright.calibration.report import lines, profile_of, tables, to_json
from batchwright.calibration.steps import fit_steps
from batchwright.cli.progress import stages
from batchwright.cli.screen import screen
from batchwright.files import check_free, write_whole
from batchwright.profile import Profile, as_text


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The command's own flags; None: not given."""

    output: Path | None
    name: str | None
    run: str | None
    attention: bool
    force: bool
    as_json: bool


def fit(paths: list[Path], settings: Settings) -> None:
    """Fit, print, and write a profile if one is asked for.  Raises InputError."""
    if settings.output is not None:
        check_free(settings.output, settings.force)
    steps = read_steps(paths, settings.run)
    with stages() as report:
        found = fit_steps(steps, settings.attention, lambda share: report("fit", share))
    profile = profile_of(found, settings.name or _name(paths, settings.output))
    if settings.output is not None:
        write_whole(settings.output, as_text(profile), settings.force)
    if settings.as_json:
        written = None if settings.output is None else str(settings.output)
        print(json.dumps({**to_json(found), "profile": written}, indent=2))
        return
    console = screen()
    for part in (*lines(found), *tables(found), *found.remarks, *_end(profile, settings.output)):
        console.print(part)


def _name(paths: list[Path], output: Path | None) -> str:
    """What the profile is called: as its file, or the first one measured."""
    return (paths[0] if output is None else output).name.split(".")[0]


def _end(profile: Profile, output: Path | None) -> list[str]:
    said = [f"--cost '{profile.cost}'"]
    return said if output is None else [*said, f"{output}: written; compare LOAD --profile {output} uses it"]
