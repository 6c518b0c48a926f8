"""DistServe's three mean TTFTs of a prefill-only engine, against the simulator.

A batch begins a step only when the one before has ended, so one batch cannot hold prompts in two
stages at once: the pipeline is two servers in tandem, the second fed by the first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batchwright.cost import Constant
from batchwright.policies import Vllm
from batchwright.theory import slo
from queueing import assert_agrees, poisson, replicate, serve

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

WARM = 500
RATE = 0.7


def firsts(arrival: Any, seconds: float) -> Any:
    """First tokens of prompts that are served one at a time in so many seconds each."""
    return serve(Vllm(async_scheduling=False), Constant(seconds), arrival, 1, max_num_seqs=1).first_token


def held(expected: float, run: Any) -> None:
    """Mean TTFT against the formula, with the mean gap as control."""
    found = replicate(run)
    assert_agrees(expected, found[:, 0], [found[:, 1]])


def summary(arrival: Any, first: Any) -> list[float]:
    return [(first - arrival)[WARM:].mean(), np.diff(arrival).mean() - 1 / RATE]


def test_prompts_one_at_a_time_are_md1() -> None:
    def run(random: Any) -> list[float]:
        arrival = poisson(random, RATE, 12_000)
        return summary(arrival, firsts(arrival, 1.0))

    held(slo.prefill_ttft(RATE, 1.0), run)


def test_tensor_parallel_prompts_are_md1_of_shorter_ones() -> None:
    def run(random: Any) -> list[float]:
        arrival = poisson(random, RATE, 3_000)
        return summary(arrival, firsts(arrival, 1.0 / 1.6))

    held(slo.parallel_ttft(RATE, 1.0, 1.6), run)


def test_two_stages_in_tandem_wait_only_at_the_first() -> None:
    def run(random: Any) -> list[float]:
        arrival = poisson(random, RATE, 3_000)
        between = firsts(arrival, 0.5)
        return summary(arrival, firsts(between, 0.5))

    held(slo.pipelined_ttft(RATE, 1.0), run)


@pytest.mark.parametrize("speedup", [1.2, 1.6, 2.0])
def test_two_stages_and_two_way_tensor_parallel_cross(speedup: float) -> None:
    """Few prompts gain from shorter ones, many from two at a time, unless a speed-up is perfect."""
    few, many = 0.05, 0.95
    assert slo.parallel_ttft(few, 1.0, speedup) < slo.pipelined_ttft(few, 1.0)
    is_better = slo.parallel_ttft(many * speedup, 1.0, speedup) < slo.pipelined_ttft(many * speedup, 1.0)
    assert is_better == (speedup == 2.0)
