"""The cost model of a layer profile: by hand, between measured points, beyond them, and over quiet steps."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from batchwright.cost import Hosted, Layers, stretch_of
from batchwright.cost.curve import Curve
from batchwright.cost.grid import Axis, Grid, along, sum_along
from batchwright.errors import CostError
from batchwright.layer_profile import layers, read_profile
from batchwright.step import Step
from layer_folders import FOLDER, copied
from strategies import for_every_seed

MICROSECONDS = 1e6
COST = layers(FOLDER, layers=2)


def decodes(rows: int, context: int, least: int = 0, greatest: int = 0) -> Step:
    step = Step()
    step.quiet(rows, 0, context)
    step.least_context, step.greatest_context = least, greatest
    return step


def with_chunk(step: Step, tokens: int, past: int, chunks: int = 1) -> Step:
    """`step` with so many chunks of `tokens` tokens beside."""
    step.prefill_tokens, step.num_chunks, step.past_tokens = chunks * tokens, chunks, chunks * past
    step.prefill_attention = chunks * tokens * (past + tokens / 2)
    step.sampled_rows += chunks
    return step


def microseconds(step: Step, cost: Layers = COST) -> float:
    return cost.seconds(step) * MICROSECONDS


# --- by hand ------------------------------------------------------------------------------


def test_a_step_of_decodes_is_the_sum_of_its_layers() -> None:
    matrices = 5 + 2 + 2 * (2 * 2 + 21 + 2 + 15.5 + 82 + 3.25 + 41)  # once, and in each of two layers
    head = 304 + 22
    attention = 2 * (8 + 4 * 512 / 256)
    assert microseconds(decodes(4, 4 * 512)) == pytest.approx(matrices + head + attention, rel=1e-12)


def test_unequal_contexts_add_a_share_of_what_all_with_the_greatest_would() -> None:
    equal, unequal = decodes(4, 4 * 512), decodes(4, 4 * 512, least=128, greatest=2048)
    # (512 - 128) / (2048 - 128) = 20 %, so the class is sr<=40% of n<=4 and kvB<=4k
    longer = 2 * 0.0625 * ((8 + 4 * 2048 / 256) - (8 + 4 * 512 / 256))
    assert microseconds(unequal) - microseconds(equal) == pytest.approx(longer, rel=1e-9)


def test_a_chunk_runs_with_the_decodes_on_the_next_captured_size() -> None:
    step = with_chunk(decodes(4, 4 * 512), 16, 128)
    matrices = 7 + 2 * (164 + 1.1875 * 24)  # 20 tokens run as 24
    head = 305 + 22.5  # every request has its logits computed
    attention = 2 * (8 + 16 * (128 + 8) / 1024 + 8)
    assert microseconds(step) == pytest.approx(matrices + head + attention, rel=1e-12)


def test_without_captured_graphs_nothing_is_padded() -> None:
    eager = layers(FOLDER, layers=2, max_cudagraph_capture_size=0)
    step = with_chunk(decodes(4, 4 * 512), 16, 128)
    assert microseconds(step) - microseconds(step, eager) == pytest.approx(2 * 1.1875 * 4, rel=1e-9)


def test_prompt_tokens_between_the_measured_numbers_take_the_pooled_alpha() -> None:
    for tokens, alpha in ((16, 0.5), (20, 0.1)):
        equal = with_chunk(decodes(4, 4 * 512), tokens, 128)
        unequal = with_chunk(decodes(4, 4 * 512, least=128, greatest=1024), tokens, 128)
        longer = 2 * alpha * 4 * (1024 - 512) / 256
        if tokens == 16:  # in the class sr<=40%: (512 - 128) / (1024 - 128) is 43 %, in none
            longer = 2 * 0.1 * 4 * (1024 - 512) / 256
        assert microseconds(unequal) - microseconds(equal) == pytest.approx(longer, rel=1e-9)


def test_a_chunk_of_a_measured_number_takes_the_alpha_of_its_class() -> None:
    equal = with_chunk(decodes(4, 4 * 400), 16, 128)
    unequal = with_chunk(decodes(4, 4 * 400, least=200, greatest=900), 16, 128)  # rate 29 %
    assert microseconds(unequal) - microseconds(equal) == pytest.approx(2 * 0.5 * 4 * 500 / 256, rel=1e-9)


def test_two_chunks_attend_to_fewer_pairs_than_one_of_as_many_tokens() -> None:
    one, two = with_chunk(Step(), 64, 0), with_chunk(Step(), 32, 0, chunks=2)
    head = 1 + 0.5  # one more row with logits
    pairs = 64 * 32 / 1024 - 2 * 32 * 16 / 1024
    assert microseconds(one) + head - microseconds(two) == pytest.approx(2 * pairs, rel=1e-9)


def test_a_constant_is_added_to_every_step() -> None:
    slow = layers(FOLDER, layers=2, step=0.003)
    assert slow.seconds(decodes(4, 800)) == pytest.approx(COST.seconds(decodes(4, 800)) + 0.003, rel=1e-12)
    assert slow.stretch(decodes(4, 800), 7) == pytest.approx(
        COST.stretch(decodes(4, 800), 7) + 0.021, rel=1e-12
    )


def test_a_negative_constant_is_refused() -> None:
    with pytest.raises(CostError, match="step_seconds of layers is -1"):
        layers(FOLDER, layers=2, step=-1.0)


# --- exact on what was measured -------------------------------------------------------------


def test_every_measured_attention_is_met_exactly() -> None:
    surface, grid = read_profile(FOLDER).attention, COST.times.attention
    rows = np.loadtxt(FOLDER / "attention.csv", delimiter=",", skiprows=1)
    assert len(rows) == 102
    for prefill, past, count, context, time in rows.tolist():
        assert grid.at(prefill, past, count, context) * MICROSECONDS == pytest.approx(2 * time, rel=1e-12)
    assert not np.isnan(surface.values).any()


def test_every_measured_layer_and_head_is_met_exactly() -> None:
    eager = layers(FOLDER, layers=1, max_cudagraph_capture_size=0)
    times = {}
    for line in (FOLDER / "dense.csv").read_text().split()[1:]:
        name, tokens, time = line.split(",")
        times[name, int(tokens)] = float(time)
    for tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        total = sum(time for (_, at), time in times.items() if at == tokens) + times["layernorm", tokens]
        assert eager.times.matrices.at(tokens) * MICROSECONDS == pytest.approx(total, rel=1e-12)


@for_every_seed(50)
def test_between_measured_points_attention_stays_between_its_neighbours(seed: int) -> None:
    random, grid = Random(seed), COST.times.attention
    place, low, high = [], [], []
    for axis in grid.axes:
        at = random.randrange(len(axis.points) - 1)
        low.append(axis.points[at])
        high.append(axis.points[at + 1])
        place.append(random.uniform(low[-1], high[-1]))
    assert grid.at(*low) <= grid.at(*place) * (1 + 1e-12) and grid.at(*place) <= grid.at(*high) * (1 + 1e-12)


@for_every_seed(50)
def test_a_step_never_gets_cheaper_with_more_of_anything(seed: int) -> None:
    random = Random(seed)
    tokens, past, rows = random.randrange(1, 600), random.randrange(2000), random.randrange(1, 100)
    context = random.randrange(1, 3000)
    base = microseconds(with_chunk(decodes(rows, rows * context), tokens, past))
    more = [
        with_chunk(decodes(rows, rows * context), tokens + random.randrange(1, 50), past),
        with_chunk(decodes(rows, rows * context), tokens, past + random.randrange(1, 500)),
        with_chunk(decodes(rows + 1, (rows + 1) * context), tokens, past),
        with_chunk(decodes(rows, rows * (context + random.randrange(1, 500))), tokens, past),
    ]
    assert all(microseconds(step) >= base * (1 - 1e-12) for step in more)


# --- beyond the tables ----------------------------------------------------------------------


def test_a_curve_goes_on_along_the_line_through_its_end_and_its_middle() -> None:
    curve = Curve([0.0, 5.0, 6.0, 7.0, 10.0])
    assert [curve.at(count) for count in (0, 2, 4, 5, 8)] == [0.0, 6.0, 10.0, 12.0, 18.0]
    assert Curve([3.0]).at(4) == 3.0
    assert Curve([0.0, 9.0, 8.0]).at(5) == 8.0  # a fall is noise


def test_a_grid_goes_on_along_its_last_line_and_stays_flat_before_its_first() -> None:
    grid = Grid([[0], [0], [1, 2], [10, 20, 40]], [1.0, 2.0, 6.0, 2.0, 4.0, 12.0])
    assert grid.at(0, 0, 1, 5) == 1.0
    assert grid.at(0, 0, 1, 60) == 10.0
    assert grid.at(0, 0, 3, 20) == 6.0
    assert grid.line(1.5) == [1.5, 3.0, 9.0]


def test_decodes_beyond_those_measured_with_chunks_add_what_they_add_alone() -> None:
    grid = COST.times.attention
    assert grid.at(64, 128, 64, 512) - grid.at(64, 128, 16, 512) == pytest.approx(
        grid.at(0, 0, 64, 512) - grid.at(0, 0, 16, 512), rel=1e-9
    )


# --- quiet steps ----------------------------------------------------------------------------


@for_every_seed(80)
def test_a_stretch_is_the_sum_of_its_steps(seed: int) -> None:
    random = Random(seed)
    rows, mean = random.randrange(1, 70), random.randrange(1, 3000)
    least, greatest = max(1, mean - random.randrange(900)), mean + random.randrange(2000)
    if rows == 1 or random.random() < 0.2:
        least = greatest = mean
    step = decodes(rows, rows * mean, least, greatest)
    steps = random.choice([1, 2, 7, 300, 1500])
    summed = sum(COST.seconds(step.later(at)) for at in range(steps))
    assert COST.stretch(step, steps) == pytest.approx(summed, rel=1e-10)


@for_every_seed(50)
def test_more_quiet_steps_take_longer(seed: int) -> None:
    random = Random(seed)
    step = decodes(3, 3 * 500, 1, random.randrange(501, 5000))
    ends = [COST.stretch(step, steps) for steps in range(1, 200)]
    assert all(later > earlier for earlier, later in pairwise(ends))


@for_every_seed(50)
def test_a_sum_along_an_axis_is_that_of_its_places(seed: int) -> None:
    random = Random(seed)
    axis = Axis(sorted(random.sample(range(100), random.randrange(1, 9))))
    values = [random.random() for _ in axis.points]
    start, steps = random.uniform(0, 120), random.randrange(1, 150)
    places = [along(axis, values, start + at) for at in range(steps)]
    assert sum_along(axis, values, start, steps) == pytest.approx(sum(places), rel=1e-10, abs=1e-10)


def test_under_a_host_that_hides_the_stretch_is_the_sum_of_the_greater() -> None:
    step = decodes(4, 4 * 512, 128, 900)
    host = COST.seconds(step.later(150))  # the device is faster at first, and slower in the end
    stretch = stretch_of(Hosted(COST, base=host, per_running=0.0), overlap=True)
    summed = sum(max(host, COST.seconds(step.later(at))) for at in range(400))
    assert stretch(step, 400) == pytest.approx(summed, rel=1e-10)
    assert summed > 400 * host and summed > COST.stretch(step, 400)


def test_cost_models_are_equal_if_all_that_they_were_made_of_is() -> None:
    assert layers(FOLDER, layers=2) == COST and layers(FOLDER, layers=3) != COST
    assert layers(FOLDER, layers=2, max_cudagraph_capture_size=0) != COST
    assert layers(FOLDER, layers=2, step=0.1) != COST
    one, two = (layers(FOLDER, "llama-3.1-8b", tp=2, link=link) for link in (1e9, 2e9))
    assert one != two and layers(FOLDER, "llama-3.1-8b") not in (one, two)


def test_a_cost_model_survives_a_pickle() -> None:
    again = pickle.loads(pickle.dumps(COST))
    assert again == COST and again.times.skew.alpha(0, 4, 0.2, 900, 0) == 0.125
    step = with_chunk(decodes(9, 9 * 700, 300, 1500), 40, 100)
    assert again.seconds(step) == COST.seconds(step) and again.reads_extremes


def test_experts_survive_a_pickle_too(tmp_path: Path) -> None:
    (copied(tmp_path) / "moe.csv").write_text("tokens,activated_experts,time_us\n1,2,9\n64,8,30\n")
    cost = layers(tmp_path, "mixtral-8x7b", step=0.001)
    again = pickle.loads(pickle.dumps(cost))
    assert again == cost and again.step_seconds == 0.001
    assert again.seconds(decodes(9, 900)) == cost.seconds(decodes(9, 900))
