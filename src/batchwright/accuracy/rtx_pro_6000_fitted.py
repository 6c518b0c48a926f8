"""The same run with one constant, which every step takes beside its layers, fitted on its first half.

The constant is the one with which the mean TPOT of requests 1 to 150 is the measured one.  The whole run is
simulated for it, as all requests share steps, but no measured time of requests 151 to 300 is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from batchwright.accuracy.rtx_pro_6000 import CARD
from batchwright.accuracy.serving import METRICS, SOURCE, GpuRun, mean_row
from batchwright.accuracy.study import Study
from batchwright.errors import InputError

HALF: Final = 150
FITTED, PREDICTED = slice(0, HALF), slice(HALF, None)
BOUNDS: Final = {"TTFT": 0.02, "TPOT": 0.01, "E2E": 0.015}
GREATEST: Final = 0.01  # seconds of the constant
CLOSE: Final = 1e-6


def study(data: Path) -> Study:
    """`data`: the folder of all measurements."""
    run = GpuRun(data, CARD)
    step = fitted_step(run)
    predicted, _ = run.predict(step)
    return Study(
        title="vLLM 0.19, Llama-3.1-8B on RTX PRO 6000, requests 151 to 300",
        source=SOURCE,
        calibration=f"{step * 1e3:.3f} ms a step, fitted on the mean TPOT of requests 1 to {HALF}",
        rows=tuple(mean_row(run, predicted, metric, BOUNDS[metric], PREDICTED) for metric in METRICS),
        wrong=(
            "the constant stands for what steps with prompt tokens take longer, so it is too great where few "
            "prompts come: TPOT of the second half is too high, TTFT of the first half too low",
        ),
    )


def fitted_step(run: GpuRun) -> float:
    """Seconds that every step takes beside its layers.  Raises InputError if there is no such constant."""
    low, high = 0.0, GREATEST
    if not _excess(run, low) < 0.0 < _excess(run, high):
        raise InputError(f"{run.folder}: no constant of 0 to {GREATEST} s a step gives the measured TPOT")
    while high - low > CLOSE:
        middle = (low + high) / 2
        low, high = (middle, high) if _excess(run, middle) < 0.0 else (low, middle)
    return (low + high) / 2


def _excess(run: GpuRun, step: float) -> float:
    """How much higher the predicted mean TPOT of the first half is, in seconds."""
    predicted, _ = run.predict(step)
    return float(predicted["TPOT"][FITTED].mean() - run.measured["TPOT"][FITTED].mean())
