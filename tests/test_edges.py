"""What broke once: hostile use at the edges, each kind of it a test."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import batchwright as bw
from batchwright import log as log_module
from batchwright.batch import Batch
from batchwright.cost import stretch_of
from batchwright.errors import CostError, InputError, LimitError, PolicyError, RequestError
from batchwright.history import stays, steps
from batchwright.request import Request
from batchwright.step import Step
from batchwright.workload import Workload, poisson
from strategies import for_every_seed, limits_of, requests_of, timed_workload

LINEAR = bw.Linear(0.005, prefill=2e-5, decode=1e-5, context=4e-8)


def requests(count: int = 600) -> list[Request]:
    return [Request(i, 0.1 * i, 20, 5) for i in range(count)]


def test_more_is_fed_only_when_the_last_source_is_used_up() -> None:
    simulator = bw.Simulator(bw.vllm(), LINEAR)
    simulator.feed(requests())
    with pytest.raises(RequestError, match="fed before the last ones have come"):
        simulator.run(Request(1000 + i, 100.0, 20, 5) for i in range(9))


def test_a_simulator_runs_one_source_after_the_other() -> None:
    simulator = bw.Simulator(bw.static(2), LINEAR)
    first = requests(300)
    simulator.run(first)
    second = [Request(300 + i, simulator.now + i, 20, 5) for i in range(5)]
    simulator.run(second)
    assert all(r.finished > 0 for r in [*first, *second])
    assert second[0].finished > second[1].arrival  # it waited for its batch: draining began anew


def test_steps_of_a_run_that_is_not_over_are_refused() -> None:
    simulator = bw.Simulator(bw.vllm(), LINEAR, bw.Limits(num_kv_blocks=1000))
    simulator.feed(requests(3))
    simulator.advance(0.11)
    with pytest.raises(InputError, match="not over"):
        steps(simulator.log, 1000, 16)


def test_only_runs_of_one_workload_are_subtracted() -> None:
    one, other = poisson(50, 5.0, 100, 10, seed=1), poisson(50, 5.0, 100, 10, seed=2)
    a, b = (bw.compare(load, LINEAR, policies={"vllm": "vllm"})["vllm"] for load in (one, other))
    with pytest.raises(InputError, match="one workload"):
        a - b
    with pytest.raises(InputError, match="did you mean 'ttft_s'"):
        (a - a).metric("ttft")


def moved(move: Callable[[Batch, Request], object]) -> Callable[[Batch], None]:
    """A policy that makes one wrong move on the first waiting request."""

    def policy(b: Batch) -> None:
        if b.edits == 0 and b.num_waiting > 0:
            move(b, b.waiting.first())

    return policy


@pytest.mark.parametrize(
    ("move", "said"),
    [
        (lambda b, r: b.chunk(r, 5), "does not prefill; admit it first"),
        (lambda b, r: b.grant(r), "does not decode"),
        (lambda b, r: b.pad(r, 5), "pad a chunk"),
        (lambda b, r: b.newest(), "none runs"),
        (lambda b, r: b.wake_at(float("nan")), "woken at nan s"),
        (lambda b, r: b.wake_at(-float("inf")), "woken at -inf s"),
        (lambda b, r: [b.admit(w, 1) for w in b.waiting.head(9)], "max_running is 2"),
    ],
)
def test_a_move_that_does_not_fit_the_request_is_refused(move: Callable[..., object], said: str) -> None:
    simulator = bw.Simulator(moved(move), LINEAR, bw.Limits(max_num_seqs=2))
    with pytest.raises(PolicyError, match=said):
        simulator.run([Request(i, 0.0, 20, 5) for i in range(4)])


def test_a_class_is_neither_a_policy_nor_a_cost() -> None:
    with pytest.raises(PolicyError, match="is a class"):
        bw.Simulator(bw.vllm, LINEAR)
    with pytest.raises(CostError, match="is a class"):
        bw.Simulator(bw.vllm(), bw.Constant)


@pytest.mark.parametrize("flag", [{"max_num_active_seqs": 40}, {"max_num_scheduled_tokens": 4000}])
def test_vllm_refuses_a_flag_beyond_the_one_that_bounds_it(flag: dict[str, int]) -> None:
    policy = bw.vllm(max_num_seqs=4, max_num_batched_tokens=8, **flag)
    with pytest.raises(LimitError, match=f"{next(iter(flag))} .* is over the"):
        bw.Simulator(policy, LINEAR)


def test_to_advance_until_no_time_at_all_is_refused() -> None:
    with pytest.raises(RequestError, match="nan"):
        bw.Simulator(bw.vllm(), LINEAR).advance(float("nan"))


@pytest.mark.parametrize("id", [-1, 1 << 38])
def test_an_id_that_cannot_key_its_blocks_is_refused(id: int) -> None:
    with pytest.raises(RequestError, match="id is outside"):
        Request(id, 0.0, 5, 5)


def test_two_requests_with_one_id_may_wait_by_priority_and_go_at_once() -> None:
    simulator = bw.Simulator(bw.vllm(policy="priority"), LINEAR)
    twins = [Request(7, 0.0, 20, 50) for _ in range(3)]
    for r in twins:
        simulator.submit(r)
        simulator.cancel(r, at=0.1)
    simulator.run()
    assert simulator.batch.num_waiting == simulator.batch.num_running == 0


def free_of_prefill(step: Step) -> float:
    return 1e-4 * (step.num_decodes + step.prefill_tokens)


def test_a_cost_is_never_asked_for_a_step_that_computes_nothing() -> None:
    load = [Request(i, 0.0, 8, 1) for i in range(50)]
    simulator = bw.Simulator(bw.vllm(), free_of_prefill, bw.Limits(max_num_seqs=4))
    simulator.run(load)
    assert simulator.now == pytest.approx(50 * 8 * 1e-4)


@pytest.mark.parametrize("policy", ["vllm", "vllm(async_scheduling=false)", "orca"])
def test_one_seat_and_one_token_is_the_queue_m_d_1_however_ends_are_seen(policy: str) -> None:
    """W = S + rho S / (2 (1 - rho)), here 2.167 s; theory: Pollaczek and Khinchine."""
    load = poisson(40_000, 0.7, 1, 1, seed=3)
    run = bw.compare(load, bw.Constant(1.0), bw.Limits(max_num_seqs=1), {"it": policy})["it"]
    assert run.summary.e2e.mean == pytest.approx(1 + 0.7 / 0.6, rel=0.05)


def test_a_policy_that_pauses_and_holds_for_ever_is_stopped() -> None:
    def policy(b: Batch) -> None:
        if b.edits > 0:
            return
        if b.num_waiting > 0:
            b.admit(b.waiting.first(), 20)
        elif b.num_decoding > 0:
            b.decodes_run = False
            b.hold(b.newest())

    simulator = bw.Simulator(policy, bw.Constant(0.1))
    with pytest.raises(PolicyError, match="computed nothing"):
        simulator.run([Request(i, 0.0, 20, 50) for i in range(2)])


@pytest.mark.parametrize("seconds", [1e308, 1e7, float("inf"), 0.0, -1.0])
def test_a_time_that_no_step_takes_is_refused(seconds: float) -> None:
    with pytest.raises(CostError, match="at most 1e"):
        bw.Simulator(bw.vllm(), lambda step: seconds).run([Request(0, 0.0, 5, 5)])


@pytest.mark.parametrize("ids", [[3, 3, 3], [0, 1, 7]])
def test_a_run_is_only_told_of_the_requests_of_its_workload(ids: list[int]) -> None:
    load = poisson(3, 5.0, 20, 5)
    simulator = bw.Simulator(bw.vllm(), LINEAR)
    simulator.run([Request(id, 0.0, 20, 5) for id in ids])
    with pytest.raises(InputError, match="ids are 0 to 2"):
        bw.Run("x", load, simulator).requests()


def test_static_auto_tries_the_seats_too() -> None:
    load = Workload.from_columns([0.0] * 6, [20] * 6, [5] * 6)
    run = bw.compare(load, LINEAR, bw.Limits(max_num_seqs=6), {"it": "static(auto)"})["it"]
    assert "batch_size is 6, which has the lowest mean E2E of 1, 2, 4, 6" in run.note


def test_the_table_in_python_shows_every_policy_too() -> None:
    load = Workload.open("chat").head(20)
    policies = {f"policy{i:02}": "dynamic" for i in range(40)}
    printed = bw.compare(load, LINEAR, policies=policies).table()
    assert all(name in printed for name in policies)
    assert max(map(len, printed.splitlines())) <= 110


def test_two_simulators_do_not_share_the_sums_of_a_hosted_function() -> None:
    cost = bw.Hosted(free_of_prefill)
    one, other = stretch_of(cost), stretch_of(cost)
    first, second = Step(), Step()
    first.quiet(3, 0, 30)
    second.quiet(5, 0, 50)
    alone = [stretch_of(bw.Hosted(free_of_prefill))(first, k) for k in (4, 9)]
    mixed = [one(first, 4), other(second, 7), one(first, 9)]
    assert [mixed[0], mixed[2]] == alone


def test_results_cross_processes() -> None:
    runs = bw.compare(Workload.open("chat").head(50), LINEAR, policies={"a": "static(4)", "b": "vllm"})
    for again in (pickle.loads(pickle.dumps(runs)), copy.deepcopy(runs)):
        assert again.to_json() == runs.to_json()


@for_every_seed(20)
def test_a_run_in_pieces_asks_the_policy_no_more_often_than_a_whole_one(seed: int) -> None:
    load = timed_workload(seed, asynchronous=False)
    whole, pieces = (
        bw.Simulator(bw.vllm(async_scheduling=False), LINEAR, limits_of(load["config"])) for _ in range(2)
    )
    whole.run(requests_of(load))
    pieces.feed(requests_of(load))
    for i in range(1, 300):
        pieces.advance(whole.now * i / 300)
    pieces.advance()
    assert pieces.num_decisions == whole.num_decisions


@pytest.mark.pure  # the constants are compiled in
@for_every_seed(30)
def test_a_log_that_is_packed_on_the_way_tells_the_same(seed: int) -> None:
    load = timed_workload(seed)
    found = []
    for first, following in ((10**6, 10**6), (3, 2)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_module, "FIRST_PACKING", first)
            patch.setattr(log_module, "NEXT_PACKING", following)
            simulator = bw.Simulator(bw.vllm(), LINEAR, limits_of(load["config"]))
            simulator.run(requests_of(load))
        b = simulator.batch
        rows = sorted(stays(simulator.log), key=lambda stay: (stay.seat, stay.until))
        found.append((rows, steps(simulator.log, b.blocks.size, b.blocks.block_size)))
    assert found[0] == found[1]


def command(*arguments: str, stdout: int | None = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "batchwright", *arguments]
    return subprocess.run(line, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--cost", "constant(1e308)"], "at most 1e+06"),
        (["--num-gpu-blocks-override", "9" * 20], "num_kv_blocks"),
        (["--block-size", "1000000000"], "block_size"),
        (["--gpu", "a100"], "give one of A100-80G-SXM"),
        (["--policies", "static(4)(8)"], "cannot be read"),
        (["--requests", "2000"], "has 1000 requests"),
        (["--gpu-memory-utilization", "0.9", "--num-gpu-blocks-override", "99"], "leave one of them out"),
    ],
)
def test_absurd_flags_are_one_line(flags: list[str], said: str) -> None:
    done = command("compare", "chat", *flags)
    assert done.returncode == 2 and done.stdout == "" and said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_seats_default_to_no_more_than_the_tokens_of_a_step() -> None:
    done = command("compare", "chat", "--requests", "20", "--max-num-batched-tokens", "512")
    assert done.returncode == 0 and "max_num_seqs is 512" in done.stdout


def test_a_full_disk_is_one_line() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with full.open("w") as out:
        done = command("version", stdout=out.fileno())
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1


def test_tables_that_are_too_wide_come_one_below_the_other() -> None:
    policies = ",".join(f"dynamic(max_batch_size={size})" for size in range(1, 13))
    done = command("compare", "chat", "--requests", "20", "--policies", policies)
    assert done.returncode == 0 and done.stdout.count("TTFT mean") > 2
    assert all(f"dynamic(max_batch_size={size})" in done.stdout for size in range(1, 13))
