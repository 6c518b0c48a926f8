"""The workloads that speed is measured on, as rows (id, arrival, prompt, output).

    W1  512 prompt and 128 output tokens, Poisson, 20 requests a second
    W2  the lengths of the Azure conversation trace of 2023 in its order, Poisson, 6 a second
    W3  512 prompt and 2,000 output tokens, Poisson, 1 a second: long quiet stretches

The trace is not part of this repository: AzurePublicDataset, AzureLLMInferenceTrace_conv.csv,
CC BY 4.0.  Without it W2 draws lengths from lognormal stand-ins.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator
from itertools import cycle, repeat
from math import exp

Row = tuple[int, float, int, int]
Lengths = Iterator[tuple[int, int]]

RATES = {"W1": 20.0, "W2": 6.0, "W3": 1.0}
PREFIXES = 50  # groups of requests with the same prefix
PREFIX_TOKENS = 256
BLOCK_SIZE = 16


def rows(name: str, num_requests: int, trace: str | None) -> Iterator[Row]:
    """The first `num_requests` rows of a workload, made one by one."""
    gaps = random.Random(1)
    arrival = 0.0
    for id, (prompt, output) in zip(range(num_requests), _lengths(name, trace), strict=False):
        arrival += gaps.expovariate(RATES[name])
        yield id, arrival, prompt, output


def prefix_keys(id: int, prompt: int) -> list[int]:
    """Keys of the full blocks of the prefix that request `id` shares with its group."""
    blocks = min(PREFIX_TOKENS, prompt) // BLOCK_SIZE
    first = id % PREFIXES * (PREFIX_TOKENS // BLOCK_SIZE)
    return list(range(first, first + blocks))


def _lengths(name: str, trace: str | None) -> Lengths:
    if name == "W1":
        return repeat((512, 128))
    if name == "W3":
        return repeat((512, 2000))
    return _stand_in() if trace is None else cycle(_of_trace(trace))


def _of_trace(path: str) -> list[tuple[int, int]]:
    with open(path, newline="", encoding="utf-8") as file:
        return [(int(row["ContextTokens"]), int(row["GeneratedTokens"])) for row in csv.DictReader(file)]


def _stand_in() -> Lengths:
    """Median and spread near the trace's: prompts 1,020 (at most 4,142), outputs 129 (at most 601)."""
    draw = random.Random(2)
    while True:
        prompt = exp(draw.gauss(6.93, 0.6))
        output = exp(draw.gauss(4.86, 0.9))
        yield min(max(int(prompt), 1), 4142), min(max(int(output), 1), 601)
