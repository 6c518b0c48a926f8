"""TPOT of Llama-3-8B on single GPUs by the roofline, uncalibrated: suite A of AccelMark.

One request after the other, and 300 that come at random, 5 a second; each under the scheduler of the
engine version that ran it.  The lengths are those that the suite states: quantiles of prompts and outputs,
at most 512 output tokens.  They are scaled to the means that its offline runs count, 256 and 349 tokens.

vLLM 0.7 is V0, whose host works while the GPU waits.  Its time per step comes from none of these runs.
What Llama-3-8B on one GPU takes beyond the roofline in Argonne's LLM-Inference-Bench, 32 rows with lengths
of 128 to 1024 and batches of 1 to 64, is by least squares

    0.93 ms and 0.085 ms per running request    on an A100
    1.27 ms and 0.056 ms                        on an H100
    1.10 ms and 0.070 ms                        on both together, which stands for all other GPUs

Hosts of later versions are those of `Hosted`.

Source: AccelMark (Apache-2.0), interactive_bs1.csv, online_poisson_qps.csv, suite_A.json, offline.csv;
LLM-Inference-Bench (BSD-3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Final

import numpy as np

from batchwright.accuracy.published_files import as_published, csv_rows
from batchwright.accuracy.study import Row, Study
from batchwright.comparison import compare
from batchwright.cost import Hosted, Roofline
from batchwright.errors import InputError
from batchwright.hardware import find_gpu
from batchwright.limits import Limits
from batchwright.workload import Workload

MODEL: Final = "llama-3-8b"
MODEL_LEN: Final = 4096
SEATS: Final = 256
RATE: Final = 5.0  # requests/s
ONLINE: Final = 300  # requests that come at random
ALONE: Final = 150  # and one after the other
APART: Final = 100.0  # seconds between requests that never meet
SEEDS: Final = 5
BOUND: Final = 0.25
V0_HOST: Final = (1.10e-3, 7.0e-5)  # seconds a step, and per running request
V0_HOSTS: Final = {"A100": (0.93e-3, 8.5e-5), "H100": (1.27e-3, 5.6e-5)}  # of the machines that were measured
PROMPT: Final = ((0.0, 50), (0.25, 120), (0.5, 280), (0.75, 580), (0.99, 2100), (1.0, 2100))
OUTPUT_MEDIAN: Final = 310
OUTPUT_P99: Final = 1200
OUTPUT_MOST: Final = 512
PROMPT_SCALE: Final = 0.54  # to the means that the offline runs count
OUTPUT_SCALE: Final = 1.13
# GPUs of the two scenarios, as drivers name them; the others are shown without a promise.
PROMISED_ALONE: Final = ("H100-SXM", "H200", "A100-80G-SXM", "A100-40G", "L4", "RTX-4090")
PROMISED_ONLINE: Final = ("H100-SXM", "A100-80G-SXM", "A100-40G")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What ran a row.  `policy`: its scheduler.  `counts`: whose count of KV blocks.  `is_v0`: host of V0."""

    policy: str
    counts: str
    is_v0: bool = False


ENGINES: Final = {
    ("vLLM", "0.7"): Engine(policy="vllm_v0", counts="vllm@0.7", is_v0=True),
    ("vLLM", "0.19"): Engine(policy="vllm@0.19", counts="vllm@0.19"),
    ("vLLM", "0.20"): Engine(policy="vllm@0.19", counts="vllm@0.20"),
    ("SGLang", "0.5"): Engine(policy="sglang@0.5", counts="vllm"),
}


def study(data: Path) -> Study:
    """`data`: the folder that holds `accelmark`.  Raises InputError on a file that cannot be read."""
    folder = data / "accelmark"
    rows = [*_alone(folder), *_online(folder)]
    return Study(
        title="AccelMark, suite A: TPOT of Llama-3-8B on one GPU",
        source="AccelMark, interactive_bs1.csv and online_poisson_qps.csv (Apache-2.0)",
        calibration="none: roofline of the data sheets with the MFU, MBU and fixed time that are built in; "
        "the host of vLLM 0.7 has about 1.1 ms a step and 0.07 ms a request, from Argonne's runs",
        rows=tuple(rows),
        wrong=_WRONG,
    )


_WRONG: Final = (
    "The A100 of 80 GB at 5 requests/s under vLLM 0.7 is at the edge: its machine is slower than the one of "
    "40 GB, with faster memory.  With one host for both GPUs instead of one for each it is outside 25 %, by "
    "1.1 points.",
    "The host of a machine decides as much as its GPU where steps are short: a step takes as long on the "
    "H200 as on the H100, though its memory is 1.43 times as fast, because its host is slower (a model of "
    "0.5 billion parameters takes it 5.2 ms a step, and the H100 2.2).  No data sheet says so.",
    "The texts themselves are not known, only quantiles of their lengths.",
    "At 5 requests/s a GPU that is nearly full multiplies every error: see the RTX 4090 and the L4, which "
    "queue.",
)


