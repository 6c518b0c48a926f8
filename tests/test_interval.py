"""An interval covers the truth as often as it claims, and says nothing where it cannot."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.interval import (
    PARTS,
    Interval,
    around,
    bootstrap_interval,
    lag_one,
    paired_interval,
    section_interval,
    series_interval,
    student,
    t_interval,
    warm_up,
)
from batchwright.metrics import statistic
from strategies import for_every_seed

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

NAN = float("nan")
seconds = st.floats(0.0, 1e6)
same_every_time = settings(derandomize=True, deadline=None, database=None)
Make = Callable[[np.random.Generator], np.ndarray]


def coverage(make: Make, truth: float, name: str = "mean", repeats: int = 300) -> float:
    """How often the interval of one series holds the truth."""
    random = np.random.default_rng(20)
    found = [series_interval(make(random), name) for _ in range(repeats)]
    return sum(interval.low <= truth <= interval.high for interval in found) / repeats


def autoregressive(size: int, memory: float) -> Make:
    """x[i] = memory x[i - 1] + noise, of variance 1."""

    def make(random: np.random.Generator) -> np.ndarray:
        noise = random.normal(0.0, math.sqrt(1 - memory**2), size)
        found, last = np.empty(size), random.normal()
        for i, each in enumerate(noise.tolist()):
            found[i] = last = memory * last + each
        return found

    return make


def waits(size: int, load: float) -> Make:
    """Waits of an M/M/1 queue that starts empty, by Lindley's recursion; a service takes 1 s on average."""

    def make(random: np.random.Generator) -> np.ndarray:
        steps = random.exponential(1.0, size) - random.exponential(1 / load, size)
        sums = np.concatenate(([0.0], steps.cumsum()))
        return sums - np.minimum.accumulate(sums)

    return make


# --- Student -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "freedom", "expected"),
    [  # Abramowitz and Stegun, table 26.10, and closed forms: 1 is Cauchy's law, 2 is algebraic
        (0.975, 1, math.tan(math.pi * 0.475)),
        (0.995, 1, math.tan(math.pi * 0.495)),
        (0.975, 2, 0.95 * math.sqrt(2 / (1 - 0.95**2))),
        (0.95, 2, 0.9 * math.sqrt(2 / (1 - 0.9**2))),
        (0.975, 3, 3.1824463),
        (0.975, 9, 2.2621572),
        (0.975, 19, 2.0930241),
        (0.95, 29, 1.6991270),
        (0.995, 30, 2.7499957),
        (0.975, 99, 1.9842170),
        (0.975, 100, 1.9839715),
        (0.975, 1000, 1.9623391),
        (0.975, 10**9, 1.9599640),
    ],
)
def test_quantiles_of_student_are_those_of_the_tables(share: float, freedom: int, expected: float) -> None:
    assert student(share, freedom) == pytest.approx(expected, abs=1e-6)
    assert student(1 - share, freedom) == pytest.approx(-expected, abs=1e-6)


@pytest.mark.parametrize("share", [0.6, 0.9, 0.975, 0.995])
def test_the_expansion_meets_the_sum(share: float) -> None:
    below, at, above = (student(share, freedom) for freedom in (98, 99, 100))
    assert below > at > above
    assert above - at == pytest.approx((at - below) * (98 * 99) / (99 * 100), rel=1e-3)


@pytest.mark.parametrize(("share", "freedom"), [(0.0, 5), (1.0, 5), (0.5, 0)])
def test_there_is_no_quantile_without_a_share_and_a_degree_of_freedom(share: float, freedom: int) -> None:
    with pytest.raises(InputError, match="no quantile"):
        student(share, freedom)


# --- one series --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [20, 200])
def test_the_interval_of_independent_values_covers_95_times_in_100(size: int) -> None:
    # of 1000 repeats: standard error 0.7 %, so 2 % are nearly three of them
    found = coverage(
        lambda random: random.exponential(5.0, size) + random.normal(0, 9, size), 5.0, repeats=1500
    )
    assert found == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize(
    ("size", "memory", "least"), [(500, 0.9, 0.88), (4000, 0.9, 0.92), (4000, 0.5, 0.92)]
)
def test_the_interval_covers_the_mean_of_values_that_remember(size: int, memory: float, least: float) -> None:
    naive = coverage(autoregressive(20, memory), 0.0, repeats=200)  # sections of one value
    found = coverage(autoregressive(size, memory), 0.0, repeats=200)
    assert least <= found <= 0.985
    assert naive < found or memory < 0.9


@pytest.mark.parametrize(("name", "share"), [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)])
def test_the_interval_covers_percentiles(name: str, share: float) -> None:
    truth = NormalDist().inv_cdf(share)
    assert 0.91 <= coverage(autoregressive(4000, 0.5), truth, name, repeats=200) <= 0.985


