"""Predict what policies do to a load on an engine, then measure it.

Every policy serves the load on an engine of the fitted step times, whose clock is virtual, and then on
the real one, both with the same requests and limits.  A probe after each run, and pulses within it, say
how far the machine is from what it was when it was calibrated; beyond 3 % it is calibrated again, and the
run repeated.  All requests count: nothing is left out as warm-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import sha256
from math import nan
from typing import Final

import numpy as np

from batchwright.comparison import Runs
from batchwright.comparison import run as simulate
from batchwright.contract import Begins, Policy
from batchwright.measured.bench import Bench, Ended
from batchwright.measured.between import Between
from batchwright.measured.calibration import Calibration, Report, calibrate, calibrate_again, drift
from batchwright.measured.pace import Pace
from batchwright.measured.rehearsal import Rehearsal
from batchwright.measured.samples import Samples
from batchwright.measured.step_time import StepTime
from batchwright.measured.tape import Replay, Tape
from batchwright.policies import AUTO, Static
from batchwright.replications import Estimates, loads, method_of
from batchwright.run import Run
from batchwright.slo import Slo
from batchwright.workload import Workload

MOST_DRIFT: Final = 0.03  # relative; a run beyond it is repeated
METRICS: Final = {  # what is printed, and its title
    "duration_s": "wall",
    "output_throughput": "output tokens/s",
    "e2e_s.mean": "E2E mean",
    "e2e_s.p99": "E2E P99",
    "ttft_s.mean": "TTFT mean",
    "ttft_s.p99": "TTFT P99",
    "tpot_s.mean": "TPOT mean",
    "itl_s.p99": "ITL P99",
}
OF_SLO: Final = {"attainment": "SLO attainment", "goodput": "goodput, requests/s"}  # where there is one
Guard = Callable[[str], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One policy on one load.

    drift       relative, of the probe's steps since the calibration that predicted
    slowdown    relative, of the pulses during the run against those of that calibration; nan: not known
    contention  relative: how much less of the CPUs the engine had than then
    cpus        that it had
    attempts    runs until the drift was small enough, or all that are made
    step_error  relative, of the run's own steps: their time by the model against the measured one
    before      what was predicted before the run, if it was calibrated meanwhile, and predicted again
    pace        of the machine meanwhile, which that knows
    """

    predicted: Run
    measured: Run
    drift: float
    slowdown: float
    contention: float
    cpus: float
    attempts: int
    step_error: float
    before: Run | None = None
    pace: Pace | None = None

    @property
    def has_drifted(self) -> bool:
        """Was the machine not what it was when it was calibrated?"""
        if self.before is not None:
            return False
        return any(abs(change) > MOST_DRIFT for change in (self.drift, self.slowdown, self.contention))


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """All runs: what was predicted, what was measured, and per policy a cell for each load."""

    predicted: Runs
    measured: Runs
    cells: dict[str, list[Cell]]
    calibrations: list[Calibration]

    @property
    def is_meanwhile(self) -> bool:
        """Was it calibrated during the runs too?"""
        return any(cell.before is not None for cells in self.cells.values() for cell in cells)

    @property
    def metrics(self) -> dict[str, str]:
        """What is compared, and its title."""
        return METRICS if self.predicted.slo is None else METRICS | OF_SLO

    def error(self, policy: str, metric: str) -> float:
        """The median over the loads of the relative error of the prediction."""
        return float(np.median(self.errors(policy, metric)))

    def errors(self, policy: str, metric: str) -> list[float]:
        """That of each load."""
        return self._errors(policy, metric, self.predicted.estimates.values[policy])

    def errors_before(self, policy: str, metric: str) -> list[float]:
        """That of what was predicted before the run, if it was calibrated meanwhile; else none."""
        before = [cell.before for cell in self.cells[policy] if cell.before is not None]
        return self._errors(policy, metric, [run.estimates(self.predicted.slo) for run in before])

    def _errors(self, policy: str, metric: str, predicted: Sequence[Mapping[str, float]]) -> list[float]:
        measured = self.measured.estimates.values[policy]
        return [_relative(a[metric], b[metric]) for a, b in zip(predicted, measured, strict=False)]


def _relative(predicted: float, measured: float) -> float:
    """The error of a prediction; nan where nothing was measured but something predicted."""
    if predicted == measured:
        return 0.0
    return predicted / measured - 1 if measured else nan


