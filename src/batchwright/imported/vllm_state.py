"""The line that vLLM's front end writes every few seconds, on the state of the engine.

    Engine 000: Avg prompt throughput: 584.0 tokens/s, Avg generation throughput: 630.0 tokens/s,
    Running: 4 reqs, Waiting: 1 reqs, GPU KV cache usage: 100.0%, Prefix cache hit rate: 37.6%

The throughputs are means since the line before, prompts without what was cached; running, waiting and
usage are those of the last step.  The hit rate is of the last thousand requests.  V0 says Swapped and
Pending.  From 0.22 on the line has a place for preemptions, but their count is reset before it is written.

Source: vLLM 0.4 to 0.32, `engine/metrics.py`, `v1/metrics/loggers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from batchwright.imported.log_lines import Line
from batchwright.metrics import Numbers

WORD: Final = "Avg prompt throughput:"
_NUMBERS: Final = {
    "prompt_tokens_per_s": re.compile(r"Avg prompt throughput: ([\d.]+) tokens/s"),
    "output_tokens_per_s": re.compile(r"Avg generation throughput: ([\d.]+) tokens/s"),
    "running": re.compile(r"Running: (\d+) reqs"),
    "waiting": re.compile(r"(?:Waiting|Pending): (\d+) reqs"),
    "kv_usage": re.compile(r"(?<!CPU )KV cache usage: ([\d.]+)%|\bCPU KV cache usage: ([\d.]+)%"),
    "prefix_hit_rate": re.compile(r"(?<!External )[Pp]refix cache hit rate: (?:GPU: )?([\d.]+)%"),
    "preempted": re.compile(r"Preemptions: (\d+)"),
}
_ENGINE: Final = re.compile(r"Engine (\d+): ")
_SHARES: Final = ("kv_usage", "prefix_hit_rate")


class Sample(NamedTuple):
    """One line.  `values` by column; nan: not told."""

    engine: int
    told: float | None
    values: dict[str, float]


def sample(line: Line) -> Sample | None:
    """The state that a line tells; None if it is cut."""
    values = {name: _value(pattern, line.text) for name, pattern in _NUMBERS.items()}
    if np.isnan(values["running"]) or np.isnan(values["kv_usage"]):
        return None
    for name in _SHARES:
        values[name] /= 100
    engine = _ENGINE.search(line.text)
    return Sample(int(engine[1]) if engine else 0, line.seconds, values)


def _value(pattern: re.Pattern[str], text: str) -> float:
    match = pattern.search(text)
    if match is None:
        return float("nan")
    found = next(part for part in match.groups() if part is not None)
    return float(found) if found.count(".") < 2 else float("nan")


def columns(samples: list[Sample]) -> dict[str, Numbers]:
    """A row per line, in the order of the log; `time_s` from the first line."""
    origin = min((one.told for one in samples if one.told is not None), default=float("nan"))

    def column(of: Callable[[Sample], float]) -> Numbers:
        return np.array([of(one) for one in samples])

    found = {
        "time_s": column(lambda one: float("nan") if one.told is None else one.told - origin),
        "engine": column(lambda one: one.engine),
    }
    for name in _NUMBERS:
        values = column(lambda one, name=name: one.values[name])  # type: ignore[misc]
        if not np.isnan(values).all():
            found[name] = values
    return found