def test_the_interval_covers_the_wait_in_a_queue() -> None:
    mean, p95 = 0.8 / 0.2, math.log(0.8 / 0.05) / 0.2  # of M/M/1: P(wait > t) = load exp(-(1 - load) t)
    assert 0.90 <= coverage(waits(30_000, 0.8), mean, repeats=200) <= 0.985
    assert 0.88 <= coverage(waits(30_000, 0.8), p95, "p95", repeats=200) <= 0.985


@pytest.mark.parametrize("name", ["mean", "p90", "p99"])
def test_ten_short_loads_hold_the_mean_of_such_loads_though_one_does_not(name: str) -> None:
    make, random = waits(500, 0.8), np.random.default_rng(7)
    runs = [make(random) for _ in range(4000)]
    values = [statistic(run, name) for run in runs]
    truth = float(np.mean(values))
    many = [t_interval(values[i : i + 10]) for i in range(0, len(values), 10)]
    assert 0.86 <= np.mean([found.low <= truth <= found.high for found in many]) <= 0.98
    if name != "p99":  # 50 requests a section have none beyond it
        one = [series_interval(run, name) for run in runs[:500]]
        assert np.mean([found.low <= truth <= found.high for found in one]) < 0.86


def test_two_that_are_alike_in_law_are_seldom_told_apart() -> None:
    random = np.random.default_rng(8)
    clear = {"mean": 0, "p50": 0, "p90": 0, "p99": 0}
    for _ in range(150):
        queue = waits(1999, 0.6)(random)
        other = random.exponential(1.0, 2000)
        is_first = random.random(2000) < 0.5  # who is served well is a coin's choice
        a, b = np.where(is_first, queue, queue + other), np.where(is_first, queue + other, queue)
        for name in clear:
            clear[name] += paired_interval(a, b, name).is_clear
            assert paired_interval(a, a + 0.3 * other, "mean").is_clear
    assert max(clear.values()) <= 18  # 5 in 100 are 7.5, with a standard error of 2.7


def test_neighbours_that_are_alike_widen_the_interval() -> None:
    random = np.random.default_rng(2)
    values = np.repeat(random.normal(0.0, 1.0, PARTS), 50)
    alike = series_interval(values)
    random.shuffle(values)
    assert alike.half > 3 * series_interval(values).half


def test_sections_that_are_alike_widen_it_once_more() -> None:
    rising, mixed = np.arange(20.0), np.arange(20.0) * 7 % 20
    assert lag_one(rising.tolist()) > 0.8 > 0.2 > lag_one(mixed.tolist())
    plain = section_interval(9.5, mixed.tolist())
    assert section_interval(9.5, rising.tolist()).half == pytest.approx(math.sqrt(3) * plain.half)
    assert plain.half == pytest.approx(student(0.975, 19) * rising.std(ddof=1) / math.sqrt(20), rel=1e-9)


def test_a_difference_that_grows_from_nothing_is_clear() -> None:
    assert series_interval(np.linspace(0.0, 100.0, 1000)).is_clear


def test_a_section_too_short_for_a_percentile_has_no_interval() -> None:
    values = np.arange(999.0)
    assert not series_interval(values, "p99").is_known and series_interval(values, "p95").is_known
    assert series_interval(np.arange(1000.0), "p99").is_known
    assert series_interval(values, "p99").value == np.percentile(values, 99)


@pytest.mark.parametrize("count", [0, 1, PARTS - 1])
def test_too_few_values_have_no_interval(count: int) -> None:
    found = series_interval(np.full(count, 3.0))
    assert not found.is_known and not found.is_clear
    assert found.value == 3.0 if count else math.isnan(found.value)


def test_undefined_values_have_no_part_in_an_interval() -> None:
    values = np.random.default_rng(3).normal(size=60)
    assert series_interval(np.insert(values, [0, 7, 60], NAN)) == series_interval(values)


# --- pairs -------------------------------------------------------------------------------


def test_what_both_runs_share_cancels() -> None:
    random = np.random.default_rng(4)
    common = random.exponential(5.0, 4000)
    a, b = common + random.normal(0.1, 0.1, 4000), common
    for name in ("mean", "p50", "p95"):
        paired, single = paired_interval(a, b, name), series_interval(a, name)
        assert paired.is_clear and paired.half < single.half / 5


@pytest.mark.parametrize("name", ["mean", "p95"])
def test_paired_intervals_cover_the_difference(name: str) -> None:
    random, hits = np.random.default_rng(5), 0
    for _ in range(250):
        common = random.exponential(5.0, 1000)
        found = paired_interval(1.1 * common, common + random.normal(0, 0.1, 1000), name)
        truth = 0.5 if name == "mean" else 0.1 * 5 * math.log(20)
        hits += found.low <= truth <= found.high
    assert (0.90 if name == "mean" else 0.88) <= hits / 250 <= 0.985  # few requests decide on a percentile