class Study:
    """Policies on an engine.  `guard`: a context in which the policy of that name runs.

    `attempts`: runs of a policy on a load, at most, while the machine drifts.  `meanwhile`: calibrate
    during each run too, and predict it from that; the engine has as many KV blocks again for it.
    """

    def __init__(
        self,
        bench: Bench,
        policies: Mapping[str, Policy | Begins],
        slo: Slo | None,
        guard: Guard,
        attempts: int = 3,
        meanwhile: bool = False,
    ) -> None:
        self.bench = bench
        self._tape = Tape() if meanwhile else None
        self.policies = dict(policies)
        self.slo = slo
        self.guard = guard
        self.attempts = attempts
        self.calibrations: list[Calibration] = []
        self._done: list[tuple[Workload, dict[str, Cell]]] = []

    def run(self, load: Workload, repeat: int, report: Report) -> None:
        """Calibrate, predict and measure, on so many loads.  What is complete can be had at any time."""
        self._method, self._report = method_of(load, repeat), report
        self._calibrate(load)
        for replicate in loads(load, repeat):
            cells: dict[str, Cell] = {}
            self._done.append((replicate, cells))
            for name in self.policies:
                with self.guard(name):
                    cells[name] = self._cell(name, replicate)

    def result(self) -> SideBySide | None:
        """What is complete: the loads that all policies have run on, or the policies of the first load."""
        whole = [one for one in self._done if len(one[1]) == len(self.policies)]
        done = whole or [one for one in self._done[:1] if one[1]]
        if not done:
            return None
        cells = {name: [cells[name] for _, cells in done] for name in done[0][1]}
        return SideBySide(
            predicted=self._runs(done, {name: [c.predicted for c in of] for name, of in cells.items()}),
            measured=self._runs(done, {name: [c.measured for c in of] for name, of in cells.items()}),
            cells=cells,
            calibrations=self.calibrations,
        )

    def _runs(self, done: list[tuple[Workload, dict[str, Cell]]], runs: dict[str, list[Run]]) -> Runs:
        values = {name: [one.estimates(self.slo) for one in of] for name, of in runs.items()}
        digest = sha256("".join(load.digest for load, _ in done).encode()).hexdigest()
        first = {name: of[0] for name, of in runs.items()}
        estimates = Estimates(self._method, values, first, 0, digest, self.slo)
        for one in first.values():
            one.siblings = estimates
        return Runs(done[0][0], self.bench.limits, first, estimates)

    def _calibrate(self, load: Workload) -> None:
        policies = self.policies.values()
        self.calibrations.append(calibrate(self.bench, load, policies, self._report, self._tape))

    def _cell(self, name: str, load: Workload) -> Cell:
        cell = self._attempt(name, load, 1)
        for attempt in range(2, self.attempts + 1):
            if not cell.has_drifted:
                break
            self._calibrate(load)
            cell = self._attempt(name, load, attempt)
        return cell

    def _attempt(self, name: str, load: Workload, attempt: int) -> Cell:
        first = self.calibrations[-1]
        before = self._predict(name, load, first.step_time)
        replay = None if self._tape is None else Replay(self.bench.engine, self._tape)
        measured, samples = self._served(
            name, load, self.bench, first.step_time, self._told(name, before), replay
        )
        cell = Cell(
            predicted=before,
            measured=measured,
            drift=drift(self.bench, first),
            slowdown=samples.pulse / first.pulse - 1,
            attempts=attempt,
            contention=first.cpus / samples.cpus - 1 if first.is_here else 0.0,
            cpus=samples.cpus,
            step_error=samples.total_error(first.step_time),
        )
        return cell if replay is None else self._predicted_again(cell, replay, samples)

    def _predicted_again(self, cell: Cell, replay: Replay, samples: Samples) -> Cell:
        """`cell`, with a prediction from what the machine was during the run."""
        assert self._tape is not None
        before = cell.predicted
        last = calibrate_again(self.bench, self._tape, replay, self.calibrations[-1].step_time)
        self.calibrations.append(last)
        pace = Pace.of(replay.found, last.step_time)
        predicted = self._predict(before.name, before.load, last.step_time, pace)
        predicted.note = before.note
        paces = 1.0 if pace is None else pace.over(samples.ends)
        error = samples.total_error(last.step_time, paces)
        return replace(cell, predicted=predicted, before=before, pace=pace, step_error=error)

    def _predict(self, name: str, load: Workload, cost: StepTime, pace: Pace | None = None) -> Run:
        """The run on fitted step times, at that pace."""
        note = ""
        policy = self.policies[name]
        if isinstance(policy, Static) and policy.batch_size == AUTO:
            found = simulate(name, policy, load, cost, self.bench.limits)
            policy, note = found.policy or policy, found.note
            self.policies[name] = policy  # which stays
        engine = Rehearsal(cost, self.bench.engine.capacity, pace)
        bench = Bench(engine, self.bench.limits, lambda r: [0] * r.prompt)
        predicted = self._served(name, load, bench, cost)[0]
        predicted.note = note
        return predicted

    def _served(
        self,
        name: str,
        load: Workload,
        bench: Bench,
        cost: StepTime,
        ended: Ended | None = None,
        between: Between | None = None,
    ) -> tuple[Run, Samples]:
        policy, limits = self.policies[name], bench.limits
        requests = load.requests(limits.block_size, prefix=limits.enable_prefix_caching)
        live, samples = bench.serve(policy, requests, cost=cost, ended=ended, between=between)
        run = Run(name, load, live)
        run.policy = policy
        return run, samples

    def _told(self, name: str, predicted: Run) -> Callable[[int], None]:
        begin, count, whole = time.monotonic(), len(predicted.load), predicted.summary.duration

        def told(ended: int) -> None:
            left = max(whole - (time.monotonic() - begin), 0.0)
            self._report(f"{name}: {ended} of {count} requests, {left:.0f} s left", ended / count)

        return told
