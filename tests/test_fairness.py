"""Clients are compared by their latency per token, requests with themselves on an idle server."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchwright as bw
from batchwright.client_report import client_table
from batchwright.errors import InputError
from batchwright.plain_table import table_text
from batchwright.run import Run
from batchwright.run.fairness import jain
from batchwright.workload import Workload
from strategies import for_every_seed

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

LINEAR = bw.Linear(0.01, 1e-4, 1e-4, 1e-6, 1e-9)
same_every_time = settings(derandomize=True, deadline=None, database=None)
positive = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30)


def ran(load: Workload, policy: Any, cost: Any = LINEAR, **limits: Any) -> Run:
    simulator = bw.Simulator(policy, cost, bw.Limits(**limits))
    simulator.run(load.requests())
    return Run("mine", load, simulator)


def two_clients(output: tuple[int, int], gap: float = 0.0) -> Workload:
    return Workload.from_columns(np.arange(40) * gap, [50] * 40, list(output) * 20, client=[0, 1] * 20)


@same_every_time
@given(positive)
def test_jains_index_is_one_for_equals_and_at_least_one_over_n(values: list[float]) -> None:
    assert 1 / len(values) - 1e-12 <= jain(np.array(values)) <= 1 + 1e-12
    assert jain(np.full(len(values), values[0])) == pytest.approx(1.0)


def test_jains_index_of_one_who_waits_among_n_is_one_over_n() -> None:
    assert jain(np.array([5.0, 0.0, 0.0, 0.0])) == 0.25
    assert np.isnan(jain(np.array([])))


def test_clients_that_are_served_alike_are_fair_and_others_are_not() -> None:
    alike = ran(two_clients((20, 20), gap=5.0), bw.vllm()).fairness
    assert alike.num_clients == 2 and alike.jain == pytest.approx(1.0, abs=1e-6)
    short_waits = ran(two_clients((1, 400)), bw.static(4)).fairness  # one token costs as much as 400
    assert short_waits.jain < 0.6


def test_rows_of_clients_are_the_statistics_of_their_requests() -> None:
    run = ran(two_clients((5, 30)), bw.vllm(max_num_seqs=4))
    rows, columns = run.clients(), run.requests()
    assert rows["client"].tolist() == [0, 1] and rows["requests"].tolist() == [20, 20]
    assert rows["output_tokens"].tolist() == [100, 600]
    for client in (0, 1):
        mine = run.load.client == client
        assert rows["ttft_s_p90"][client] == np.percentile(columns["ttft_s"][mine], 90)
        assert rows["normalised_s_mean"][client] == pytest.approx(columns["normalised_s"][mine].mean())
        assert rows["slowdown_max"][client] == run.slowdown[mine].max()


def test_a_load_without_clients_has_no_rows_and_no_index() -> None:
    run = ran(Workload.from_columns([0.0, 0.0], [5, 5], [5, 5]), bw.vllm())
    with pytest.raises(InputError, match="names no clients"):
        run.clients()
    assert np.isnan(run.fairness.jain) and run.fairness.to_json()["jain"] is None
    assert run.fairness.max_slowdown > 1 and run.fairness.client == -1


def test_the_worst_client_is_the_one_that_waits_longest() -> None:
    load = Workload.from_columns([0.0] * 3 + [50.0] * 3, [50] * 6, [20] * 6, client=[4, 4, 4, 2, 6, 2])
    found = ran(load, bw.vllm(max_num_seqs=1))
    rows = found.clients()
    assert found.fairness.worst_client == 4
    assert found.fairness.worst_ttft == rows["ttft_s_p99"].max() == rows["ttft_s_p99"][1]
    assert found.fairness.to_json()["worst_client_ttft_s_p99"] == found.fairness.worst_ttft


def test_slowdowns_are_alike_where_lengths_are_not() -> None:
    # Each is alone, so each has a slowdown of 1, though a short answer to a long prompt has more
    # seconds a token.
    load = Workload.from_columns(np.arange(40) * 60.0, [50, 2000] * 20, [400, 4] * 20, client=[0, 1] * 20)
    found = ran(load, bw.vllm(async_scheduling=False))
    assert found.fairness.jain < 0.7
    assert found.fairness.jain_slowdown == pytest.approx(1.0)
    assert found.clients()["slowdown_mean"] == pytest.approx([1.0, 1.0])


def test_a_table_has_every_client_or_those_that_wait_longest() -> None:
    few = compared(two_clients((20, 20), gap=1.0))
    text = table_text(client_table(few))
    assert [line.split()[:2] for line in text.splitlines()[-2:]] == [["0", "20"], ["1", "20"]]
    # Client 30 sends all at once, and waits longest; 13 clients have one request each.
    arrivals, client = [1000.0 * i for i in range(14)] + [13_000.0] * 3, [*range(13), *[30] * 4]
    load = Workload.from_columns(arrivals, [50 + 10 * i for i in range(17)], [20] * 17, client=client)
    text = table_text(client_table(compared(load)))
    shown = [line.split()[0] for line in text.splitlines()[-10:]]
    assert "the 10 of 14 clients whose P99 is greatest" in " ".join(text.split())
    assert shown == ["4", "5", "6", "7", "8", "9", "10", "11", "12", "30"]
    assert text in compared(load).table()


def test_one_client_needs_no_table() -> None:
    alone = Workload.from_columns([0.0, 0.0], [5, 5], [5, 5], client=[7, 7])
    nobody = Workload.from_columns([0.0, 0.0], [5, 5], [5, 5])
    assert client_table(compared(alone)) is None and client_table(compared(nobody)) is None
    assert compared(nobody).to_json()["policies"]["vllm"]["clients"] is None


def test_json_has_the_columns_of_the_clients() -> None:
    load = Workload.from_columns([0.0, 0.0, 1.0], [5, 50, 5], [5, 5, 5], client=[3, 7, 9])
    found = bw.compare(load, LINEAR, bw.Limits(num_kv_blocks=100, max_model_len=20), {"vllm": bw.vllm()})
    rows = found.to_json()["policies"]["vllm"]["clients"]
    assert rows["client"] == [3, 7, 9] and rows["finished"] == [1, 0, 1]
    assert rows["e2e_s_p99"][1] is None and rows["slowdown_mean"][1] is None
    assert rows["ttft_s_p50"][0] == found["vllm"].clients()["ttft_s_p50"][0]
    json.dumps(rows, allow_nan=False)


def compared(load: Workload) -> bw.Runs:
    return bw.compare(load, LINEAR, bw.Limits(max_num_seqs=1), {"vllm": bw.vllm()})


def test_a_client_without_an_end_is_counted_and_not_averaged() -> None:
    load = Workload.from_columns([0.0, 0.0, 1.0], [5, 50, 5], [5, 5, 5], client=[3, 7, 9])
    found = ran(load, bw.vllm(), num_kv_blocks=100, max_model_len=20)
    assert found.fairness.num_clients == 3 and found.fairness.num_starved == 1
    assert found.clients()["finished"].tolist() == [1, 0, 1]
    assert np.isnan(found.clients()["e2e_s_p99"][1]) and np.isnan(found.slowdown[1])
    assert found.fairness.jain == pytest.approx(1.0, abs=0.01)


@for_every_seed(15)
def test_a_request_alone_has_a_slowdown_of_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    load = Workload.from_columns(
        np.arange(10) * 100.0, random.integers(1, 300, 10), random.integers(1, 50, 10)
    )
    policy = [bw.vllm(), bw.vllm(async_scheduling=False), bw.orca()][seed % 3]
    run = ran(load, policy, max_num_batched_tokens=64 if seed % 3 < 2 else 2048, max_num_seqs=8)
    np.testing.assert_allclose(run.slowdown, 1.0, rtol=1e-9)


@for_every_seed(10)
def test_company_only_slows_down(seed: int) -> None:
    random = np.random.default_rng(seed)
    load = Workload.from_columns(
        np.sort(random.random(60)), random.integers(1, 300, 60), random.integers(1, 50, 60)
    )
    for policy in (bw.vllm(), bw.static(8), bw.dynamic(8)):
        run = ran(load, policy, max_num_batched_tokens=512)
        assert run.slowdown.min() >= 1 - 1e-9
        assert run.fairness.max_slowdown == run.slowdown.max() > 1
