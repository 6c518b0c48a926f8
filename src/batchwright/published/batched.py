"""How many requests run at once under four ways to reserve memory: vLLM's figure 13.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
SOSP 2023, figure 13: OPT-13B, one A100-40GB, Poisson arrivals.  Max reserves 2048 tokens, Pow2 the
next power of two of the output, Oracle the output itself, all with a buddy allocator; vLLM takes
blocks as they are needed.

Our choices, the same for all four: prompts and outputs are geometric with the paper's means (one
parameter, no tail to tune), cut so that prompt and output are at most 2048; step times are measured
ones of that model and engine (see `opt13b`).  Pow2 and Oracle know the output: oracles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchwright.comparison import run
from batchwright.contract import Begins
from batchwright.policies import Vllm
from batchwright.published.opt13b import MAX_MODEL_LEN, Opt13b, limits
from batchwright.published.reserve import Reserving, power_of_two
from batchwright.theory.lengths import draw, geometric
from batchwright.workload import Workload
from batchwright.workload.columns import Ints


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Mean lengths (tokens), requests/s and the paper's mean batches, by way to reserve."""

    name: str
    prompt: float
    output: float
    rate: float
    published: dict[str, float]


SHAREGPT: Final = Dataset(
    name="ShareGPT",
    prompt=161.31,
    output=337.99,
    rate=2.0,
    published={"Orca (Max)": 7.00, "Orca (Pow2)": 9.81, "Orca (Oracle)": 13.62, "vLLM": 30.42},
)
ALPACA: Final = Dataset(
    name="Alpaca",
    prompt=19.31,
    output=58.45,
    rate=30.0,
    published={"Orca (Max)": 7.00, "Orca (Pow2)": 43.24, "Orca (Oracle)": 72.75, "vLLM": 132.44},
)


@dataclass(frozen=True, kw_only=True)
class BatchedRow:
    """Requests that run, averaged over the time in which the server is busy.

    `published_step`, `simulated_step`: times the row before, the ratio between neighbours.
    """

    dataset: str
    reserve: str
    published: float
    simulated: float
    published_step: float
    simulated_step: float


def batched_requests(
    dataset: Dataset, seconds: float = 600.0, seed: int = 0, buddy: bool = True
) -> list[BatchedRow]:
    """The four bars of `dataset`, in the paper's order, for arrivals of so many seconds."""
    found: list[BatchedRow] = []
    for name, (policy, load) in _ways(dataset, seconds, seed, buddy).items():
        simulated = run(name, policy, load, Opt13b(), limits()).summary.mean_batch
        published = dataset.published[name]
        before = found[-1] if found else None
        found.append(
            BatchedRow(
                dataset=dataset.name,
                reserve=name,
                published=published,
                simulated=simulated,
                published_step=published / before.published if before else 1.0,
                simulated_step=simulated / before.simulated if before else 1.0,
            )
        )
    return found


def _ways(dataset: Dataset, seconds: float, seed: int, buddy: bool) -> dict[str, tuple[Begins, Workload]]:
    """Policy and requests of each bar: the requests differ in their `max_tokens` alone."""
    random = np.random.Generator(np.random.PCG64(seed))
    count = max(1, round(dataset.rate * seconds))
    arrival = np.cumsum(random.exponential(1 / dataset.rate, count))
    prompt = np.minimum(draw(geometric(dataset.prompt), count, random), MAX_MODEL_LEN - 1)
    output = np.minimum(draw(geometric(dataset.output), count, random), MAX_MODEL_LEN - prompt)
    pow2 = np.minimum([power_of_two(tokens) for tokens in output.tolist()], MAX_MODEL_LEN - prompt)

    def load(max_tokens: Ints) -> Workload:
        return Workload.from_columns(arrival, prompt, output, max_tokens=max_tokens, name=dataset.name)

    return {
        "Orca (Max)": (Reserving(whole=True, buddy=buddy), load(MAX_MODEL_LEN - prompt)),
        "Orca (Pow2)": (Reserving(buddy=buddy), load(pow2)),
        "Orca (Oracle)": (Reserving(buddy=buddy), load(output)),
        "vLLM": (Vllm(async_scheduling=False), load(MAX_MODEL_LEN - prompt)),
    }
