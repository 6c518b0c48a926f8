"""A greater token budget can make a stable server unstable (Dai, Deng, Li and Peng 2025, arXiv 2504.07347).

Their deterministic experiment: every 467.5 ms a request of 290 prompt tokens and 990 decodes, at most 100
at once, and a step of b tokens in

    11.28 + 35.47 ceil(b / 128) ms

so 128 tokens take 46.75 ms, a tenth of the gap: each step must then compute 29 prompt tokens and 99
decodes, which fill it to the last token.  A step that holds more tokens is cheaper for each of them, but
100 seats cannot fill it, and its last 128 are paid in full.
"""

from __future__ import annotations

from typing import Any

import pytest

from batchwright.history import EngineStep, steps
from batchwright.limits import Limits
from batchwright.policies import policy
from batchwright.request import DECODING, Request
from batchwright.simulator import Simulator
from batchwright.step import Step

GAP, PROMPT, DECODES, COUNT = 0.4675, 290, 990, 600
LIMITS = Limits(max_num_seqs=100, max_num_batched_tokens=2048, enable_prefix_caching=False)


def staircase(step: Step) -> float:
    tokens = step.prefill_tokens + step.num_decodes
    return 0.01128 + 0.03547 * -(-tokens // 128)


def run(text: str) -> tuple[list[EngineStep], Any]:
    """Its steps, and the tokens that were still to be computed when each request came."""
    simulator = Simulator(policy(text), staircase, LIMITS)
    requests = [Request(i, i * GAP, PROMPT, DECODES + 1) for i in range(COUNT)]
    simulator.feed(requests)
    backlog = []
    for i in range(COUNT):
        simulator.advance(i * GAP)
        come = (i + 1) * (PROMPT + DECODES)
        backlog.append(come - computed(requests[: i + 1], simulator.batch.clock))
    simulator.advance()
    blocks = simulator.batch.blocks
    return steps(simulator.log, blocks.size, blocks.block_size), backlog


def computed(requests: list[Request], clock: int) -> int:
    """Tokens of these requests that have been computed."""
    return sum(clock + r.shift if r.state == DECODING else r.computed for r in requests)


def test_the_tight_budget_locks_into_full_steps_and_is_stable() -> None:
    found, backlog = run("sarathi(chunk_size=128)")
    late = found[3_000:5_000]
    assert {(step.prefill_tokens, step.num_decodes) for step in late} == {(29, 99)}
    assert 45_000 < min(backlog[300:]) <= max(backlog[300:]) < 55_000


@pytest.mark.parametrize("text", ["sarathi(chunk_size=1024)", "orca"])
def test_a_greater_budget_or_whole_prompts_diverge(text: str) -> None:
    _, backlog = run(text)
    assert backlog[299] > 90_000  # after 140 s
    thirds = [backlog[i + 100] - backlog[i] for i in (200, 300, 400)]
    assert min(thirds) > 0.95 * max(thirds) > 10_000  # and it goes on growing as fast
