"""Metrics are what their definitions say."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.metrics import NOTHING, STATISTICS, Spread, spread, statistic, tpot

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

NAN = float("nan")
seconds = st.floats(0.0, 1e6)
samples = st.lists(seconds, min_size=1, max_size=60)
with_gaps = st.lists(st.one_of(seconds, st.just(NAN)), max_size=60)
same_every_time = settings(derandomize=True, deadline=None, database=None)


def percentile(values: list[float], share: float) -> float:
    """Definition 7 of Hyndman and Fan, by hand."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


# --- spread ------------------------------------------------------------------------------


@same_every_time
@given(samples)
def test_a_spread_is_mean_and_percentiles_by_hand_and_by_numpy(values: list[float]) -> None:
    found = spread(np.array(values))
    assert found.mean == pytest.approx(sum(values) / len(values), rel=1e-12)
    assert found.p50 == pytest.approx(percentile(values, 0.5), rel=1e-12)
    for share in (50, 90, 95, 99):
        assert getattr(found, f"p{share}") == pytest.approx(percentile(values, share / 100), rel=1e-12)
        assert getattr(found, f"p{share}") == np.percentile(values, share, method="linear")


def test_percentiles_interpolate_between_the_two_nearest_values() -> None:
    found = spread(np.array([4.0, 1.0]))
    assert (found.mean, found.p50, found.p99) == (2.5, 2.5, 1.0 + 0.99 * 3.0)
    assert spread(np.arange(101.0)) == Spread(50.0, 50.0, 90.0, 95.0, 99.0)
    assert spread(np.array([7.0])) == Spread(7.0, 7.0, 7.0, 7.0, 7.0)


@same_every_time
@given(with_gaps)
def test_undefined_values_do_not_count(values: list[float]) -> None:
    found = spread(np.array(values, float))
    defined = [value for value in values if not math.isnan(value)]
    assert found.is_defined == bool(defined)
    if defined:
        assert found == spread(np.array(defined))
    else:
        assert np.isnan([found.mean, found.p50, found.p90, found.p95, found.p99]).all()


def test_nothing_has_no_statistics_and_they_are_not_zero() -> None:
    for nothing in (np.array([]), np.array([NAN, NAN])):
        found = spread(nothing)
        assert not found.is_defined
        assert np.isnan([found.mean, found.p50, found.p90, found.p95, found.p99]).all()


@same_every_time
@given(samples)
def test_a_spread_does_not_depend_on_the_order(values: list[float]) -> None:
    found, sorted_ = spread(np.array(values)), spread(np.array(sorted(values)))
    assert (found.p50, found.p99) == (sorted_.p50, sorted_.p99)
    assert found.mean == pytest.approx(sorted_.mean, rel=1e-12)


# --- TPOT --------------------------------------------------------------------------------


def test_tpot_is_undefined_for_one_token_and_shares_the_time_among_the_others() -> None:
    found = tpot(np.array([1.0, 1.0, 2.0]), np.array([1.0, 3.0, 2.5]), np.array([1, 2, 6]))
    assert np.isnan(found[0]) and found[1:].tolist() == [2.0, 0.1]


def test_tpot_is_undefined_for_who_has_no_times_and_for_no_token() -> None:
    assert np.isnan(tpot(np.array([NAN, 1.0]), np.array([NAN, 1.0]), np.array([5, 0]))).all()


@same_every_time
@given(st.floats(0, 1e3), st.floats(1e-3, 1e3), st.integers(2, 10_000))
def test_end_to_end_time_is_first_token_and_all_gaps(first: float, gap: float, output: int) -> None:
    finished = first + gap * (output - 1)
    found = tpot(np.array([first]), np.array([finished]), np.array([output]))[0]
    assert first + found * (output - 1) == pytest.approx(finished, rel=1e-12)


# --- counts ------------------------------------------------------------------------------


@same_every_time
@given(st.lists(st.tuples(seconds, st.integers(1, 9)), min_size=1, max_size=40))
def test_a_spread_of_counts_is_that_of_every_value_written_out(pairs: list[tuple[float, int]]) -> None:
    values, counts = (np.array(column) for column in zip(*pairs, strict=True))
    found, listed = spread(values, counts), spread(np.repeat(values, counts))
    for name in STATISTICS:
        assert getattr(found, name) == pytest.approx(getattr(listed, name), rel=1e-9, abs=1e-9)


def test_a_value_that_counts_nothing_has_no_part_in_a_spread() -> None:
    assert spread(np.array([5.0, 1.0]), np.array([0, 3])) == Spread(1.0, 1.0, 1.0, 1.0, 1.0)
    assert not spread(np.array([5.0]), np.array([0])).is_defined


@same_every_time
@given(with_gaps)
def test_a_statistic_is_that_of_the_spread(values: list[float]) -> None:
    found = spread(np.array(values, float))
    for name in STATISTICS:
        assert statistic(np.array(values, float), name) == pytest.approx(getattr(found, name), nan_ok=True)


def test_a_spread_in_json_has_null_for_what_is_not_applicable() -> None:
    assert NOTHING.to_json() == dict.fromkeys(STATISTICS)
    assert spread(np.array([2.0])).to_json() == dict.fromkeys(STATISTICS, 2.0)
