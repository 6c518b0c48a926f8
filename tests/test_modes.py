"""The compiled core gives the bits of the interpreted one, and any process those of another.

Run as a script, this file prints one line per workload: a digest of all times and of the log.
"""

from __future__ import annotations

import os
import subprocess
import sys
import types
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from batchwright import Batch, Constant, Hosted, Linear, Request, Roofline, Simulator
from batchwright.cost import OperatorTimes, Table
from batchwright.log import STAY
from batchwright.operators.tables import operator_times
from batchwright.policies import Dynamic, Orca, Static, Vllm
from batchwright.step import Step
from measured_operators import Made
from strategies import limits_of, requests_of, timed_workload

NUM_LOADS = 120
ROOT = Path(__file__).resolve().parent.parent
IS_COMPILED = not isinstance(Batch.tick, types.FunctionType)
INTERPRETED, COMPILED = "interpreted (pure Python)", "compiled (mypyc)"
COLUMNS = ("steps", "taken", "freed", "chunks", "held", "accepted", "paused", *STAY)
SECONDS = ("times", "first_token", "finished")


def test_the_version_command_says_how_the_core_runs() -> None:
    said = python("-m", "batchwright", "version")
    assert said.rstrip().endswith(f"core {COMPILED if IS_COMPILED else INTERPRETED}")


def test_two_processes_with_other_hashes_give_the_same_bytes() -> None:
    script = str(Path(__file__))
    first, second = python(script, PYTHONHASHSEED="1"), python(script, PYTHONHASHSEED="2")
    assert first == second
    mode, *runs = first.splitlines()
    assert mode == f"compiled: {IS_COMPILED}"
    assert len(set(runs)) == NUM_LOADS  # no two loads give the same


@pytest.mark.skipif(not IS_COMPILED, reason="the core is interpreted: there is no other to compare with")
def test_the_compiled_core_gives_the_bits_of_the_interpreted_one() -> None:
    pure = str(ROOT / "src")
    assert python("-m", "batchwright", "version", PYTHONPATH=pure).rstrip().endswith(f"core {INTERPRETED}")
    mode, *interpreted = python(str(Path(__file__)), PYTHONPATH=pure).splitlines()
    assert mode == "compiled: False"
    for seed, line in enumerate(interpreted):
        assert line == line_of(seed)
    assert len(interpreted) == NUM_LOADS


def python(*arguments: str, **variables: str) -> str:
    """What a new Python process prints."""
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- the workloads ----------------------------------------------------------------


def line_of(seed: int) -> str:
    """One run: its decisions, its end, and a digest of all that it recorded."""
    simulator, requests = run(seed)
    log = simulator.log
    digest = sha256()
    for r in requests:
        digest.update(f"{r.first_token.hex()} {r.finished.hex()} {r.preemptions} {r.state};".encode())
    for name in COLUMNS:
        digest.update(f"{name} {log.column(name).tolist()};".encode())
    for name in SECONDS:
        digest.update(f"{name} {[second.hex() for second in log.seconds(name)]};".encode())
    digest.update(f"{log.jumps} {[second.hex() for second in log.jump_times]}".encode())
    return f"{simulator.num_decisions} {simulator.now.hex()} {digest.hexdigest()}"


def run(seed: int) -> tuple[Simulator, list[Request]]:
    """Policies, costs and the ways to drive a run, crossed; some clients go."""
    load = timed_workload(seed, headroom=seed % 3 == 0)
    for request in load["requests"]:
        request["arrival"] *= 0.0371
    requests = requests_of(load)
    options = {"skip": seed % 7 != 0}
    simulator = Simulator(
        policy_of(seed, load["config"]), cost_of(seed), limits_of(load["config"]), **options
    )
    for r in requests[:: 9 if seed % 4 == 0 else 1000]:
        simulator.cancel(r, r.arrival + 0.05)
    simulator.feed(requests)
    for piece in range(20 if seed % 5 == 0 else 0):
        simulator.advance(0.013 * piece)
    simulator.advance()
    return simulator, requests


def policy_of(seed: int, config: dict[str, Any]) -> Any:
    size = min(3, config["max_num_seqs"])
    policies = (
        Vllm(
            policy=config["policy"],
            long_prefill_token_threshold=config["long_prefill_token_threshold"],
            scheduler_reserve_full_isl=config["scheduler_reserve_full_isl"],
            watermark=config["watermark"],
            async_scheduling=seed % 2 == 0,
        ),
        Static(size, padded=seed % 2 == 0, streamed=seed % 3 == 0),
        Dynamic(size, 0.02),
        Orca(size),
        Vllm(num_speculative_tokens=size, acceptance=0.7, acceptance_spread=0.1, draft=0.05),
    )
    return policies[seed // 4 % 6 % 5]


def cost_of(seed: int) -> Any:
    device = Roofline("H100-SXM", "llama-3.1-8b")
    costs = (
        device,
        Linear(0.0043, 3.1e-5, 1.7e-4, 1.3e-6, 1.1e-8),
        Hosted(device, 1e-3, 1e-3),
        curved,
        Roofline("A100-80G-SXM", "mixtral-8x7b", tp=2),
        Hosted(curved, 1e-3, 1e-3),
        Roofline("H100-SXM", "mixtral-8x7b", pp=3, dp=2, ep=True, router_skew=0.6),
        Constant(0.0071),
        Hosted(Table(made_times(), ()), 3e-3, 1e-4),
    )
    return costs[seed % len(costs)]


@cache
def made_times() -> OperatorTimes:
    return operator_times(Made())


def curved(step: Step) -> float:
    """A cost without closed form."""
    return 0.004 + 3e-5 * step.prefill_tokens + 1e-6 * (step.context_tokens + 100 * step.num_decodes) ** 1.2


def main() -> None:
    print(f"compiled: {IS_COMPILED}")
    for seed in range(NUM_LOADS):
        print(line_of(seed))


if __name__ == "__main__":
    main()
