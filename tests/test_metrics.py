"""Metrics are what their definitions say, and an interval covers as often as it claims."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.metrics import PARTS, Difference, Spread, paired, spread, tpot

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
def test_a_spread_is_mean_median_and_99th_percentile_by_hand_and_by_numpy(values: list[float]) -> None:
    found = spread(np.array(values))
    assert found.mean == pytest.approx(sum(values) / len(values), rel=1e-12)
    assert found.p50 == pytest.approx(percentile(values, 0.5), rel=1e-12)
    assert found.p99 == pytest.approx(percentile(values, 0.99), rel=1e-12)
    assert [found.p50, found.p99] == np.percentile(values, (50, 99), method="linear").tolist()


def test_percentiles_interpolate_between_the_two_nearest_values() -> None:
    assert spread(np.array([4.0, 1.0])) == Spread(2.5, 2.5, 1.0 + 0.99 * 3.0)
    found = spread(np.arange(101.0))
    assert (found.p50, found.p99) == (50.0, 99.0)
    assert spread(np.array([7.0])) == Spread(7.0, 7.0, 7.0)


@same_every_time
@given(with_gaps)
def test_undefined_values_do_not_count(values: list[float]) -> None:
    found = spread(np.array(values, float))
    defined = [value for value in values if not math.isnan(value)]
    assert found.is_defined == bool(defined)
    if defined:
        assert found == spread(np.array(defined))
    else:
        assert np.isnan([found.mean, found.p50, found.p99]).all()


def test_nothing_has_no_statistics_and_they_are_not_zero() -> None:
    for nothing in (np.array([]), np.array([NAN, NAN])):
        found = spread(nothing)
        assert not found.is_defined
        assert np.isnan([found.mean, found.p50, found.p99]).all()


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


# --- paired differences ------------------------------------------------------------------


def coverage(truth: float, size: int, repeats: int = 2000) -> float:
    """How often the interval of `size` independent pairs holds their true difference."""
    random = np.random.default_rng(20)
    hits = 0
    for _ in range(repeats):
        common = random.exponential(5.0, size)
        found = paired(common + random.normal(truth, 1.0, size), common)
        hits += found.low <= truth <= found.high
    return hits / repeats


@pytest.mark.parametrize("size", [20, 200])
def test_the_interval_covers_the_truth_95_times_in_100(size: int) -> None:
    # of 2000 repeats: standard error 0.5 %, so 2 % are four of them
    assert coverage(0.3, size) == pytest.approx(0.95, abs=0.02)


def test_the_interval_of_normal_values_is_students() -> None:
    values = np.random.default_rng(1).normal(2.0, 1.0, PARTS)
    found = paired(values, np.zeros(PARTS))
    half = 2.0930 * values.std(ddof=1) / math.sqrt(PARTS)
    assert found.mean == pytest.approx(values.mean(), rel=1e-12)
    assert found.high - found.mean == pytest.approx(half, rel=1e-9)
    assert found.mean - found.low == pytest.approx(half, rel=1e-9)


def test_neighbours_that_are_alike_widen_the_interval() -> None:
    random = np.random.default_rng(2)
    shuffled = np.repeat(random.normal(0.0, 1.0, 20), 50)
    alike = paired(shuffled, np.zeros(1000))
    random.shuffle(shuffled)
    independent = paired(shuffled, np.zeros(1000))
    assert alike.high - alike.low > 3 * (independent.high - independent.low)


@same_every_time
@given(st.lists(st.tuples(seconds, seconds), min_size=PARTS, max_size=80))
def test_the_difference_the_other_way_round_is_its_negative(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    there, back = paired(a, b), paired(b, a)
    assert back.mean == pytest.approx(-there.mean, rel=1e-9, abs=1e-6)
    assert back.low == pytest.approx(-there.high, rel=1e-9, abs=1e-6)
    assert there.low <= there.mean <= there.high


def test_only_requests_that_have_both_values_are_paired() -> None:
    a, b = np.arange(60.0), np.zeros(60)
    a[::3], b[1::3] = NAN, NAN
    both = np.arange(2.0, 60.0, 3.0)
    assert paired(a, b) == paired(both, np.zeros(20))
    assert paired(a, b).mean == both.mean()


@pytest.mark.parametrize("count", [1, PARTS - 1])
def test_too_few_pairs_have_a_mean_and_no_interval(count: int) -> None:
    found = paired(np.full(count, 3.0), np.full(count, 1.0))
    assert found.mean == 2.0 and np.isnan([found.low, found.high]).all()
    assert not found.is_clear


def test_no_pair_has_no_mean() -> None:
    found = paired(np.array([NAN, 1.0]), np.array([1.0, NAN]))
    assert np.isnan([found.mean, found.low, found.high]).all() and not found.is_clear


def test_a_difference_is_clear_if_its_interval_excludes_zero() -> None:
    assert Difference(1.0, 0.1, 1.9).is_clear and Difference(-1.0, -1.9, -0.1).is_clear
    assert not Difference(1.0, -0.1, 2.1).is_clear
