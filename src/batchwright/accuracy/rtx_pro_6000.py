"""Llama-3.1-8B on an RTX PRO 6000 that queues at its seats, from its layer times, with nothing fitted."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Final

from batchwright.accuracy.serving import METRICS, SOURCE, GpuRun, mean_row, percentile_row
from batchwright.accuracy.study import Study

CARD: Final = "RTXPRO6000"
MEANS: Final = {"TTFT": 0.04, "TPOT": 0.01, "E2E": inf}
WRONG: Final = (
    "TPOT is 4 % too short for the first 50 requests and 3 % for the last 50, while few run, within 0.6 % "
    "between: a step takes about 0.5 ms longer than its layers, one with prompt tokens 5 to 10 ms at first "
    "and 4 ms later; host time and gaps that no table holds, or a clock that falls under load",
    "of steps with prompt tokens the alpha of unequal contexts is the profile's pooled one: its classes hold "
    "2 to 6 samples each, and reach from -3.8 to 3.2",
    "of 118 requests that did not queue, mean TTFT is predicted 14 % too long: half a step from arrival to "
    "where the measured one begins; counted from there it is 7 % too short",
)


def study(data: Path) -> Study:
    """`data`: the folder of all measurements."""
    run = GpuRun(data, CARD)
    predicted, _ = run.predict()
    rows = [mean_row(run, predicted, metric, MEANS[metric]) for metric in METRICS]
    rows += [
        percentile_row(run, predicted, metric, percent, inf) for metric in METRICS for percent in (50, 90, 99)
    ]
    return Study(
        title="vLLM 0.19, Llama-3.1-8B on RTX PRO 6000",
        source=SOURCE,
        calibration="nothing fitted: layer times measured inside vLLM, skew by the alpha of the profile",
        rows=tuple(rows),
        wrong=WRONG,
    )
