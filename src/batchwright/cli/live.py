"""`batchwright live`: policies on a real engine, predicted, measured, and both side by side."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from textwrap import fill
from typing import Any, Final

from batchwright import run_folder
from batchwright.checkpoint import prompt_ids
from batchwright.cli.engine import EngineFlags, ReadyEngine, ready
from batchwright.cli.progress import stages
from batchwright.cli.screen import heading, screen
from batchwright.engines.choose import Loaded
from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.measured.bench import Bench
from batchwright.measured.report import calibration_lines, remarks, tables
from batchwright.measured.report_json import as_json
from batchwright.measured.side_by_side import SideBySide, Study
from batchwright.measured.words import cpu_paragraph
from batchwright.scenario.build import usable_blocks
from batchwright.scenario.keys import Scenario
from batchwright.scenario.live import LiveScenario, prepare_live
from batchwright.whole_folder import whole

CALIBRATIONS: Final = ("before", "meanwhile")


@dataclass(frozen=True, kw_only=True)
class Measuring:
    """`attempts`: runs of a policy, at most; `calibration`: when, of CALIBRATIONS."""

    attempts: int
    calibration: str

    @property
    def is_meanwhile(self) -> bool:
        return self.calibration == "meanwhile"

    def check(self) -> None:
        """Raise InputError on what cannot be."""
        if self.attempts < 1:
            raise InputError(f"--attempts is {self.attempts}, but must be at least 1")
        if self.calibration not in CALIBRATIONS:
            known = " or ".join(CALIBRATIONS)
            raise InputError(f"--calibration is {self.calibration!r}, but must be {known}")


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where the result goes."""

    as_json: bool
    folder: Path | None
    force: bool


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What the engine runs on, in words; load averages over a minute, of the whole machine."""

    engine: str
    model: str
    threads: int
    load_average: list[float]  # before and after

    def lines(self) -> Iterator[str]:
        yield f"engine: {self.engine}; model: {self.model}; threads: {self.threads} of {os.cpu_count()} CPUs"
        yield f"load average {self.load_average[0]:.2f} before, {self.load_average[1]:.2f} after"


def live(scenario: Scenario, flags: EngineFlags, how: Measuring, output: Output) -> None:
    """Calibrate, predict, measure, print.  Raises BatchwrightError."""
    how.check()
    if output.folder is not None:
        run_folder.check_place(output.folder, output.force)
    prepared = prepare_live(scenario)
    chosen = ready(flags)
    before = _load_average()
    limits, loaded = _load(prepared, chosen, copies=2 if how.is_meanwhile else 1)
    study = _study(prepared, chosen, limits, loaded, how)

    def shown(found: SideBySide) -> Result:
        averages = [before, _load_average()]
        threads = chosen.threads
        machine = Machine(engine=loaded.words, model=chosen.model, threads=threads, load_average=averages)
        return Result(prepared, limits, machine, found)

    try:
        with stages() as report:
            study.run(prepared.load, scenario.repeat, report)
    except KeyboardInterrupt:
        if not output.as_json and (found := study.result()) is not None:
            shown(found).show()
        raise
    found = study.result()
    assert found is not None
    shown(found).give(output)


def _load(prepared: LiveScenario, chosen: ReadyEngine, copies: int) -> tuple[Limits, Loaded]:
    """The engine, with room for the load so many times, and the limits of the runs."""
    longest = prepared.max_model_len(chosen.longest)
    loaded = chosen.load(prepared.max_num_seqs, longest, usable_blocks(prepared.scenario), copies)
    capacity = loaded.engine.capacity
    if capacity.num_kv_blocks is not None:
        capacity = replace(capacity, num_kv_blocks=capacity.num_kv_blocks // copies)
    return prepared.limits(capacity, longest), loaded


def _study(
    prepared: LiveScenario, chosen: ReadyEngine, limits: Limits, loaded: Loaded, how: Measuring
) -> Study:
    ids, seed = chosen.plain_ids(), prepared.scenario.seed or 0
    bench = Bench(loaded.engine, limits, lambda r: prompt_ids(r, limits.block_size, ids, seed))
    return Study(bench, prepared.policies, prepared.slo, prepared.blaming, how.attempts, how.is_meanwhile)


def _load_average() -> float:
    """Of the last minute, of the whole machine."""
    return os.getloadavg()[0]


@dataclass(frozen=True)
class Result:
    """All that is printed or written."""

    prepared: LiveScenario
    limits: Limits
    machine: Machine
    found: SideBySide

    def give(self, output: Output) -> None:
        """Print it, and write it if a folder is given."""
        summary = self.to_json()
        if output.folder is not None:
            self._write(output.folder, summary, output.force)
        if output.as_json:
            print(json.dumps(summary, indent=2))
        else:
            self.show()

    def show(self) -> None:
        """Print tables and words."""
        console = screen()
        console.print(heading(self.prepared.load, [*self._notes(), *self.machine.lines()]))
        for line in self._calibration():
            console.print(f"  {line}")
        for part in tables(self.found):
            console.print(part)
        for text in [*remarks(self.found), "", self._words()]:
            console.print(fill(text, console.width, break_long_words=False, break_on_hyphens=False))

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints; the schema is in docs/live.md."""
        found = as_json(self.found)
        for side, cost in (("predicted", "fitted step time"), ("measured", self.machine.engine)):
            found[side] |= {"cost": cost, "notes": self._notes()}
        return {**found, "machine": asdict(self.machine), "notes": self._notes(), "paragraph": self._words()}

    def _write(self, folder: Path, summary: dict[str, Any], force: bool) -> None:
        """A run folder of each side, whole or not at all."""
        scenario = self.prepared.resolved(self.limits)
        with whole(folder, force, run_folder.KIND) as part:
            text = json.dumps(summary, indent=2) + "\n"
            (part / run_folder.SUMMARY).write_text(text, encoding="utf-8")
            for side, runs in (("predicted", self.found.predicted), ("measured", self.found.measured)):
                run_folder.write(part / side, scenario, summary[side], runs)

    def _notes(self) -> list[str]:
        chosen = [run.note for run in self.found.predicted.values() if run.note]
        return [*self.prepared.notes(self.limits), *chosen]

    def _calibration(self) -> Iterator[str]:
        last = self.found.calibrations[-1]
        if self.found.is_meanwhile:
            yield "calibrated before the runs, and with the clock stopped during each; all steps together:"
        elif (count := len(self.found.calibrations)) > 1:
            yield f"calibrated {count} times, as the machine drifted; this is the last"
        yield from calibration_lines(last)

    def _words(self) -> str:
        return cpu_paragraph(self.found.calibrations[-1].step_time, self.prepared.load, self.limits)
