"""The columns that say what every step computed are the steps that the cost model was asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.run import Run
from batchwright.step import Step
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_history import holds, pauses
from test_run import POLICIES, load_of, seats
from test_speculation import drawn, policy_of

EXACT = ("prefill_tokens", "num_chunks", "past_tokens", "prefill_attention", "num_decodes", "padded_rows",
         "context_tokens")  # fmt: skip
NOT_PADDING = ("num_decodes", "padded_rows", "context_tokens", "past_tokens", "num_chunks")
MORE: dict[str, Callable[[dict[str, Any]], Any]] = POLICIES | {
    "sarathi": lambda config: bw.policy("sarathi"),
    "tgi": lambda config: bw.policy("tgi"),
    "swap": lambda config: bw.policy(
        "vllm_v0(preemption_mode='swap', swap_bandwidth=1e9, kv_bytes_per_token=1e3)"
    ),
    "holds": lambda config: holds,
    "pauses": lambda config: pauses,
    "static, unstreamed": lambda config: bw.static(seats(config, 3), padded=False),
}


@dataclass
class Watch:
    """A cost that keeps the fields of every step that it prices: once each, if none is skipped."""

    steps: list[list[float]] = field(default_factory=list)

    def stretch(self, step: Step, steps: int) -> float:
        rows = step.num_decodes + step.padded_rows
        fields = {name: getattr(step, name) for name in EXACT}
        last = step.context_tokens + rows * (steps - 1)
        self.steps.append([*(fields | {"context_tokens": last}).values()])
        each = 0.0131 + 3e-5 * step.prefill_tokens + 1e-4 * rows
        return steps * each + 1e-7 * (steps * (step.context_tokens + last) / 2)


def watched(seed: int, name: str) -> tuple[Run, np.ndarray]:
    """A run, and the fields of its steps that computed something."""
    has_room = name in ("holds", "pauses")
    given = timed_workload(seed, headroom=has_room or seed % 3 == 0)
    if has_room:
        given["config"]["num_blocks"] = 5000
    return watched_load(given, MORE[name](given["config"]))


def watched_load(given: dict[str, Any], policy: Any) -> tuple[Run, np.ndarray]:
    requests, watch = requests_of(given), Watch()
    simulator = bw.Simulator(policy, watch, limits_of(given["config"]), skip=False)
    simulator.run(requests)
    seen = np.array(watch.steps)
    return Run("watched", load_of(requests), simulator), seen


@pytest.mark.parametrize("name", MORE)
@for_every_seed(20)
def test_columns_of_work_are_the_steps_that_were_priced(name: str, seed: int) -> None:
    run, seen = watched(seed, name)
    columns = run.steps()
    is_priced = (columns["num_decodes"] > 0) | (columns["prefill_tokens"] > 0)
    for i, field_name in enumerate(EXACT):
        if name != "padded" or field_name in NOT_PADDING:
            found = columns[field_name][is_priced]
            assert np.array_equal(found, seen[:, i]), field_name


@for_every_seed(25)
def test_under_speculation_the_context_is_what_decodes_read(seed: int) -> None:
    load, k, guess = drawn(seed)
    first = load["requests"][0]["arrival"]
    for row in load["requests"]:
        row["arrival"] -= first
    run, seen = watched_load(load, policy_of(load, k, guess))
    columns = run.steps()
    is_priced = (columns["num_decodes"] > 0) | (columns["prefill_tokens"] > 0)
    for name in ("num_decodes", "num_chunks", "context_tokens", "past_tokens"):
        assert np.array_equal(columns[name][is_priced], seen[:, EXACT.index(name)]), name


def test_some_of_these_runs_chunk_hold_and_pause() -> None:
    logs = [watched(seed, name)[0].log for seed in range(40) for name in ("holds", "pauses", "vllm")]
    used = {name: sum(len(log.column(name)) > 0 for log in logs) for name in ("chunks", "held", "paused")}
    assert min(used.values()) > 2, used
