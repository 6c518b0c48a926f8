"""Static batches of Llama-3-8B on A100 and H100: fitted at batch 1, 16 and 64, predicted at 32.

Measured by Argonne's LLM-Inference-Bench with vLLM: all requests of a batch start together, with prompts
and outputs of the same length, and the latency is that of the whole batch.  So one number is known of
each run, a sum over its steps, and each coefficient's part of it is the sum of its column:

    latency = base * steps + per token * all tokens + per KV token * all KV tokens that decodes read

Every run has as many prompt tokens as output tokens, so that what prefill takes cannot be told from what
decode takes, and has no coefficient of its own.  The A100 of Argonne's Polaris have 40 GB.

Source: argonne-lcf/LLM-Inference-Bench, All_results.csv (BSD-3-Clause).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from math import inf
from pathlib import Path
from typing import Final

import numpy as np

from batchwright.accuracy.published_files import as_published, csv_rows
from batchwright.accuracy.study import Row, Study
from batchwright.calibration.solve import check_extra, robust_fit
from batchwright.calibration.terms import Terms
from batchwright.comparison import run
from batchwright.cost import Constant, CostModel
from batchwright.figures import listed
from batchwright.limits import Limits
from batchwright.metrics import Numbers
from batchwright.policies import Static
from batchwright.profile.beyond import with_tokens
from batchwright.run import Run
from batchwright.workload import Workload

FILE: Final = Path("argonne") / "All_results.csv.gz"
GPUS: Final = {"Nvidia A100 GPU": ("A100", 40e9), "Nvidia H100 GPU": ("H100", 80e9)}  # bytes
WEIGHTS: Final = 16.06e9  # bytes of Llama-3-8B in 16 bits,
KV: Final = 131_072  # and of one token's KV
FITTED: Final = (1, 16, 64)
PREDICTED: Final = 32
BOUND: Final = 0.06
LIMITS: Final = Limits(max_num_seqs=64, max_num_batched_tokens=1 << 20)  # all prompts in one step
TERMS: Final = Terms((0.0, float(max(FITTED))), ("context",))


@dataclass(frozen=True)
class Batch:
    """One run: `length` tokens of prompt and of output for each of `size` requests."""

    gpu: str
    num_gpus: int
    length: int
    size: int
    seconds: float

    @property
    def fits(self) -> bool:
        """Can the KV of all requests lie beside the weights?  If not, they did not run as one batch."""
        return WEIGHTS + 2 * self.length * self.size * KV < self.num_gpus * GPUS[self.gpu][1]


def study(data: Path) -> Study:
    """`data`: the folder that holds `argonne`.  Raises InputError on a file that cannot be read."""
    check_extra()
    batches = list(_read(data / FILE))
    servers = sorted({(batch.gpu, batch.num_gpus) for batch in batches})
    rows: list[Row] = []
    residuals = []
    for gpu, num_gpus in servers:
        own = [batch for batch in batches if (batch.gpu, batch.num_gpus) == (gpu, num_gpus)]
        fitted = [batch for batch in own if batch.size in FITTED and batch.fits]
        cost = TERMS.cost(_coefficients(fitted))
        rows += [_row(batch, cost, BOUND) for batch in own if batch.size == PREDICTED]
        residuals += [_row(batch, cost).error for batch in fitted]
    left_out = [batch for batch in batches if batch.size in FITTED and not batch.fits]
    return Study(
        title="Argonne: static batches of Llama-3-8B under vLLM",
        source="argonne-lcf/LLM-Inference-Bench, All_results.csv: vLLM, Meta-Llama-3-8B (BSD-3-Clause)",
        calibration=f"three coefficients per GPU and count, fitted at batch {listed([*map(str, FITTED)])}",
        rows=tuple(rows),
        wrong=(_of_fit(residuals), *_of_left_out(left_out), _PREFILL),
    )


def _read(file: Path) -> Iterator[Batch]:
    """The rows of vLLM and Llama-3-8B."""
    with as_published(file):
        yield from (_batch(row) for row in csv_rows(file) if _is_ours(row))


def _is_ours(row: dict[str, str]) -> bool:
    return row["Framework"] == "vLLM" and row["Model"].endswith("3-8B") and row["Hardware"] in GPUS


def _batch(row: dict[str, str]) -> Batch:
    return Batch(
        gpu=row["Hardware"],
        num_gpus=int(row["Num of Hardware"]),
        length=int(row["Input Output Length"]),
        size=int(row["Batch Size"]),
        seconds=float(row["Latency"]),
    )


def _coefficients(batches: Iterable[Batch]) -> Numbers:
    """Fitted to whole runs: each column is summed over the steps of a run."""
    given = list(batches)
    columns = np.array([_summed(batch.size, batch.length) for batch in given])
    return robust_fit(columns, np.array([batch.seconds for batch in given]))


@cache
def _summed(size: int, length: int) -> tuple[float, ...]:
    steps = with_tokens(_run(size, length, Constant(1.0)).steps())
    return tuple(TERMS.columns(steps).sum(axis=0).tolist())


def _run(size: int, length: int, cost: CostModel) -> Run:
    """One static batch, all of which comes at once."""
    load = Workload.from_columns([0.0] * size, [length] * size, [length] * size)
    return run("static", Static(size), load, cost, LIMITS)


def _row(batch: Batch, cost: CostModel, bound: float = inf) -> Row:
    simulated = _run(batch.size, batch.length, cost)
    cards = f"{batch.num_gpus} x {GPUS[batch.gpu][0]}"
    return Row(
        what=f"{cards}, {batch.size} x ({batch.length:,} + {batch.length:,}) tokens",
        unit="s",
        predicted=float(simulated.requests()["finished_s"].max()),
        measured=batch.seconds,
        bound=bound,
    )


def _of_fit(residuals: list[float]) -> str:
    off = np.abs(residuals)
    return (
        f"On the {len(off)} runs that it was fitted to, the mean error is {off.mean():.1%} and the greatest "
        f"{off.max():.1%}: the line along batch sizes is not straight."
    )


def _of_left_out(batches: list[Batch]) -> Iterator[str]:
    """They are told with what they took."""
    for batch in batches:
        name, memory = GPUS[batch.gpu][0], batch.num_gpus * GPUS[batch.gpu][1]
        tokens = 2 * batch.length * batch.size
        yield (
            f"Left out of the fit: {batch.size} requests of {2 * batch.length:,} tokens on "
            f"{batch.num_gpus} x {name}.  Their {tokens:,} tokens of KV take {tokens * KV / 1e9:.0f} GB "
            f"beside {WEIGHTS / 1e9:.0f} GB of weights, more than {memory / 1e9:.0f} GB hold, "
            f"so they did not run as one batch: they took {batch.seconds:.0f} s."
        )


_PREFILL: Final = (
    "What prefill takes is not known apart: lengths of prompt and output are the same in every run, so a "
    "prediction for other shapes would be a guess."
)