def _alone(folder: Path) -> Iterator[Row]:
    """Median TPOT of requests that come one after the other."""
    for row in _rows(folder / "interactive_bs1.csv"):
        load = requests(ALONE, np.arange(ALONE) * APART, seed=0)
        yield _compared(row, "batch 1", [load], PROMISED_ALONE)


def _online(folder: Path) -> Iterator[Row]:
    for row in _rows(folder / "online_poisson_qps.csv", RATE):
        yield _compared(row, f"{RATE:g} requests/s", list(_poisson()), PROMISED_ONLINE)


def _poisson() -> Iterator[Workload]:
    for seed in range(SEEDS):
        gaps = np.random.default_rng(seed).exponential(1 / RATE, ONLINE)
        yield requests(ONLINE, np.cumsum(gaps), seed)


def _compared(row: dict[str, str], scenario: str, loads: list[Workload], promised: tuple[str, ...]) -> Row:
    gpu = find_gpu(row["chip"])
    return Row(
        what=f"{gpu.name}, {row['framework']} {row['fw_version'].partition('+')[0]}, {scenario}",
        unit="ms",
        predicted=1e3 * fmean(tpot(gpu.name, _engine(row), load) for load in loads),
        measured=float(row["tpot_ms_p50"]),
        bound=BOUND if gpu.name in promised else inf,
    )


def tpot(gpu: str, engine: Engine, load: Workload) -> float:
    """Median TPOT of the requests, in seconds."""
    device = Roofline(gpu, MODEL)
    cost = Hosted(device, *(_v0_host(gpu) if engine.is_v0 else ()))
    limits = Limits(
        max_num_seqs=SEATS,
        max_num_batched_tokens=MODEL_LEN,
        max_model_len=MODEL_LEN,
        num_kv_blocks=device.num_kv_blocks(
            max_num_batched_tokens=MODEL_LEN, max_num_seqs=SEATS, engine=engine.counts
        ),
    )
    (run,) = compare(load, cost, limits, {"run": engine.policy}).runs.values()
    return float(np.nanmedian(run.requests()["tpot_s"]))


def _v0_host(gpu: str) -> tuple[float, float]:
    return V0_HOSTS.get(gpu.partition("-")[0], V0_HOST)


def requests(count: int, arrival: np.ndarray, seed: int) -> Workload:
    """So many requests with the lengths of the suite, in random order."""
    draws = np.random.default_rng(1000 + seed)
    places = (np.arange(count) + 0.5) / count
    prompts = [prompt_at(place) for place in draws.permutation(places)]
    outputs = [output_at(place) for place in draws.permutation(places)]
    return Workload.from_columns(arrival, prompts, outputs)


def prompt_at(place: float) -> int:
    """Prompt tokens at this quantile: straight in the logarithm between those that are published."""
    tokens = np.exp(np.interp(place, [at for at, _ in PROMPT], [np.log(most) for _, most in PROMPT]))
    return max(round(float(tokens) * PROMPT_SCALE), 1)


def output_at(place: float) -> int:
    """Output tokens at this quantile: lognormal by median and 99th percentile, cut at the limit."""
    spread = np.log(OUTPUT_P99 / OUTPUT_MEDIAN) / NormalDist().inv_cdf(0.99)
    tokens = OUTPUT_SCALE * OUTPUT_MEDIAN * np.exp(spread * NormalDist().inv_cdf(place))
    return min(max(round(float(tokens)), 2), OUTPUT_MOST)


def _rows(file: Path, rate: float | None = None) -> list[dict[str, str]]:
    """Those of suite A in bfloat16, one GPU and an engine that is known here; `rate`: of this one only."""
    with as_published(file):
        ours = [row for row in csv_rows(file) if _is_ours(row)]
        return [row for row in ours if rate is None or float(row["target_qps"]) == rate]


def _is_ours(row: dict[str, str]) -> bool:
    is_suite = row["suite"] == "suite_A" and row["precision"] == "BF16" and row["chips"] == "1"
    return is_suite and _key(row) in ENGINES and _is_known(row["chip"])


def _key(row: dict[str, str]) -> tuple[str, str]:
    return row["framework"], ".".join(row["fw_version"].split(".")[:2])


def _engine(row: dict[str, str]) -> Engine:
    return ENGINES[_key(row)]


def _is_known(chip: str) -> bool:
    try:
        find_gpu(chip)
    except InputError:
        return False
    return True
