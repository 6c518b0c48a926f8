"""Decode of Llama-2-70B on eight A100 or H100, fitted in batch and context: a fit, not a prediction.

Measured by the authors of Splitwise (ISCA 2024) for their simulator: static batches of 1 to 64 requests,
with the mean seconds of a token.  Context of a row: its prompt and half of its output.

Source: SplitwiseSim, perf_model.csv (MIT).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from batchwright.accuracy.published_files import as_published, csv_rows
from batchwright.accuracy.study import Row, Study
from batchwright.calibration.errors import errors
from batchwright.calibration.measured import Steps
from batchwright.calibration.steps import StepFit, fit_steps
from batchwright.errors import InputError
from batchwright.metrics import Numbers

FILE: Final = Path("splitwise_sim") / "perf_model.csv"
MODEL, TP = "llama2-70b", "8"
GPUS: Final = {"a100-80gb": "A100", "h100-80gb": "H100"}
COLUMNS: Final = ("batch_size", "prompt_size", "token_size", "token_time", "e2e_time")
CAPPED: Final = "h100-80gb-pcap"  # H100 with a cap on power
BOUND: Final = 0.06


@dataclass(frozen=True)
class Group:
    """All rows of one GPU: batch, prompt and output tokens, seconds of a token, and of the whole run."""

    batch: Numbers
    prompt: Numbers
    output: Numbers
    token: Numbers
    whole: Numbers

    @property
    def steps(self) -> Steps:
        """A step of each row: the one in the middle of its output."""
        zeros = np.zeros(len(self.batch))
        context = self.batch * (self.prompt + self.output / 2)
        rows = {"num_decodes": self.batch, "tokens": self.batch, "context_tokens": context}
        return Steps(work={"prefill_tokens": zeros, **rows}, seconds=self.token)


def study(data: Path) -> Study:
    """`data`: the folder that holds `splitwise_sim`.  Raises InputError on a file that cannot be read."""
    groups = {gpu: _group(data / FILE, gpu) for gpu in (*GPUS, CAPPED)}
    fits = {gpu: fit_steps(groups[gpu].steps) for gpu in GPUS}
    return Study(
        title="Splitwise: decode of Llama-2-70B on eight GPUs",
        source="SplitwiseSim, perf_model.csv, rows of llama2-70b at tensor parallel 8 (MIT)",
        calibration="batchwright fit on all rows of each GPU, which are those shown: a fit, no prediction",
        rows=tuple(row for gpu, fit in fits.items() for row in _rows(GPUS[gpu], groups[gpu], fit)),
        wrong=tuple(_wrong(groups, fits)),
    )


def _rows(name: str, group: Group, fit: StepFit) -> Iterator[Row]:
    predicted = fitted_seconds(fit, group)
    yield Row(
        what=f"8 x {name}: a token and its P95 residual, over the token",
        unit="times",
        predicted=1 + errors(predicted, group.token).p95,
        measured=1.0,
        bound=BOUND,
    )
    for batch in np.unique(group.batch):
        is_one = group.batch == batch
        yield Row(
            what=f"8 x {name}: {is_one.sum()} rows of batch {batch:.0f}, mean",
            unit="ms",
            predicted=1e3 * float(predicted[is_one].mean()),
            measured=1e3 * float(group.token[is_one].mean()),
        )


def fitted_seconds(fit: StepFit, group: Group) -> Numbers:
    """Of a step of each row."""
    cost, work = fit.device, group.steps.work
    line = np.array([cost.line.at(tokens) for tokens in work["tokens"].tolist()])
    seconds: Numbers = line + cost.decode * work["num_decodes"] + cost.context * work["context_tokens"]
    return seconds


def _wrong(groups: dict[str, Group], fits: dict[str, StepFit]) -> Iterator[str]:
    for gpu, fit in fits.items():
        off = fit.held_out
        yield (
            f"8 x {GPUS[gpu]}: left out in blocks of the file and predicted by the rest, a row is "
            f"{off.mean:.1%} off on average and {off.p95:.1%} in one of twenty."
        )
    for gpu, group in groups.items():
        if gpu in GPUS:
            yield _early(GPUS[gpu], group)
    same = np.array_equal(groups["h100-80gb"].token, groups[CAPPED].token)
    if same:
        yield f"The times of {CAPPED} are those of h100-80gb, number for number: no cap of power is in them."


def _early(name: str, group: Group) -> str:
    """Runs whose whole time cannot hold all tokens that they are said to have made."""
    least = 0.9 * group.token * group.output
    is_short = group.whole < least
    return (
        f"8 x {name}: {int(is_short.sum())} of {len(group.batch)} runs were over before their output could "
        "have been made at the time per token that is given: they ended early, over less context."
    )


def _group(file: Path, gpu: str) -> Group:
    with as_published(file):
        rows = [
            [float(row[name]) for name in COLUMNS]
            for row in csv_rows(file)
            if (row["model"], row["hardware"], row["tensor_parallel"]) == (MODEL, gpu, TP)
        ]
    if not rows:
        raise InputError(f"{file}: has no row of {MODEL} on {gpu}; give the file as it was published")
    batch, prompt, output, token, whole = np.array(rows).T
    return Group(batch, prompt, output, token / 1e3, whole / 1e3)
