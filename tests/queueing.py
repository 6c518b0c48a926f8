"""What the theory tests share: run a load, and hold a formula against replications.

A formula passes if it lies inside the 99 % interval of the simulated means, and the formula times
1.03 or 0.97 outside.  What drives the
result and has a known mean (gaps, service times) may narrow the interval as a control variate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from batchwright.limits import Limits
from batchwright.request import Request
from batchwright.simulator import Simulator

REPLICATIONS = 20
STUDENT = {198: 2.6009, 19: 2.8609, 18: 2.8784, 17: 2.8982, 16: 2.9208}  # 99.5 % by degrees of freedom
CATCHES = 0.03  # an error of a formula that a test must notice


@dataclass(frozen=True)
class Served:
    """Columns of the requests of one run, in seconds and tokens."""

    arrival: Any
    output: Any
    first_token: Any
    finished: Any
    simulator: Simulator

    def after(self, warm: int) -> Served:
        """Without the first `warm` requests."""
        columns = (self.arrival, self.output, self.first_token, self.finished)
        return Served(*(column[warm:] for column in columns), self.simulator)


def serve(policy: Any, cost: Any, arrival: Any, output: Any, prompt: Any = 1, **limits: Any) -> Served:
    """Run the requests with such arrivals (seconds) and lengths, of which one number stands for all."""
    count = len(arrival)
    outputs = np.broadcast_to(output, count)
    prompts = np.broadcast_to(prompt, count)
    rows = zip(arrival.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
    requests = [Request(i, at, s, o) for i, (at, s, o) in enumerate(rows)]
    allowed = {"max_num_batched_tokens": 1 << 20, "enable_prefix_caching": False, **limits}
    simulator = Simulator(policy, cost, Limits(**allowed))
    simulator.run(requests)
    first = np.array([r.first_token for r in requests])
    finished = np.array([r.finished for r in requests])
    return Served(arrival, outputs, first, finished, simulator)


def poisson(random: Any, rate: float, count: int) -> Any:
    """Arrival times."""
    return np.cumsum(random.exponential(1 / rate, count))


def replicate(run: Callable[[Any], Any], count: int = REPLICATIONS, seed: int = 0) -> Any:
    """The result of `run` with each of `count` independent generators: one row each."""
    seeds = np.random.SeedSequence(seed).spawn(count)
    return np.array([run(np.random.Generator(np.random.PCG64(child))) for child in seeds])


def interval(values: Any, controls: Sequence[Any] = ()) -> tuple[float, float]:
    """Mean and half-width of the 99 % interval; `controls`: columns whose true mean is 0."""
    design = np.column_stack([np.ones(len(values)), *controls])
    found, *_ = np.linalg.lstsq(design, values, rcond=None)
    free = len(values) - design.shape[1]
    variance = ((values - design @ found) ** 2).sum() / free
    error = (variance * np.linalg.inv(design.T @ design)[0, 0]) ** 0.5
    return float(found[0]), STUDENT[free] * float(error)


def assert_agrees(
    expected: float,
    values: Any,
    controls: Sequence[Any] = (),
    within: float = CATCHES,
    error: float = 0.0,
) -> None:
    """`expected` lies inside the interval of `values`, and 1 +- `within` times it outside.

    `error`: that of a formula which is an approximation, as a share; it widens the interval.
    """
    mean, half = interval(values, controls)
    half += error * abs(expected)
    found = f"{expected:.6g} against {mean:.6g} +- {half:.3g}"
    assert mean - half <= expected <= mean + half, f"outside: {found}"
    assert expected * (1 - within) < mean - half, f"an error of -{within:.0%} would not be caught: {found}"
    assert mean + half < expected * (1 + within), f"an error of +{within:.0%} would not be caught: {found}"