@same_every_time
@given(st.lists(st.tuples(seconds, seconds), min_size=PARTS, max_size=80))
def test_the_difference_the_other_way_round_is_its_negative(pairs: list[tuple[float, float]]) -> None:
    a, b = np.array(pairs).T
    there, back = paired_interval(a, b), paired_interval(b, a)
    assert back.value == pytest.approx(-there.value, rel=1e-9, abs=1e-6)
    assert back.low == pytest.approx(-there.high, rel=1e-9, abs=1e-6)
    assert there.low <= there.value <= there.high


@pytest.mark.parametrize("name", ["mean", "p50"])
def test_only_requests_that_have_both_values_are_paired(name: str) -> None:
    a, b = np.arange(240.0), np.zeros(240)
    a[::3], b[1::3] = NAN, NAN
    both = np.arange(2.0, 240.0, 3.0)
    assert paired_interval(a, b, name) == paired_interval(both, np.zeros(80), name)


def test_no_pair_has_no_difference() -> None:
    for name in ("mean", "p99"):
        found = paired_interval(np.array([NAN, 1.0]), np.array([1.0, NAN]), name)
        assert np.isnan([found.value, found.low, found.high]).all() and not found.is_clear


@pytest.mark.parametrize("name", ["mean", "p50"])
def test_rounding_is_no_difference(name: str) -> None:
    values = np.random.default_rng(8).exponential(5.0, 400)
    found = paired_interval(values * (1 + 1e-14), values, name)
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0) and not found.is_clear
    assert paired_interval(values * 1.001, values, name).is_clear


def test_a_difference_is_clear_if_its_interval_excludes_zero() -> None:
    assert around(1.0, 0.9).is_clear and around(-1.0, 0.9).is_clear
    assert not around(1.0, 1.1).is_clear and not around(1.0, NAN).is_clear
    assert Interval(value=1.0, low=0.5, high=2.0).half == 0.75


# --- several runs ------------------------------------------------------------------------


def test_replications_cover_their_mean_and_a_bootstrap_covers_its_original() -> None:
    random, hits = np.random.default_rng(6), [0, 0]
    for _ in range(2000):
        mean = t_interval(random.normal(3.0, 1.0, 10).tolist())
        hits[0] += mean.low <= 3.0 <= mean.high
        trace = random.normal(3.0, 1.0)  # replicates scatter around the trace as it does around the truth
        found = bootstrap_interval(trace, random.normal(trace, 1.0, 10).tolist())
        hits[1] += found.low <= 3.0 <= found.high
    assert [share / 2000 for share in hits] == pytest.approx([0.95, 0.95], abs=0.02)


def test_replications_shrink_with_the_root_of_their_number_and_a_bootstrap_does_not() -> None:
    few, many = [1.0, 3.0] * 5, [1.0, 3.0] * 50
    assert t_interval(few).half / t_interval(many).half == pytest.approx(math.sqrt(10), rel=0.2)
    assert bootstrap_interval(2.0, few).half == pytest.approx(bootstrap_interval(2.0, many).half, rel=0.2)
    assert t_interval(few).value == 2.0 and bootstrap_interval(2.5, few).value == 2.5


def test_one_run_or_an_undefined_one_has_no_interval() -> None:
    for found in (t_interval([1.0]), t_interval([1.0, NAN]), bootstrap_interval(1.0, [1.0])):
        assert not found.is_known and not found.is_clear
    assert math.isnan(t_interval([]).value)


# --- warm-up -----------------------------------------------------------------------------


def test_a_queue_that_starts_full_warms_up_until_it_is_drained() -> None:
    random, kept = np.random.default_rng(7), []
    for _ in range(20):
        steps = random.exponential(1.0, 20_000) - random.exponential(1 / 0.8, 20_000)
        sums = 200.0 + np.concatenate(([0.0], steps.cumsum()))
        queue = sums - np.minimum(np.minimum.accumulate(sums), 0.0)  # the first waits 200 s
        skip = warm_up(queue)
        assert skip is not None and 200 <= skip <= 5000
        kept.append(queue[skip:].mean())
        assert abs(kept[-1] - 4.0) < abs(queue.mean() - 4.0)
    assert np.mean(kept) == pytest.approx(4.0, abs=0.3)


@for_every_seed(20)
def test_a_steady_series_keeps_nearly_everything(seed: int) -> None:
    skip = warm_up(np.random.default_rng(seed).normal(10.0, 1.0, 2000))
    assert skip is None or skip % 5 == 0
    assert skip is not None and skip <= 800


@pytest.mark.parametrize("values", [np.arange(1000.0) ** 2, np.array([]), np.ones(29)])
def test_what_grows_to_the_end_or_is_too_short_has_no_steady_part(values: np.ndarray) -> None:
    assert warm_up(values) is None


@for_every_seed(20)
def test_mser_is_the_least_squared_error_of_the_rest_by_hand(seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=150) + 3.0 * np.exp(-np.arange(150) / 20)
    means = values.reshape(30, 5).mean(axis=1)
    errors = [((means[d:] - means[d:].mean()) ** 2).sum() / (30 - d) ** 2 for d in range(25)]
    best = int(np.argmin(errors))
    assert warm_up(values) == (5 * best if best <= 15 else None)
