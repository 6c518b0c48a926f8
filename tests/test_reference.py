"""The reference loop is vLLM's scheduler, and its own invariants hold."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reference import (
    Plan,
    Policy,
    Pool,
    Row,
    VllmReference,
    _replay,
    _replay_late,
    dynamic,
    linear,
    orca,
    replay,
    rows_of,
    static,
    timed,
)
from strategies import (
    END_TRAP,
    HELD_TRAP,
    for_every_seed,
    limits_of,
    requests_of,
    timed_workload,
    workload,
)

pytestmark = pytest.mark.pure  # the reference loop is not compiled

GOLDENS = sorted((Path(__file__).parent / "golden").glob("0*.json"))
POLICIES: dict[str, Callable[[dict[str, Any]], Policy]] = {
    "vllm": VllmReference,
    "padded": static(4),
    "static": static(3, padded=False, streamed=True),
    "dynamic": dynamic(4, 1.5, (2, 4)),
    "orca": orca(3),
}


def golden(path: Path) -> dict[str, Any]:
    load: dict[str, Any] = json.loads(path.read_text())
    return load


def in_order(steps: list[dict[str, Any]]) -> list[tuple[list[tuple[str, int]], dict[str, Any]]]:
    """Steps that are equal only if their requests were scheduled in the same order."""
    return [(list(step["scheduled"].items()), step) for step in steps]


def run(engine: VllmReference, load: dict[str, Any]) -> list[dict[str, Any]]:
    return (_replay_late if engine.lag else _replay)(engine, rows_of(load))


# --- vLLM ------------------------------------------------------------------------


def test_there_are_35_recordings() -> None:
    assert len(GOLDENS) == 35


@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.stem)
def test_every_recorded_step_is_reproduced(path: Path) -> None:
    load = golden(path)
    assert in_order(replay(load)) == in_order(load["steps"])


class AdmitsAfterPreemption(VllmReference):
    def admit_waiting(self, plan: Plan, scheduled: dict[Row, int], cap: int) -> None: ...

    def continue_running(self, plan: Plan, scheduled: dict[Row, int], cap: int) -> None:
        super().continue_running(plan, scheduled, cap)
        super().admit_waiting(plan, scheduled, cap)


class PreemptsTheOldest(VllmReference):
    def victim(self) -> Row:
        return self.running[0]


class QueuesVictimsAtTheBack(VllmReference):
    def preempt(self, row: Row) -> None:
        super().preempt(row)
        self.waiting.append(self.waiting.pop(0))


class GivesOutTheNullBlock(VllmReference):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.pool.free.append(0)


class KeepsTheWatermarkWhenIdle(VllmReference):
    def fits(self, tokens: int, hit: list[int]) -> bool:
        free = len(self.pool.free) - (0 if self.running else self.watermark)
        return super().fits(tokens, hit) and self.count(tokens) <= free


class CapsALoneRequest(VllmReference):
    def chunk_cap(self) -> int:
        return self.threshold or self.longest


class TakesABlockAhead(VllmReference):
    def grow(self, row: Row, tokens: int) -> bool:
        ahead = self.count(row.computed + tokens + 1) - len(row.blocks)
        return ahead <= len(self.pool.free) and super().grow(row, tokens)


class ReusesNamedBlocksFirst(VllmReference):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.pool = MostRecentFirst(config["num_blocks"], config["enable_prefix_caching"])


class MostRecentFirst(Pool):
    def release(self, blocks: list[int]) -> None:
        before = len(self.free)
        super().release(blocks)
        self.free = self.free[before:] + self.free[:before]


class ForgetsEnds(VllmReference):
    """Frees the blocks at once, without a name for what the last step filled."""

    is_seeing = False

    def see(self, row: Row) -> bool:
        self.is_seeing = True
        is_last = super().see(row)
        self.is_seeing = False
        return is_last

    def name_blocks(self, row: Row, tokens: int) -> None:
        if not self.is_seeing:
            super().name_blocks(row, tokens)


class AlwaysLate(ForgetsEnds):
    """Every decode's newest block is named a step late."""

    def grow(self, row: Row, tokens: int) -> bool:
        row.generated -= not row.is_prefilling and row.unseen == 0
        grown = super().grow(row, tokens)
        row.generated += not row.is_prefilling and row.unseen == 0
        return grown


@pytest.mark.parametrize(
    "wrong",
    [
        AdmitsAfterPreemption,
        PreemptsTheOldest,
        QueuesVictimsAtTheBack,
        GivesOutTheNullBlock,
        KeepsTheWatermarkWhenIdle,
        CapsALoneRequest,
        TakesABlockAhead,
        ReusesNamedBlocksFirst,
    ],
)
def test_a_recording_catches_one_wrong_rule(wrong: type[VllmReference]) -> None:
    assert any(differs(wrong, load) for load in map(golden, GOLDENS))


