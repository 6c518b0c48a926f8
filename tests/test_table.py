"""The cost of a step from tables of operators: sums, chunks that differ, drafts, and what lies beyond."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.cost import Hosted, OperatorTimes, Table, features, stretch_of
from batchwright.cost.surface import Plane, Polyline, Volume
from batchwright.errors import CostError
from batchwright.operators.tables import operator_times
from batchwright.policies import Vllm
from batchwright.run.table_pricing import sums
from batchwright.simulator import Simulator
from batchwright.step import Step
from measured_operators import Made
from strategies import for_every_seed, limits_of, requests_of, timed_workload

CHUNK, PAST = [0.0, 100.0, 200.0, 400.0], [0.0, 100.0, 1000.0]


def pairs_table(seconds: float = 1e-6) -> Volume:
    """Attention of exactly `seconds` for each pair, at the grid points."""
    planes = [
        Plane("prefill", CHUNK, PAST, [[seconds * n * c * (p + c / 2) for p in PAST] for c in CHUNK])
        for n in (1, 2, 4)
    ]
    return Volume("prefill", [1.0, 2.0, 4.0], planes)


TIMES = OperatorTimes(
    shared=Polyline("shared", [1.0, 100.0, 200.0], [1e-3, 1e-3, 3e-3]),
    decodes=Polyline("decodes", [1.0, 200.0], [5e-4, 5e-4]),
    head=Polyline("head", [1.0, 11.0], [1e-4, 2e-4]),
    prefill=pairs_table(),
    decode=Plane("decode", [1.0, 11.0], [0.0, 100.0], [[0.0, 1e-3], [0.0, 2e-3]]),
    context_tokens=800.0,
)
TABLE = Table(TIMES, (("model", "made up"),))


def make(chunks: list[tuple[int, int]] = [], rows: int = 0, context: int = 0, **other: int) -> Step:  # noqa: B006
    """A step of chunks, each of so many tokens that start from so many, and rows of mean `context`."""
    step = Step()
    step.quiet(rows, 0, rows * context)
    step.num_chunks = len(chunks)
    step.prefill_tokens = sum(tokens for tokens, _ in chunks)
    step.past_tokens = sum(past for _, past in chunks)
    step.prefill_attention = sum(tokens * (past + tokens / 2) for tokens, past in chunks)
    for name, value in other.items():
        setattr(step, name, value)
    return step


def test_a_step_of_decodes_costs_its_tokens_its_head_and_its_attention():
    # 5e-4 of the tokens; head of 6 rows 1.5e-4; attention of 6 rows at 50: half of (1e-3 + 2e-3) / 2
    assert TABLE.seconds(make(rows=6, context=50)) == pytest.approx(5e-4 + 1.5e-4 + 7.5e-4, rel=1e-12)


def test_a_step_with_a_chunk_costs_the_shared_time_of_all_its_tokens():
    # 105 tokens: 1e-3 and a twentieth of the way to 3e-3; 100 * 50 pairs; 5 rows sampled, at context 0
    step = make([(100, 0)], rows=5, context=0)
    assert TABLE.seconds(step) == pytest.approx(1.1e-3 + 5e-3 + 1.4e-4, rel=1e-12)


def test_a_step_that_yields_no_token_has_no_head():
    assert TABLE.seconds(make([(100, 100)])) == pytest.approx(1e-3 + 100 * 150e-6, rel=1e-12)


@st.composite
def steps(draw: st.DrawFn) -> Step:
    chunks = draw(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 1500)), max_size=5))
    rows = draw(st.integers(0 if chunks else 1, 30))
    return make(chunks, rows, draw(st.integers(0, 300)), sampled_rows=draw(st.integers(0, 20)))


def later(step: Step, count: int) -> Step:
    return step.later(count)


@given(steps(), st.integers(1, 300))
def test_a_stretch_is_the_sum_of_its_single_steps(step, count):
    expected = math.fsum(TABLE.seconds(later(step, j)) for j in range(count))
    assert TABLE.stretch(step, count) == pytest.approx(expected, rel=1e-10)


@given(steps())
def test_a_stretch_of_one_step_is_that_step_to_the_last_bit(step):
    assert TABLE.stretch(step, 1) == TABLE.seconds(step)


@given(steps(), st.integers(1, 100))
def test_a_step_never_gets_cheaper_as_its_context_grows(step, count):
    assert TABLE.seconds(later(step, count)) >= TABLE.seconds(step) * (1 - 1e-12)


@given(steps(), st.integers(1, 200), st.floats(1e-4, 1e-2))
def test_a_host_hides_behind_the_tables_as_behind_any_cost(step, count, base):
    hosted = Hosted(TABLE, base, 0.0)
    expected = math.fsum(max(TABLE.seconds(later(step, j)), base) for j in range(count))
    assert stretch_of(hosted, overlap=True)(step, count) == pytest.approx(expected, rel=1e-10)


def test_one_chunk_is_priced_as_itself():
    assert TABLE._prefill(make([(200, 1000)]), 200.0) == pytest.approx(1e-6 * 200 * 1100, rel=1e-12)


def test_alike_chunks_are_priced_as_so_many():
    step = make([(100, 100)] * 2)
    assert TABLE._prefill(step, 200.0) == pytest.approx(2e-6 * 100 * 150, rel=1e-12)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 1000)), min_size=1, max_size=6))
def test_chunks_that_differ_attend_to_as_many_pairs_as_they_have(chunks):
    # Attention in proportion to pairs, of which a straight line between two grid points makes at most
    # the quarter of a cell too many: 100 * 100 / 8 per chunk of the cells up to 200, 200 * 200 / 8 beyond.
    step = make(chunks)
    seconds = TABLE._prefill(step, float(step.prefill_tokens))
    pairs = step.prefill_attention
    count = step.prefill_tokens * (step.past_tokens + step.prefill_tokens / 2) / pairs
    assert pairs * (1 - 1e-9) <= seconds / 1e-6 <= (pairs + 5000 * max(count, 1)) * (1 + 1e-9)


def test_drafts_are_tokens_whose_attention_is_that_of_their_decodes():
    plain = make(rows=4, context=50, sampled_rows=12)
    drafted = make(rows=4, context=50, sampled_rows=12, draft_tokens=8, prefill_tokens=8)
    drafted.prefill_attention = 8 * (50 + 1 + 1.0)
    assert TABLE.seconds(drafted) == TABLE.seconds(plain)  # 4 and 12 tokens take the same in `decodes`


def test_drafts_beside_a_chunk_leave_it_its_own_pairs():
    both = make([(100, 100), (100, 0)], rows=4, context=50, draft_tokens=8)
    both.prefill_tokens += 8
    both.prefill_attention += 8 * (50 + 1 + 1.0)
    alone = make([(100, 100), (100, 0)])
    assert TABLE._prefill(both, 200.0) == pytest.approx(TABLE._prefill(alone, 200.0), rel=1e-12)


def test_beyond_the_tables_time_grows_in_proportion():
    assert TABLE.seconds(make([(100, 0)] * 4, rows=0, sampled_rows=0)) == pytest.approx(2 * 3e-3 + 4 * 5e-3)
    twice = TABLE.seconds(make(rows=22, context=100, sampled_rows=0))
    assert twice == pytest.approx(5e-4 + 2 * 2e-3)
    far = TABLE.seconds(make(rows=11, context=300, sampled_rows=0))
    assert far == pytest.approx(5e-4 + 3 * 2e-3)


def test_a_chunk_beyond_the_tables_takes_time_in_proportion_to_its_pairs():
    long = make([(800, 0)])
    assert TABLE._prefill(long, 800.0) == pytest.approx(1e-6 * 800 * 400, rel=1e-12)
    late = make([(100, 5000)])
    assert TABLE._prefill(late, 100.0) == pytest.approx(1e-6 * 100 * 5050, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (make([(100, 100)], rows=8, context=100), []),
        (make([(100, 0)] * 2, rows=1), ["tokens"]),
        (make(rows=12, context=10), ["num_decodes", "sampled_rows"]),
        (make(rows=9, context=100), ["context_tokens"]),
        (make(rows=1, context=101), ["mean_context"]),
        (make([(1, 0)] * 5), ["num_chunks"]),
        (make([(401, 0)]), ["tokens", "mean_chunk"]),
        (make([(1, 1001)]), ["mean_past"]),
    ],
    ids=["inside", "tokens", "rows", "KV tokens", "context", "chunks", "a long chunk", "a late chunk"],
)
def test_what_of_a_step_lies_beyond_the_tables_is_named(step, names):
    assert TABLE.outside(step) == names


@given(steps())
def test_the_range_names_features_that_steps_have(step):
    assert set(features(step)) <= set(TABLE.range)


@settings(max_examples=30)
@given(steps())
def test_tables_that_were_pickled_are_the_same(step):
    again = pickle.loads(pickle.dumps(TABLE))
    assert again == TABLE and again.seconds(step) == TABLE.seconds(step) and again.range == TABLE.range


@pytest.mark.parametrize("host", [0.0, 3e-3], ids=["alone", "behind a host"])
@for_every_seed(20)
def test_a_run_that_skips_quiet_steps_is_one_that_makes_each_to_the_last_bit(host, seed):
    device = Table(operator_times(Made()), ())
    times = []
    for skip in (True, False):
        load = timed_workload(seed)
        simulator = Simulator(Vllm(), Hosted(device, host, 1e-4), limits_of(load["config"]), skip=skip)
        requests = requests_of(load)
        simulator.run(requests)
        times.append([(r.first_token, r.finished) for r in requests])
    assert times[0] == times[1]


QUIET = st.tuples(st.integers(0, 40), st.integers(0, 9000), st.integers(1, 400))


@given(st.lists(QUIET, min_size=1, max_size=9))
def test_sums_in_arrays_are_those_of_the_tables_beyond_them_too(places):
    values = [[1.0, 1.0, 9.0], [2.0, 5.0, 7.0], [3.0, 3.0, 4.0]]
    plane = Plane("decode", [1.0, 4.0, 11.0], [3.0, 10.0, 100.0], values)
    rows, contexts, steps = (np.array(column) for column in zip(*places, strict=True))
    expected = [plane.sum(float(row), context / 7, count) for row, context, count in places]
    np.testing.assert_allclose(sums(plane, rows, contexts / 7, steps), expected, rtol=1e-12)


def test_attention_that_falls_as_the_context_grows_is_refused():
    falling = Plane("decode", [1.0, 2.0], [0.0, 1.0], [[1.0, 1.0], [2.0, 1.0]])
    with pytest.raises(CostError, match="falls as the context grows"):
        replace(TIMES, decode=falling)


def test_tokens_that_take_no_time_are_refused():
    with pytest.raises(CostError, match="under 1e-12 seconds"):
        replace(TIMES, decodes=Polyline("decodes", [1.0, 2.0], [0.0, 1.0]))
