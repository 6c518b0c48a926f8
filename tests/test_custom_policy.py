"""The example of a policy of one's own keeps its promise, and stays small."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from random import Random

import pytest

from batchwright.cost import Linear
from batchwright.history import EngineStep, steps
from batchwright.limits import Limits
from batchwright.request import FINISHED, Request
from batchwright.scenario.policy_file import load_policy
from batchwright.simulator import Simulator
from strategies import for_every_seed

EXAMPLE = Path(__file__).parent.parent / "examples" / "custom_policy.py"
MODULE = runpy.run_path(str(EXAMPLE))
POLICY, TARGET = MODULE["policy"], MODULE["TARGET"]
SMALLEST = 16  # prompt tokens of the smallest budget


def random_load(random: Random, longest: int) -> list[Request]:
    """Up to 60 requests, each of at most `longest` tokens."""
    now, load = 0.0, []
    for id in range(random.choice([5, 25, 60])):
        now += random.choice([0.0, 0.0, 0.01, 0.1, 1.0])
        prompt = random.randint(1, longest - 1)
        load.append(Request(id, now, prompt, random.randint(1, min(60, longest - prompt))))
    return load


def random_cost(random: Random) -> Linear:
    """A cost in which a chunk takes the same time wherever it starts."""
    prefill, decode = random.choice([1e-6, 2e-5, 2e-4, 1e-3]), random.choice([0.0, 5e-5, 1e-3])
    return Linear(random.choice([0.0005, 0.005, 0.015]), prefill, decode)


def run(cost: Linear, load: list[Request], limits: Limits, **options: bool) -> list[tuple[EngineStep, float]]:
    """Every step with its seconds."""
    simulator = Simulator(POLICY, cost, limits, **options)
    simulator.run(load)
    found = steps(simulator.log, num_blocks=limits.blocks, block_size=limits.block_size)
    return [(step, seconds(step, cost)) for step in found]


def seconds(step: EngineStep, cost: Linear) -> float:
    return cost.base + cost.prefill * step.prefill_tokens + cost.decode * step.num_decodes


def test_the_example_has_at_most_30_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 30


@for_every_seed(60)
def test_a_step_with_prompt_tokens_meets_the_target_wherever_it_can(seed: int) -> None:
    random = Random(seed)
    cost, load = random_cost(random), random_load(random, 2000)
    blocks = random.choice([125, 2000, 90_000])
    limits = Limits(max_num_seqs=random.choice([2, 32, 256]), num_kv_blocks=blocks)
    found = run(cost, load, limits)
    assert all(r.state == FINISHED for r in load)
    late = [(step, time) for step, time in found if step.prefill_tokens > 0 and time > TARGET * (1 + 1e-9)]
    for step, _ in late:  # nobody decodes, and not even the smallest chunk would have met it
        assert step.num_decodes == 0
        assert step.prefill_tokens <= SMALLEST
        assert cost.base + cost.prefill * SMALLEST > TARGET


@for_every_seed(60)
def test_a_step_uses_at_least_half_of_the_prompt_tokens_that_the_target_allows(seed: int) -> None:
    """Powers of two are enough: twice as many would miss the target, or 8192 were allowed."""
    random = Random(seed)
    cost = random_cost(random)
    load = [Request(0, 0.0, 50_000, 2)]
    first, *_ = run(cost, load, Limits(max_num_batched_tokens=2048))
    tokens = first[0].prefill_tokens
    assert tokens == 8192 or cost.base + cost.prefill * 2 * tokens > TARGET


@for_every_seed(40)
def test_the_example_serves_everybody_from_a_tiny_kv_cache_and_keeps_the_contract(seed: int) -> None:
    random = Random(seed)
    size = random.choice([1, 4, 16])
    blocks = random.choice([3, 5, 12])
    cost = random_cost(random)
    limits = Limits(
        block_size=size, num_kv_blocks=blocks, max_num_seqs=random.choice([1, 3, 64]),
        enable_prefix_caching=random.random() < 0.5,
    )  # fmt: skip
    shapes = [(r.arrival, r.prompt, r.true_output) for r in random_load(random, size * blocks)]
    plain, audited, walked = ([Request(i, *shape) for i, shape in enumerate(shapes)] for _ in range(3))
    run(cost, plain, limits)
    run(cost, audited, limits, audit=True)
    run(cost, walked, limits, skip=False)
    assert all(r.state == FINISHED and r.generated == r.true_output for r in plain)
    assert [r.finished for r in plain] == [r.finished for r in walked] == [r.finished for r in audited]


def test_the_example_fills_the_last_block_of_a_prompt_that_has_all_blocks() -> None:
    # 16 prompt tokens meet the target.  0 leaves after the first step; the second chunk of 1 takes the
    # last block up to its 24th token, and the 7 that it lacks need no other.
    load = [Request(0, 0.0, 8, 1), Request(1, 0.0, 31, 1)]
    run(Linear(0.0001, prefill=0.001), load, Limits(block_size=16, num_kv_blocks=2))
    assert [r.state for r in load] == [FINISHED, FINISHED]


@pytest.mark.parametrize("seats", [1, 4])
def test_the_example_keeps_the_seats_of_the_server(seats: int) -> None:
    load = [Request(i, 0.0, 40, 9) for i in range(20)]
    found = run(Linear(0.001, 1e-5), load, Limits(max_num_seqs=seats))
    assert max(step.running for step, _ in found) <= seats
    assert max(len(step.scheduled) for step, _ in found) == seats


def test_an_edit_of_the_same_second_and_size_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for size in (3, 4):
        file.write_text(f"from batchwright import static\npolicy = static({size})\n", encoding="utf-8")
        os.utime(file, (1, 1))
        assert load_policy(file).batch_size == size