def differs(wrong: type[VllmReference], load: dict[str, Any]) -> bool:
    """A wrong engine may also break the reference's own checks, or never end."""
    engine = wrong(load["config"])
    schedule, calls = engine.schedule, iter(range(2 * len(load["steps"])))

    def bounded() -> Plan:
        assert next(calls, None) is not None, "it never ends"
        return schedule()

    engine.schedule = bounded  # type: ignore[method-assign]
    try:
        return bool(run(engine, load) != load["steps"])
    except (AssertionError, IndexError):
        return True


def test_an_ended_request_leaves_all_its_full_blocks_to_be_hit() -> None:
    steps = replay(END_TRAP)
    assert steps[3]["admitted"] == {"r001": 1}  # as vLLM 0.32.0's AsyncScheduler does
    assert run(ForgetsEnds(END_TRAP["config"]), END_TRAP) != steps


def test_a_decode_that_was_held_has_no_late_block() -> None:
    steps = replay(HELD_TRAP)
    assert [step["preempted"] for step in steps[:6]] == [[], [], ["r000"], [], ["r002"], []]
    assert steps[6]["admitted"] == {"r002": 4}  # as vLLM 0.32.0's AsyncScheduler does
    assert run(AlwaysLate(HELD_TRAP["config"]), HELD_TRAP) != steps


@for_every_seed(150)
def test_a_run_ends_with_every_block_free(seed: int) -> None:
    load = workload(seed)
    engine = VllmReference(load["config"])
    run(engine, load)
    assert sorted(engine.pool.free) == list(range(1, load["config"]["num_blocks"]))
    assert not any(engine.pool.users)


@for_every_seed(150)
def test_every_token_is_computed_once_more_per_preemption_at_most(seed: int) -> None:
    load = workload(seed)
    steps = replay(load)
    for row in rows_of(load):
        computed = sum(step["scheduled"].get(row.id, 0) + step["admitted"].get(row.id, 0) for step in steps)
        preempted = sum(step["preempted"].count(row.id) for step in steps)
        longest = row.prompt + row.output - 1
        assert longest <= computed <= longest * (preempted + 1)


@for_every_seed(150)
def test_no_step_exceeds_its_budget_or_its_seats(seed: int) -> None:
    load = workload(seed)
    for step in replay(load):
        assert sum(step["scheduled"].values()) <= load["config"]["max_num_batched_tokens"]
        assert step["running"] <= load["config"]["max_num_seqs"]


# --- time ------------------------------------------------------------------------


@for_every_seed(150)
def test_with_steps_of_a_second_time_counts_steps(seed: int) -> None:
    load = workload(seed)
    steps = replay(load)
    times = timed(load, lambda work: 1.0, empty=1.0)
    for id, seen in times.items():
        last = max(step["step"] for step in steps if id in step["scheduled"])
        assert seen["finished"] == last + 1
        assert seen["preemptions"] == sum(step["preempted"].count(id) for step in steps)


@pytest.mark.parametrize("name", POLICIES)
@for_every_seed(60)
def test_a_token_comes_after_the_arrival_and_all_are_sampled(name: str, seed: int) -> None:
    load = timed_workload(seed, headroom=name != "vllm")
    works: list[dict[str, float]] = []
    times = timed(load, spy(works), POLICIES[name])
    rows = rows_of(load)
    assert sum(work["sampled_rows"] for work in works) == sum(row.output for row in rows)
    for row in rows:
        seen = times[row.id]
        assert row.arrival < seen["first_token"] <= seen["finished"]
        assert name == "vllm" or seen["preemptions"] == 0


@pytest.mark.parametrize("name", POLICIES)
@for_every_seed(40)
def test_times_are_exact_multiples_of_a_power_of_two(name: str, seed: int) -> None:
    for seen in timed(timed_workload(seed), linear(), POLICIES[name]).values():
        assert (seen["finished"] * 2**17).is_integer()


def spy(works: list[dict[str, float]]) -> Callable[[dict[str, float]], float]:
    """Linear time, and a record of what was run."""
    seconds = linear()

    def note(work: dict[str, float]) -> float:
        works.append(work)
        return seconds(work)

    return note


def small(*requests: tuple[float, int, int], num_blocks: int = 41) -> dict[str, Any]:
    """A workload of (arrival, prompt, output), with blocks of 4 tokens."""
    keys = ("arrival", "prompt_len", "output_len")
    return {
        "config": {"block_size": 4, "max_model_len": 32, "num_blocks": num_blocks},
        "requests": [
            {"id": f"r{i}"} | dict(zip(keys, request, strict=True)) for i, request in enumerate(requests)
        ],
    }


