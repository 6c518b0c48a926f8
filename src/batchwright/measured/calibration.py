"""Measure what steps take on an engine, and how far the machine has drifted since.

First some 20 small loads, each for steps of one shape; then a burst of the workload's own requests,
which the model of the shapes has never seen: its error there is told.  The model that predicts is
fitted to the steps of both.  A probe, a small fixed load, is run then and again later: the same steps,
so the median ratio of their times is the drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Final

import numpy as np

from batchwright.contract import Begins, Policy
from batchwright.cost import CostModel, Linear
from batchwright.engines.live import Synchronous
from batchwright.limits import Limits
from batchwright.measured.bench import Bench
from batchwright.measured.between import Between
from batchwright.measured.fit import fit
from batchwright.measured.pace import Pace
from batchwright.measured.samples import Samples, together
from batchwright.measured.shapes import SHORT, Shape, decode, mixed, shapes
from batchwright.measured.step_time import StepTime
from batchwright.measured.tape import Replay, Tape, Taping
from batchwright.policies import AUTO, Static, Vllm
from batchwright.request import Request
from batchwright.simulator import Simulator
from batchwright.step import Step
from batchwright.workload import Workload

PASSES: Final = 2  # over all shapes, so that a slow second of the machine is not taken for a slow shape
SLOW: Final = 4.0  # seconds of a step, as smaller ones say; it is not calibrated but extrapolated
IDLE: Final = 0.2  # CPUs; an engine that uses fewer computes elsewhere, or not at all
BURST: Final = 4  # times max_num_seqs: requests of the burst,
LONGEST_BURST: Final = 15.0  # and seconds that it may take
ROUGH: Final = Linear(base=0.005, prefill=0.0005, decode=0.001, context=3e-6)  # before anything is measured
Report = Callable[[str, float], None]  # what is being done, how far it is


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What was measured, and the model fitted to it.  Errors are relative.

    step_time     the model
    num_shapes    small loads
    num_steps     steps of the shapes and the burst
    fit_error     mean error of a step of the shapes, under the model of all
    burst_error   mean error of a step of the burst, under the model of the shapes alone
    burst_total   the same of the burst's whole time, with its sign
    cpus          CPU seconds that the engine had per second of steps: `threads`, if nobody took them away
    pulse         mean seconds of a pulse meanwhile; nan: none was taken
    probe         seconds of each step of the probe, right after
    """

    step_time: StepTime
    num_shapes: int
    num_steps: int
    fit_error: float
    burst_error: float
    burst_total: float
    cpus: float
    pulse: float
    probe: list[float]

    @property
    def is_here(self) -> bool:
        """Does the engine compute in this process?"""
        return self.cpus > IDLE


def calibrate(
    bench: Bench,
    load: Workload,
    policies: Iterable[Policy | Begins],
    report: Report,
    tape: Tape | None = None,
) -> Calibration:
    """Calibrate on the shapes and a burst of `load`, and keep the steps on `tape`, if there is one.

    Raises what the engine raises.
    """
    first = bench.limits.blocks
    taping = (None, None) if tape is None else (Taping(tape.small, first), Taping(tape.burst, first))
    parts = _measured_shapes(bench, most_tokens(bench.limits, load, policies), report, taping[0])
    small = together(parts)
    report("calibration: a burst", 0.0)
    requests = _burst(bench.limits, load, fit(small))
    burst = bench.serve(Vllm(), requests, between=taping[1])[1]
    if tape is not None:
        tape.measured = (small, burst)
        tape.num_shapes = len(parts)
    return _fitted(bench, small, burst, len(parts))


def calibrate_again(bench: Bench, tape: Tape, replay: Replay, model: StepTime) -> Calibration:
    """With what `replay` has measured beside a run too, at the pace of the calibration that made `model`."""
    pace = Pace.of(replay.found, model)
    if pace is not None:
        tape.add(replay.found, replay.are_burst, pace)
    return _fitted(bench, *tape.measured, tape.num_shapes)


def _fitted(bench: Bench, small: Samples, burst: Samples, num_shapes: int) -> Calibration:
    of_shapes, both = fit(small), together([small, burst])
    found = fit(both)
    return Calibration(
        step_time=found,
        num_shapes=num_shapes,
        num_steps=len(both),
        fit_error=float(np.mean(np.abs(small.errors(found)))),
        burst_error=float(np.mean(np.abs(burst.errors(of_shapes)))),
        burst_total=burst.total_error(of_shapes),
        cpus=both.cpus,
        pulse=both.pulse,
        probe=probe(bench),
    )


def drift(bench: Bench, calibration: Calibration) -> float:
    """How much longer, relatively, the steps of the probe take now."""
    return float(np.median(np.array(probe(bench)) / np.array(calibration.probe))) - 1


def probe(bench: Bench) -> list[float]:
    """Seconds of every step of a few shapes, always the same."""
    limits = replace(bench.limits, enable_prefix_caching=False)
    chosen = (decode(limits, 1, SHORT), decode(limits, limits.max_num_seqs, SHORT), mixed(limits, 16))
    return together(_served(bench, shape) for shape in chosen).seconds


def most_tokens(limits: Limits, load: Workload, policies: Iterable[Policy | Begins]) -> int:
    """Tokens of the greatest step of `policies` on `load`, found by simulating them roughly."""
    watch = _Watch()
    for policy in policies:
        if isinstance(policy, Static) and policy.batch_size == AUTO:
            policy = replace(policy, batch_size=limits.max_num_seqs)  # the greatest that is tried
        simulator = Simulator(Synchronous(policy), watch, limits)
        simulator.run(list(load.requests(limits.block_size, prefix=limits.enable_prefix_caching)))
    return watch.most


class _Watch:
    """A rough cost that notes the greatest step it was asked for."""

    def __init__(self) -> None:
        self.most = 1

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        self.most = max(self.most, step.prefill_tokens + step.num_decodes + step.padded_rows)
        return ROUGH.stretch(step, steps)


def _measured_shapes(bench: Bench, most: int, report: Report, between: Between | None) -> list[Samples]:
    """Steps of all shapes, but for those whose steps would be too slow."""
    found: list[Samples] = []
    chosen, per_token = list(shapes(bench.limits, most)) * PASSES, 0.0
    for i, shape in enumerate(chosen):
        report(f"calibration: {shape.name}", i / len(chosen))
        if shape.tokens * per_token < SLOW:
            found.append(_served(bench, shape, between if i < len(chosen) // PASSES else None))
            each = max(found[-1].seconds) / shape.tokens
            per_token = min(each, per_token or each)
    return found


def _served(bench: Bench, shape: Shape, between: Between | None = None) -> Samples:
    return bench.serve(shape.policy, shape.requests(), shape.limits, between=between)[1]


def _burst(limits: Limits, load: Workload, cost: CostModel) -> list[Request]:
    """The first requests of `load`, all at once: as many as are likely to be done in time."""
    count = BURST * limits.max_num_seqs
    while count > 1 and _burst_seconds(limits, load, cost, count) > LONGEST_BURST:
        count //= 2
    return at_once(load, count)


def _burst_seconds(limits: Limits, load: Workload, cost: CostModel, count: int) -> float:
    simulator = Simulator(Synchronous(Vllm()), cost, limits)
    simulator.run(at_once(load, count))
    return simulator.now


def at_once(load: Workload, count: int) -> list[Request]:
    """The first requests of `load`, all at 0; again from the first one, if it has fewer."""
    found = islice(cycle(zip(load.prompt.tolist(), load.output.tolist(), strict=True)), count)
    return [Request(i, 0.0, prompt, output) for i, (prompt, output) in enumerate(found)]
