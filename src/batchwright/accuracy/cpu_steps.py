"""Steps of vLLM 0.32 on two CPUs: fitted to one recording, predicted in another of the same workloads.

Recorded by us inside the engine: a tiny Llama with random weights, 26 workloads with other limits each.
The second recording was made after the first; the steps are not the same, as requests come by the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Final

import numpy as np

from batchwright.accuracy.study import Row, Study
from batchwright.calibration.errors import Errors, classes, errors
from batchwright.calibration.measured import Steps, read_steps
from batchwright.calibration.steps import StepFit, fit_steps
from batchwright.metrics import Numbers
from batchwright.step import Step

FITTED: Final = "vllm_cpu_steps.csv"
PREDICTED: Final = "vllm_cpu_steps_after.csv"
MEAN_BOUND: Final = 0.07
TOTAL_BOUND: Final = 0.01
PARTS: Final = 10  # of a recording


def study(data: Path) -> Study:
    """`data`: the folder that holds both recordings.  Raises InputError on one that cannot be read."""
    fit, after = fit_steps(read_steps([data / FITTED])), read_steps([data / PREDICTED])
    predicted = device_seconds(fit, after)
    found = errors(predicted, after.seconds)
    return Study(
        title="vLLM on a CPU: steps",
        source=f"{FITTED} and {PREDICTED}: vLLM 0.32, recorded for this project",
        calibration=(
            f"batchwright fit on the {len(fit.steps):,} steps of the first recording: "
            f"{len(fit.coefficients)} coefficients; held out, a step of it is {fit.held_out.mean:.1%} off "
            "on average"
        ),
        rows=(
            *_rows(found, predicted, after),
            *_with_host(fit, predicted, after),
            *_of_kinds(predicted, after),
        ),
        wrong=tuple(_wrong(found, predicted, after)),
    )


def device_seconds(fit: StepFit, steps: Steps) -> Numbers:
    """What the fitted model of the device gives for each step."""
    step, seconds = Step(), np.empty(len(steps))
    names = [name for name in steps.work if name != "tokens"]
    rows = zip(*(steps.work[name].tolist() for name in names), strict=True)
    for i, row in enumerate(rows):
        for name, value in zip(names, row, strict=True):
            setattr(step, name, value if name == "prefill_attention" else int(value))
        seconds[i] = fit.device.seconds(step)
    return seconds


def _rows(found: Errors, predicted: Numbers, after: Steps) -> Iterator[Row]:
    yield Row(
        what="all steps, model alone",
        unit="s",
        predicted=float(predicted.sum()),
        measured=float(after.seconds.sum()),
        bound=TOTAL_BOUND,
    )
    yield Row(
        what="a step and its mean absolute error, over the step",
        unit="times",
        predicted=1 + found.mean,
        measured=1.0,
        bound=MEAN_BOUND,
    )


def _with_host(fit: StepFit, predicted: Numbers, after: Steps) -> Iterator[Row]:
    """Schedule and update as well, which are fitted apart."""
    if fit.host is None or after.host is None:
        return
    base, each = fit.host
    running = after.work["num_decodes"] + after.work["num_chunks"]
    host = base + each * running
    for what, ours, theirs, bound in (
        ("all steps, schedule and update", host, after.host, inf),
        ("all steps, all of it", predicted + host, after.seconds + after.host, TOTAL_BOUND),
    ):
        total, measured = float(ours.sum()), float(theirs.sum())
        yield Row(what=what, unit="s", predicted=total, measured=measured, bound=bound)


def _of_kinds(predicted: Numbers, after: Steps) -> Iterator[Row]:
    for one in classes(after.work, predicted, after.seconds):
        measured = one.share * float(after.seconds.sum())
        yield Row(
            what=f"{one.steps:,} steps: {one.name}",
            unit="s",
            predicted=measured * (1 + one.errors.total),
            measured=measured,
        )


def _wrong(found: Errors, predicted: Numbers, after: Steps) -> Iterator[str]:
    same = repeats(after)
    parts = zip(np.array_split(predicted, PARTS), np.array_split(after.seconds, PARTS), strict=True)
    off = [float(ours.sum() / theirs.sum() - 1) for ours, theirs in parts]
    yield (
        f"A step is {found.mean:.1%} off on average, one in twenty more than {found.p95:.0%}.  No model can "
        f"know all of it: of {len(same):,} pairs of successive steps that compute the same, but for a token "
        f"of context each, the second takes {np.mean(same):.1%} more or less than the first on average."
    )
    yield (
        "The rest is mostly the pace of the machine, which changes while it is recorded: tenths of the "
        f"recording are from {min(off):+.1%} to {max(off):+.1%} off, and that averages out only over all."
    )


def repeats(steps: Steps) -> Numbers:
    """How far each step of decodes alone is from the one before, if that was of as many."""
    work, seconds = steps.work, steps.seconds
    is_decode = work["prefill_tokens"] == 0
    is_same = (work["num_decodes"][1:] == work["num_decodes"][:-1]) & is_decode[1:] & is_decode[:-1]
    apart: Numbers = np.abs(seconds[1:] / seconds[:-1] - 1)[is_same]
    return apart