def finished(load: dict[str, Any], policy: Callable[[dict[str, Any]], Policy]) -> list[float]:
    return [seen["finished"] for seen in timed(load, lambda work: 1.0, policy).values()]


def test_static_waits_for_a_full_batch_and_sends_the_rest_when_nobody_else_comes() -> None:
    load = small((0, 3, 2), (5, 3, 4), (6, 3, 1))
    assert finished(load, static(2)) == [9, 9, 10]
    assert finished(load, static(2, streamed=True)) == [7, 9, 10]


def test_padded_rows_are_computed_until_the_batch_ends_and_read_a_token_more_each_step() -> None:
    works: list[dict[str, float]] = []
    timed(small((0, 3, 1), (0, 5, 3)), spy(works), static(2))
    assert [work["prefill_tokens"] for work in works] == [10, 0, 0]
    assert works[0]["prefill_attention"] == 2 * 5 * 5 / 2
    assert [(work["num_decodes"], work["padded_rows"]) for work in works] == [(0, 0), (1, 1), (1, 1)]
    assert [work["context_tokens"] for work in works] == [0, 3 + 5, 4 + 6]


def test_ended_rows_are_not_computed_without_padding() -> None:
    works: list[dict[str, float]] = []
    timed(small((0, 3, 1), (0, 5, 3)), spy(works), static(2, padded=False))
    assert [work["prefill_tokens"] for work in works] == [8, 0, 0]
    assert [work["padded_rows"] for work in works] == [0, 0, 0]
    assert [work["context_tokens"] for work in works] == [0, 5, 6]


def test_static_admits_fewer_than_a_batch_if_their_blocks_do_not_fit() -> None:
    load = small((0, 3, 5), (0, 3, 5), (0, 3, 5), num_blocks=9)
    assert finished(load, static(3)) == [5, 5, 5]
    load["config"]["num_blocks"] = 6  # five blocks: two requests of two
    assert finished(load, static(3)) == [5, 5, 10]


def test_dynamic_sends_when_full_or_when_the_oldest_has_waited_for_the_window() -> None:
    load = small((0, 3, 1), (1, 3, 3), (1, 3, 1), (20, 3, 1))
    assert finished(load, dynamic(2, 4.0)) == [2, 4, 6, 25]
    assert finished(load, dynamic(8, 4.0)) == [5, 7, 5, 25]


def test_dynamic_sends_a_preferred_size_while_the_oldest_is_young() -> None:
    load = small((0, 3, 1), (0, 3, 1), (0, 3, 1), (0, 3, 1), (0, 3, 1))
    assert finished(load, dynamic(8, 9.0, (2, 4))) == [1, 1, 1, 1, 10]
    assert finished(load, dynamic(8, 0.0, (2, 4))) == [1, 1, 1, 1, 2]


def test_orca_lets_requests_join_and_leave_after_every_step() -> None:
    load = small((0, 3, 3), (1, 3, 1), (1, 3, 1))
    assert finished(load, orca(2)) == [3, 2, 3]
    load["config"]["num_blocks"] = 9  # one slot of 32 tokens
    assert finished(load, orca(2)) == [3, 4, 5]


# --- workloads -------------------------------------------------------------------


@for_every_seed(100)
def test_two_requests_share_a_key_only_for_the_same_tokens(seed: int) -> None:
    load = workload(seed)
    size = load["config"]["block_size"]
    keys: dict[int, tuple[str, int, int]] = {}
    for row, request in zip(rows_of(load), requests_of(load), strict=True):
        assert len(request.prefix) == row.shared // size
        for j, key in enumerate(request.prefix):
            assert keys.setdefault(key, row.key(j, size)) == row.key(j, size)
    assert len(set(keys.values())) == len(keys)


@for_every_seed(100)
def test_a_workload_arrives_in_order_and_any_request_fits_the_pool(seed: int) -> None:
    for load in (workload(seed), timed_workload(seed, headroom=True)):
        limits = limits_of(load["config"])
        requests = deque(requests_of(load))
        arrivals = [request.arrival for request in requests]
        assert arrivals == sorted(arrivals)
        assert all(request.prompt + request.max_tokens <= limits.longest for request in requests)


def test_the_workloads_cross_every_feature() -> None:
    loads = [workload(seed) for seed in range(120)]
    steps = [step for load in loads for step in replay(load)]
    assert any(step["preempted"] and not step["scheduled"] for step in steps)  # a step without tokens
    assert any(len(step["preempted"]) > 1 for step in steps)
    assert any(any(step["admitted"].values()) for step in steps)
    assert {load["config"]["async_scheduling"] for load in loads} == {False, True}
    assert any(differs_from(load, ForgetsEnds) for load in loads)


def differs_from(load: dict[str, Any], wrong: type[VllmReference]) -> bool:
    return run(wrong(load["config"]), load) != replay(load)
