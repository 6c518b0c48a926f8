"""Static, dynamic and continuous batching inside vLLM, predicted and measured.

    python -m tests_vllm.scenario

The article's scenario scaled down: 100 requests, prompts of 64 to 512 tokens, outputs of 16 to 128,
at most 32 at once; all there at the start, or coming at random.  The step model is fitted on vLLM's
step log of another run, under vLLM's own scheduler: once before the run that it predicts and once
after.  Where the second took over 3 % more or less than the first, the machine drifted, and the run
is repeated.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import numpy as np

from batchwright.cost import Constant, CostModel, Linear
from batchwright.engines.vllm.versions import vllm_version
from batchwright.history import EngineStep, steps
from batchwright.limits import Limits
from batchwright.policies import Vllm
from batchwright.policies.admission import CappedVllm, DynamicAdmission, StaticAdmission
from batchwright.request import Request
from batchwright.simulator import Simulator

COUNT: Final = 100
LOAD: Final = 0.6  # arrivals per second, over what continuous batching finishes of a burst
LIMITS: Final = Limits(
    max_num_seqs=32, max_num_batched_tokens=2048, max_model_len=1024, block_size=32, num_kv_blocks=800,
    enable_prefix_caching=False,
)  # fmt: skip
SYNCHRONOUS: Final = Vllm(async_scheduling=False)  # as vLLM is on a CPU
MOST_DRIFT: Final = 0.03
TRIES: Final = 3
METRICS: Final = ("output tokens/s", "mean latency s", "P99 latency s", "mean TTFT s", "steps")

Row = dict[str, Any]


@dataclass
class Family:
    """One way to batch: in vLLM, and in the simulation."""

    name: str
    scheduler: str
    options: Row
    policy: Any
    process: Any = field(default=None, repr=False)

    def start(self) -> None:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests_vllm.engine_run",
            self.scheduler,
            json.dumps(self.options),
        ]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, load: list[Row], unit: str = "seconds") -> Row:
        """What vLLM did with `load`, whose requests come in `unit`."""
        print(json.dumps({unit: load}), file=self.process.stdin, flush=True)
        while not (line := self.process.stdout.readline()).startswith("{"):
            if not line:
                raise SystemExit(f"vLLM under {self.name} has ended; see its messages above")
        found: Row = json.loads(line)
        return found

    def simulate(self, load: list[Row], cost: CostModel) -> tuple[list[Request], list[EngineStep]]:
        requests = [Request(i, row["arrival"], row["prompt"], row["output"]) for i, row in enumerate(load)]
        simulator = Simulator(self.policy, cost, LIMITS)
        simulator.run(requests)
        return requests, steps(simulator.log, LIMITS.blocks, LIMITS.block_size)


CONTINUOUS: Final = Family("continuous", "default", {}, SYNCHRONOUS)
FAMILIES: Final = (
    Family("static", "batchwright.engines.vllm.Static", {"batch_size": 32, "idle": 1.0},
           CappedVllm(StaticAdmission(32, idle=1.0), SYNCHRONOUS)),
    Family("dynamic", "batchwright.engines.vllm.Dynamic", {"max_batch_size": 32, "window": 0.25},
           CappedVllm(DynamicAdmission(32, window=0.25), SYNCHRONOUS)),
    CONTINUOUS,
)  # fmt: skip


def loaded(seed: int, count: int, rate: float | None = None) -> list[Row]:
    """Requests at once, or at `rate` a second."""
    random, arrival, load = Random(seed), 0.0, []
    for _ in range(count):
        load.append(
            {"arrival": arrival, "prompt": random.randint(64, 512), "output": random.randint(16, 128)}
        )
        arrival += 0.0 if rate is None else random.expovariate(rate)
    return load


def features(requests: list[Request], shapes: list[EngineStep]) -> Any:
    """A row per step: 1, prompt tokens, decodes, KV tokens read, pairs of prompt attention."""
    computed = [0] * len(requests)
    rows = []
    for step in shapes:
        past = pairs = 0.0
        for id, tokens in step.scheduled:
            if computed[id] < requests[id].prompt:
                past += computed[id]
                pairs += tokens * (computed[id] + 0.5 * tokens)
            computed[id] += tokens
        rows.append((1.0, step.prefill_tokens, step.num_decodes, step.context_tokens + past, pairs))
    return np.array(rows)


def fitted(rows: Any, seconds: Any) -> Linear:
    """Least squares of the relative error; a coefficient that would be negative is 0."""
    kept = list(range(rows.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(rows[:, kept] / seconds[:, None], np.ones(len(seconds)), rcond=None)
        if found.min() >= 0:
            break
        del kept[int(found.argmin())]
    values = dict.fromkeys(range(rows.shape[1]), 0.0) | dict(zip(kept, map(float, found), strict=True))
    return Linear(*(values[i] for i in range(rows.shape[1])))


def calibrated() -> tuple[Any, Any]:
    """Features and seconds of the steps of a run whose steps do not depend on its times."""
    load = loaded(1, 72)
    for i, row in enumerate(load):
        row["arrival"] = 0 if i < 40 else 8 * i  # steps: a burst, then one by one
    requests, shapes = CONTINUOUS.simulate(load, Constant(1.0))
    logged = CONTINUOUS.measure(load, "steps")["steps"]
    columns = ("prefill_tokens", "num_decodes", "running", "waiting")
    ours = [tuple(getattr(step, name) for name in columns) for step in shapes]
    if ours != [tuple(int(row[name]) for name in columns) for row in logged]:
        raise SystemExit("the steps in vLLM's log are not the simulated ones")
    return features(requests, shapes), np.array([row["end_s"] - row["start_s"] for row in logged])


def numbers(load: list[Row], first: Any, end: Any, num_steps: int) -> list[float]:
    """The `METRICS` of a run."""
    arrival = np.array([row["arrival"] for row in load])
    latency, ttft = np.array(end) - arrival, np.array(first) - arrival
    tokens = sum(row["output"] for row in load)
    return [tokens / max(end), latency.mean(), float(np.percentile(latency, 99)), ttft.mean(), num_steps]


@dataclass(frozen=True)
class Cell:
    """One family under one load."""

    predicted: list[float]
    measured: list[float]
    drift: float
    model: Linear

    @property
    def errors(self) -> list[float]:
        return [p / m - 1 for p, m in zip(self.predicted, self.measured, strict=True)]

    def __str__(self) -> str:
        rows = zip(self.predicted, self.measured, self.errors, strict=True)
        return (
            "".join(f"{f'{p:.4g} | {m:.4g} ({error:+.1%})':>28}" for p, m, error in rows)
            + f"{self.drift:>+9.1%}"
        )


def cell(family: Family, load: list[Row]) -> Cell:
    """The try in which the machine drifted least."""
    tries: list[Cell] = []
    while not tries or (len(tries) < TRIES and abs(tries[-1].drift) > MOST_DRIFT):
        tries.append(one_try(family, load))
    return min(tries, key=lambda found: abs(found.drift))


def one_try(family: Family, load: list[Row]) -> Cell:
    before, run, after = calibrated(), family.measure(load), calibrated()
    model = fitted(*(np.concatenate(pair) for pair in zip(before, after, strict=True)))
    requests, shapes = family.simulate(load, model)
    predicted = numbers(load, [r.first_token for r in requests], [r.finished for r in requests], len(shapes))
    seen = run["requests"]
    measured = numbers(
        load, [r["first_token"] for r in seen], [r["finished"] for r in seen], len(run["steps"])
    )
    return Cell(predicted, measured, after[1].sum() / before[1].sum() - 1, model)


def main() -> None:
    for family in FAMILIES:
        family.start()
    for family in FAMILIES:
        family.measure(loaded(0, 8))  # to warm up
    burst = loaded(2, COUNT)
    requests, _ = CONTINUOUS.simulate(burst, fitted(*calibrated()))
    rate = LOAD * COUNT / max(r.finished for r in requests)
    loads = {"all at once": burst, f"{rate:.1f} requests/s": loaded(3, COUNT, rate)}
    print(f"vLLM {vllm_version()}, {COUNT} requests; predicted | measured (error)")
    print(f"{'':27}" + "".join(f"{name:>28}" for name in METRICS) + f"{'drift':>9}", flush=True)
    cells = []
    for title, load in loads.items():
        for family in FAMILIES:
            cells.append(cell(family, load))
            print(f"{title:16} {family.name:10}{cells[-1]}", flush=True)
    means = np.mean(np.abs([found.errors for found in cells]), axis=0)
    print(f"{'mean error':27}" + "".join(f"{error:>28.1%}" for error in means))
    print("a step:", cells[-1].model)
    busy = os.getloadavg()[0]
    print(
        f"load average {busy:.1f} on {os.cpu_count()} CPUs; if it is over 1, others took part of the caches"
    )
    for family in FAMILIES:
        family.process.stdin.close()
        family.process.wait()


if __name__ == "__main__":
    main()
