"""A plain load, and how many requests/s so many seats serve of it: for the cases of seats and memory."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.edge.server import Server
from batchwright.edge.steps import binomial_mean, with_prompts
from batchwright.step import Step
from batchwright.theory.continuous import kv_area, kv_read
from batchwright.workload import Workload

PROMPT: Final = (256, 1024)  # tokens, every length alike
OUTPUT: Final = (64, 512)  # and clients send the greatest as their limit
Tokens = npt.NDArray[np.int64]


def load_of(requests: int, rate: float, seed: int) -> Workload:
    """Poisson arrivals at `rate` per second."""
    random = np.random.Generator(np.random.PCG64(seed))
    arrival = np.cumsum(random.exponential(1 / rate, requests))
    prompt = random.integers(PROMPT[0], PROMPT[1] + 1, requests)
    output = random.integers(OUTPUT[0], OUTPUT[1] + 1, requests)
    return Workload.from_columns(arrival, prompt, output, max_tokens=OUTPUT[1], name="poisson")


def lengths() -> tuple[Tokens, Tokens]:
    """Mean prompts, beside every output, each alike likely."""
    outputs = np.arange(OUTPUT[0], OUTPUT[1] + 1)
    return np.full(len(outputs), sum(PROMPT) // 2), outputs


def resident_tokens() -> float:
    """KV tokens of a request that is seen at a random step: E[g] / E[o]."""
    prompts, outputs = lengths()
    return kv_area(prompts, outputs) / float(outputs.mean())


def capacity(server: Server, running: float, *, overlapped: bool = True) -> float:
    """Requests/s of so many seats that are always taken: c / (E[o] t(c)).

    `overlapped`: the host is hidden, and an end is seen a step late, E[o] + 1 steps a request.
    """
    prompts, outputs = lengths()
    mean, seats = float(outputs.mean()), max(round(running), 1)
    context, each = kv_read(prompts, outputs) / (mean - 1), sum(PROMPT) // 2
    steps, cost = mean + overlapped, server.cost

    def seconds(step: Step) -> float:
        return cost.overlapped(step, 1) if overlapped else cost.seconds(step)

    def seconds_with(count: int) -> float:
        rows = round((seats - count) * (mean - 1) / (steps - 1))
        return seconds(with_prompts(rows, round(rows * context), count, each))

    return seats / (steps * binomial_mean(seats, 1 / steps, seconds_with))
