"""Serve a load under the text of a policy, and read what edge cases ask of the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from batchwright.cluster import server
from batchwright.comparison import run
from batchwright.cost import CostModel
from batchwright.errors import InputError
from batchwright.interval import Interval, t_interval
from batchwright.limits import Limits
from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.workload import Workload

MOST_REPEATS = 100
MOST_REQUESTS = 200_000
Report = Callable[[float], None]  # share that is done


def serve(policy: str, load: Workload, cost: CostModel, limits: Limits) -> Run:
    """The run of a policy, or cluster, by its text."""
    return run(policy, server(policy), load, cost, limits)


def at_once(load: Workload) -> Workload:
    """The same requests, all there at the start: what a server can do at most."""
    return Workload.from_columns(
        np.zeros(len(load)),
        load.prompt,
        load.output,
        max_tokens=load.max_tokens,
        priority=load.priority,
        name=load.name,
    )


def requests_per_second(found: Run, first: float = 0.0, last: float = 1.0) -> float:
    """Requests that end between two shares of all ends, per second; 0 to 1: of the whole run."""
    ends = np.sort(found.requests()["finished_s"])
    ends = ends[~np.isnan(ends)]
    low, high = int(first * len(ends)), int(last * len(ends)) - 1
    return (high - low) / float(ends[high] - ends[low]) if first else (high + 1) / float(ends[high])


def percentile(values: Numbers, share: float) -> float:
    """Of those that are defined; nan if there is none."""
    defined = values[~np.isnan(values)]
    return float(np.percentile(defined, 100 * share)) if len(defined) else float("nan")


@dataclass
class Progress:
    """Counts the parts of a study that are done."""

    report: Report | None
    parts: int
    done: int = 0

    def step(self) -> None:
        self.done += 1
        if self.report is not None:
            self.report(self.done / self.parts)


def estimates(loads: list[dict[str, float]]) -> dict[str, Interval]:
    """The mean of every number over the loads, with its 95 % interval where there are several."""
    return {name: t_interval([values[name] for values in loads]) for name in loads[0]}


def check(requests: int, repeat: int, seed: int, least: int) -> None:
    """Raises InputError unless so many requests and loads can be run."""
    for name, value, low, most in (
        ("requests", requests, least, MOST_REQUESTS),
        ("repeat", repeat, 1, MOST_REPEATS),
        ("seed", seed, 0, 1 << 32),
    ):
        if type(value) is not int or not low <= value <= most:
            raise InputError(f"{name} is {value!r}; give a whole number of {low} to {most}")
