"""Windows share out the requests and the tokens of a run, each to one."""

from __future__ import annotations

import numpy as np
import pytest

import batchwright as bw
from batchwright.errors import InputError
from batchwright.metrics import spread
from batchwright.run import Run
from batchwright.slo import Slo
from batchwright.workload import Workload
from expansion import token_times
from strategies import for_every_seed
from test_run import Case, case, every_policy

pytestmark = pytest.mark.pure  # the layers above the core are pure Python


def length_of(found: Case, seed: int) -> float:
    return max(found.simulator.now / (1 + seed % 7), 0.01)


@every_policy
@for_every_seed(6)
def test_every_request_and_every_token_is_in_one_window(name: str, seed: int) -> None:
    found = case(seed, name)
    rows = found.run.windows(length_of(found, seed))
    assert sum(row.num_requests for row in rows) == len(found.requests)
    tokens = sum(row.output_throughput * (row.end - row.start) for row in rows)
    assert tokens == pytest.approx(found.run.load.output.sum(), rel=1e-9)
    assert [row.start for row in rows[1:]] == [row.end for row in rows[:-1]]
    assert rows[0].start == 0.0 and rows[-1].waiting == 0


@every_policy
@for_every_seed(6)
def test_a_window_has_the_spreads_of_those_that_came_and_the_tokens_that_were_made(
    name: str, seed: int
) -> None:
    found = case(seed, name)
    columns = found.run.requests()
    made = np.sort(np.concatenate(list(token_times(found.run, found.simulator.stretch).values())))
    rows = found.run.windows(length_of(found, seed))
    for i, row in enumerate(rows):
        is_last = i == len(rows) - 1
        came = (columns["arrival_s"] >= row.start) & ((columns["arrival_s"] < row.end) | is_last)
        assert row.num_requests == came.sum() and row.rate == pytest.approx(
            came.sum() / (row.end - row.start)
        )
        for metric in ("ttft", "tpot", "e2e"):
            expected = spread(columns[f"{metric}_s"][came])
            assert getattr(row, metric).to_json() == expected.to_json()
        tokens = ((made > row.start) & (made <= row.end)).sum()
        assert row.output_throughput * (row.end - row.start) == pytest.approx(tokens, abs=1e-6)


@pytest.mark.parametrize("name", ["synchronous", "dynamic", "orca"])
@for_every_seed(6)
def test_the_queue_of_a_window_is_who_has_come_and_was_not_admitted(name: str, seed: int) -> None:
    found = case(seed, name)
    columns = found.run.steps()
    for row in found.run.windows(length_of(found, seed))[:-1]:
        step = np.searchsorted(columns["start_s"], row.end, side="right") - 1
        came = np.searchsorted(found.load.arrival, row.end, side="right")
        come = np.searchsorted(found.load.arrival, columns["start_s"][step], side="right") if step >= 0 else 0
        before = columns["waiting"][step] if step >= 0 else 0
        assert row.waiting == before + came - come


def test_a_window_says_how_many_of_its_requests_met_the_slo() -> None:
    load = Workload.from_columns([0.0, 1.0, 10.0], [4, 4, 4], [3, 3, 3])
    simulator = bw.Simulator(bw.vllm(max_num_seqs=1), bw.Constant(1.0))
    simulator.run(load.requests())
    run = Run("vllm", load, simulator)
    first, _, last = run.windows(5.0, Slo(ttft=1.5))
    assert (first.attainment, last.attainment) == (0.5, 1.0) and first.end == 5.0 and last.end == 13.0
    assert np.isnan(run.windows(5.0)[0].attainment)
    assert first.to_json()["ttft_s"]["p50"] == 2.0 and run.windows(5.0)[0].to_json()["attainment"] is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), 1e-9])
def test_windows_are_longer_than_nothing_and_not_too_many(seconds: float) -> None:
    run = case(1, "vllm").run
    with pytest.raises(InputError, match="windows"):
        run.windows(seconds)


def test_one_window_holds_a_run_that_is_shorter() -> None:
    found = case(4, "vllm")
    (row,) = found.run.windows(1e6)
    assert row.num_requests == len(found.requests) and row.end == 1e6
