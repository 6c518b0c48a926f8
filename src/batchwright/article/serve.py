"""Serve a load, and nothing but the seconds that it took."""

from __future__ import annotations

from typing import Final

import numpy as np

from batchwright.article.claims import BATCH, OUTPUT, STEP
from batchwright.article.formulas import loads
from batchwright.contract import Begins
from batchwright.cost import CostModel, Linear
from batchwright.interval import Interval, t_interval
from batchwright.limits import Limits
from batchwright.policies import Static, Vllm
from batchwright.settled import needed_model_len
from batchwright.simulator import Simulator
from batchwright.theory.gain import gain_at_once
from batchwright.theory.lengths import uniform
from batchwright.workload import Workload
from batchwright.workload.columns import Floats

STATIC: Final = Static(BATCH, padded=False)
CONTINUOUS: Final = Vllm(async_scheduling=False)


def serve(load: Workload, policy: Begins, cost: CostModel, limits: Limits | None = None) -> float:
    """Seconds in which `policy` serves `load`, to the last token; None: the limits of the article."""
    simulator = Simulator(policy, cost, limits or whole_prompts(load))
    simulator.run(load.requests())
    return simulator.now


def whole_prompts(load: Workload) -> Limits:
    """32 seats, and room for all their prompts in one step: prompts are never cut, as in the article."""
    longest = needed_model_len([load])
    return Limits(max_num_seqs=BATCH, max_num_batched_tokens=BATCH * longest, max_model_len=longest)


def over_seeds(values: Floats) -> Interval:
    """The mean of one value per seed."""
    return t_interval(values.tolist())


def simulated_gains(requests: int, seeds: int) -> Floats:
    """Continuous over static, prompts free, for each of `seeds` workloads of so many requests; shares."""
    step = Linear(STEP)
    return np.array(
        [serve(each, STATIC, step) / serve(each, CONTINUOUS, step) - 1 for each in loads(seeds, requests)]
    )


def closed_form_gain(requests: int) -> float:
    """The same in closed form: the queue runs dry on seats in their steady state."""
    return gain_at_once(uniform(*OUTPUT), requests, BATCH)
