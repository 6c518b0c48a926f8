"""Piecewise linear functions: their grid points, what lies between and beyond, and sums along them."""

from __future__ import annotations

import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.cost.surface import Plane, Polyline, Volume
from batchwright.errors import CostError

points = st.lists(st.integers(0, 200), min_size=2, max_size=7, unique=True).map(sorted)


@st.composite
def planes(draw: st.DrawFn) -> Plane:
    rows, columns = draw(points), draw(points)
    values = [[float(draw(st.integers(0, 100))) for _ in columns] for _ in rows]
    return Plane("made", [float(r) for r in rows], [float(c) for c in columns], values)


@given(planes())
def test_a_plane_has_its_own_values_at_its_grid_points(plane):
    for row, values in zip(plane.rows, plane.values, strict=True):
        assert [plane.at(row, column) for column in plane.columns] == pytest.approx(values, rel=1e-12)


@given(planes(), st.floats(0, 300), st.floats(0, 300), st.integers(1, 250))
def test_the_sum_along_a_plane_is_that_of_its_single_places(plane, row, column, steps):
    expected = math.fsum(plane.at(row, column + j) for j in range(steps))
    assert plane.sum(row, column, steps) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(planes(), st.floats(0, 400), st.floats(0, 400))
def test_a_plane_is_never_negative_and_never_over_its_greatest_value_inside_its_grid(plane, row, column):
    value = plane.at(row, column)
    assert value >= -1e-9
    if row <= plane.rows[-1] and column <= plane.columns[-1]:
        assert value <= max(map(max, plane.values)) + 1e-9


def test_between_grid_points_a_function_is_a_straight_line_and_beyond_them_in_proportion():
    line = Polyline("made", [1.0, 3.0], [10.0, 20.0])
    assert [line.at(x) for x in (0.0, 1.0, 2.0, 3.0, 6.0)] == [10.0, 10.0, 15.0, 20.0, 40.0]


def test_a_plane_beyond_both_ends_grows_in_proportion_to_each():
    plane = Plane("made", [1.0, 2.0], [0.0, 4.0], [[1.0, 2.0], [3.0, 5.0]])
    assert plane.at(2.0, 4.0) == 5.0
    assert plane.at(2.0, 8.0) == 10.0  # twice as far along the columns
    assert plane.at(6.0, 8.0) == 30.0  # and three times along the rows
    assert plane.at(1.5, 2.0) == 2.75  # the mean of 1.5 and 4


def test_a_volume_lies_between_its_planes():
    low = Plane("low", [1.0, 2.0], [0.0, 1.0], [[1.0, 1.0], [1.0, 1.0]])
    high = Plane("high", [1.0, 2.0], [0.0, 1.0], [[5.0, 5.0], [5.0, 5.0]])
    volume = Volume("made", [1.0, 3.0], [low, high])
    assert [volume.at(layer, 1.0, 0.0) for layer in (1.0, 2.0, 3.0, 6.0)] == [1.0, 3.0, 5.0, 10.0]


@given(planes(), st.floats(0, 300), st.floats(0, 300))
def test_a_plane_that_was_pickled_is_the_same(plane, row, column):
    assert pickle.loads(pickle.dumps(plane)).at(row, column) == plane.at(row, column)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Polyline("head", [1.0], [1.0]), "two rising numbers or more"),
        (lambda: Polyline("head", [2.0, 1.0], [1.0, 1.0]), "not \\[2, 1\\]"),
        (lambda: Polyline("head", [-1.0, 1.0], [1.0, 1.0]), "none negative"),
        (lambda: Polyline("head", [1.0, 2.0], [1.0]), "head of a table has 1 values for 2 grid points"),
        (lambda: Polyline("head", [1.0, 2.0], [1.0, math.nan]), "has the value nan"),
        (lambda: Polyline("head", [1.0, 2.0], [1.0, -2.0]), "must be finite and not negative"),
        (lambda: Plane("decode", [1.0, 2.0], [1.0, 2.0], [[1.0, 1.0]]), "1 rows for 2 grid points"),
        (lambda: Volume("prefill", [1.0, 2.0], []), "0 layers for 2 grid points"),
    ],
    ids=["one point", "falling", "negative", "too few values", "nan", "below 0", "too few rows", "no planes"],
)
def test_a_function_that_is_none_is_refused_in_words(made, message):
    with pytest.raises(CostError, match=message):
        made()
