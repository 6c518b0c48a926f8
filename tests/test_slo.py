"""An SLO is read from a text with units, and is met by those who kept all of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchwright as bw
from batchwright.durations import UNITS, duration, duration_text
from batchwright.errors import InputError
from batchwright.run import Run
from batchwright.slo import Slo, read_slo
from batchwright.workload import Workload
from test_run import case, every_policy

NAN = float("nan")
same_every_time = settings(derandomize=True, deadline=None, database=None)
limit = st.one_of(st.none(), st.integers(1, 10**7).map(lambda ms: ms / 1e3))


# --- text --------------------------------------------------------------------------------


def test_limits_are_read_with_their_units() -> None:
    found = read_slo("ttft=200ms, tpot=0.05s,e2e=10s,itl=1.5e2ms")
    assert found == Slo(ttft=0.2, tpot=0.05, e2e=10.0, itl=0.15)
    assert str(found) == "ttft=200ms,tpot=50ms,itl=150ms,e2e=10s"
    assert found.to_json() == {"ttft_s": 0.2, "tpot_s": 0.05, "itl_s": 0.15, "e2e_s": 10.0}


@same_every_time
@given(limit, limit, limit, limit)
def test_the_text_of_an_slo_is_read_as_the_same_slo(
    ttft: float | None, tpot: float | None, itl: float | None, e2e: float | None
) -> None:
    if not any((ttft, tpot, itl, e2e)):
        return
    found = Slo(ttft=ttft, tpot=tpot, itl=itl, e2e=e2e)
    assert read_slo(str(found)).limits == pytest.approx(found.limits, rel=1e-5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttft=200", "is not a number and a unit (ms, s)"),
        ("ttft=5m", "is not a number and a unit (ms, s)"),
        ("ttft=-1s", "is not a number"),
        ("ttft=0ms", "must be greater than 0"),
        ("ttft", "is not of the form name=limit"),
        ("", "is not of the form name=limit"),
        ("tftt=200ms", "did you mean 'ttft'?"),
        ("ttft=1s,ttft=2s", "given twice"),
    ],
)
def test_a_text_that_is_no_slo_is_refused_with_what_to_write(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read_slo(text)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_an_slo_needs_a_limit_that_can_be_met() -> None:
    for limits in ({}, {"ttft": 0.0}, {"e2e": NAN}):
        with pytest.raises(InputError, match="SLO"):
            Slo(**limits)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300.0), ("30s", 30.0), ("1h", 3600.0), ("200ms", 0.2), ("1.5 H", 5400.0), (".5d", 43200.0)],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("text", ["5", "m", "5 parsecs", "-5m", "1e400s", "0s", "nan s", "5m3"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(InputError, match="duration"):
        duration(text)


@same_every_time
@given(st.floats(1e-6, 1e6))
def test_the_text_of_a_duration_is_read_as_the_same(seconds: float) -> None:
    assert duration(duration_text(seconds)) == pytest.approx(seconds, rel=1e-5)


def test_units_are_those_of_clocks() -> None:
    assert all(duration(f"2{unit}") == 2 * seconds for unit, seconds in UNITS.items())


# --- attainment and goodput --------------------------------------------------------------


def served(policy: object, **limits: int) -> Run:
    """Four requests, one second a step: outputs of 1, 3, 3 and 3 tokens, one prompt too long for 20."""
    load = Workload.from_columns([0.0, 0.0, 0.0, 4.0], [4, 4, 30, 4], [1, 3, 3, 3])
    simulator = bw.Simulator(policy, bw.Constant(1.0), bw.Limits(num_kv_blocks=100, **limits))  # type: ignore[arg-type]
    simulator.run(load.requests())
    return Run("mine", load, simulator)


@every_policy
def test_attainment_is_the_share_of_all_requests_and_goodput_their_rate(name: str) -> None:
    run = case(3, name).run
    slo = Slo(ttft=float(np.nanmedian(run.requests()["ttft_s"])), e2e=1e9)
    found = run.estimates(slo)
    met = run.requests()["ttft_s"] <= slo.limits["ttft"]
    assert found["attainment"] == met.mean() and 0 < found["attainment"] < 1
    assert found["goodput"] == pytest.approx(met.sum() / run.summary.duration, rel=1e-12)


def test_a_rejected_request_has_missed_and_one_token_has_no_gap_to_miss() -> None:
    run = served(bw.vllm(), max_model_len=20)
    assert run.met(Slo(tpot=0.5)).tolist() == [True, False, False, False]  # type: ignore[union-attr]
    assert run.met(Slo(tpot=1.0, itl=1.0)).tolist() == [True, True, False, True]  # type: ignore[union-attr]
    assert run.estimates(Slo(tpot=1.0))["attainment"] == 0.75


def test_an_itl_limit_is_one_on_the_greatest_gap() -> None:
    load = Workload.from_columns([0.0, 0.5], [4, 100], [4, 1])
    simulator = bw.Simulator(bw.vllm(async_scheduling=False), bw.Linear(0.1, prefill=0.01), bw.Limits())
    simulator.run(load.requests())
    run = Run("vllm", load, simulator)
    greatest = run.gaps().greatest[0]
    assert greatest > 2 * run.requests()["tpot_s"][0] / 2
    assert run.met(Slo(itl=greatest * 0.99)).tolist() == [False, True]  # type: ignore[union-attr]
    assert run.met(Slo(itl=greatest)).tolist() == [True, True]  # type: ignore[union-attr]


def test_limits_on_tokens_that_come_together_do_not_apply_and_alone_are_no_verdict() -> None:
    run = served(bw.static(2), max_model_len=50)
    assert run.met(Slo(tpot=0.001)) is None and np.isnan(run.estimates(Slo(tpot=0.001))["attainment"])
    assert np.isnan(run.estimates(Slo(itl=0.001))["goodput"])
    both = run.met(Slo(tpot=0.001, ttft=4.0))
    assert np.array_equal(both, run.requests()["e2e_s"] <= 4.0)


def test_without_an_slo_nothing_is_attained_or_missed() -> None:
    found = case(3, "vllm").run.estimates()
    assert np.isnan([found["attainment"], found["goodput"]]).all()
