"""The lines that `vllm serve --enable-logging-iteration-details` writes, one for each step.

    Iteration(71): 1 context requests, 32 context tokens, 3 generation requests, 15 generation tokens,
    iteration elapsed time: 6.65 ms, GPU KV cache usage: 84.6%

vLLM 0.19 to 0.31 write them in the engine's process, later versions in the front end, which also names
the engine and what is taken of the KV cache.  A request that was preempted and computes its
tokens again is one of the generation requests, and all these tokens are generation tokens.

Elapsed is the time for which the engine waited for the device, without the scheduler.  The log says
when a line was written, in whole seconds: a step gets its exact length, and the earliest place that neither
its line nor the step before forbids.

Source: vLLM 0.19 to 0.32, `v1/engine/core.py`, `v1/metrics/loggers.py`, `v1/utils.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from batchwright.imported.log_lines import Line
from batchwright.metrics import Numbers

WORD: Final = "Iteration("
_LINE: Final = re.compile(
    r"(?:Engine (\d+): )?Iteration\((\d+)\): (\d+) context requests, (\d+) context tokens, "
    r"(\d+) generation requests, (\d+) generation tokens, iteration elapsed time: ([\d.]+) ms( \(dummy\))?"
    r"(?:, \w+ KV cache usage: ([\d.]+)%)?"
)


class Iteration(NamedTuple):
    """One step as it was written.  `kv_usage`: a share; nan: not told.  `told`: when, in seconds."""

    engine: int
    number: int
    chunks: int
    prefill: int
    decodes: int
    decoded: int
    elapsed: float
    is_dummy: bool
    kv_usage: float
    told: float | None


def iteration(line: Line) -> Iteration | None:
    """What a line says of a step; None if it is cut, or another line."""
    match = _LINE.search(line.text)
    if match is None:
        return None
    engine, number, chunks, prefill, decodes, decoded = (int(part or 0) for part in match.groups()[:6])
    if match[1] is None:
        engine = line.core or 0
    usage = float(match[9]) / 100 if match[9] else float("nan")
    elapsed = _number(match[7]) / 1000
    return Iteration(
        engine, number, chunks, prefill, decodes, decoded, elapsed, match[8] is not None, usage, line.seconds
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # two points
        return float("nan")


def last_start(steps: Iterable[Iteration]) -> tuple[list[Iteration], int]:
    """The steps since the engine was started last, and how many starts there are."""
    kept: list[Iteration] = []
    newest: dict[int, int] = {}
    starts = 1
    for step in steps:
        if step.number <= newest.get(step.engine, -1):
            kept, newest, starts = [], {}, starts + 1
        newest[step.engine] = step.number
        kept.append(step)
    return kept, starts


def columns(steps: list[Iteration]) -> dict[str, Numbers]:
    """A row per step that computed something, engine by engine; `start_s` from the first line."""
    rows = sorted((step for step in steps if not step.is_dummy), key=lambda step: (step.engine, step.number))
    start, end = _placed(rows)
    found: dict[str, Numbers] = {
        "engine": np.array([row.engine for row in rows]),
        "step": np.array([row.number for row in rows]),
        "start_s": start,
        "end_s": end,
        "prefill_tokens": np.array([row.prefill for row in rows]),
        "num_chunks": np.array([row.chunks for row in rows]),
        "num_decodes": np.array([row.decodes for row in rows]),
        "decode_tokens": np.array([row.decoded for row in rows]),
    }
    usage = np.array([row.kv_usage for row in rows])
    return found if np.isnan(usage).all() else {**found, "kv_usage": usage}


def _placed(rows: list[Iteration]) -> tuple[Numbers, Numbers]:
    """When each step starts and ends."""
    origin = min((row.told for row in rows if row.told is not None), default=0.0)
    start, end = np.empty(len(rows)), np.empty(len(rows))
    engine, clock = -1, 0.0
    for i, row in enumerate(rows):
        if row.engine != engine:
            engine, clock = row.engine, 0.0
        told = 0.0 if row.told is None else row.told - origin
        start[i] = max(clock, told - row.elapsed)
        end[i] = clock = start[i] + row.elapsed
    return start, end


def missing(steps: list[Iteration]) -> int:
    """Steps that the log lacks between the first and the last one of each engine."""
    count = 0
    for engine in {step.engine for step in steps}:
        numbers = [step.number for step in steps if step.engine == engine]
        count += numbers[-1] - numbers[0] + 1 - len(numbers)
    return count
