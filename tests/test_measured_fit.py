"""The time of a step, fitted to measured ones."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from batchwright import Linear
from batchwright.cost.line import Line
from batchwright.errors import CostError, InputError
from batchwright.measured.fit import fit, nonnegative
from batchwright.measured.samples import Samples, together
from batchwright.measured.step_time import StepTime
from batchwright.step import Step
from strategies import for_every_seed

pytestmark = pytest.mark.pure


def step_of(random: Random) -> Step:
    """Chunks, decodes or both, some of them padded."""
    step = Step()
    step.quiet(random.choice([0, 1, 2, 3, 5, 8, 13, 16]), 0, 0)
    step.padded_rows = random.choice([0, 0, 3]) if step.num_decodes else 0
    step.context_tokens = (step.num_decodes + step.padded_rows) * random.randrange(1, 400)
    if step.num_decodes == 0 or random.random() < 0.4:
        step.num_chunks = random.randrange(1, 4)
        step.prefill_tokens = step.num_chunks * random.choice([1, 5, 16, 64, 200])
        step.past_tokens = step.num_chunks * random.choice([0, 0, 50])
        step.prefill_attention = step.prefill_tokens * (random.choice([0, 50]) + 0.5 * step.prefill_tokens)
        step.sampled_rows += random.randrange(step.num_chunks + 1)
    return step


def linear_of(random: Random) -> Linear:
    prefill = random.uniform(1e-5, 1e-3)
    return Linear(
        base=random.uniform(1e-3, 1e-2),
        prefill=prefill,
        decode=prefill * random.uniform(1.0, 4.0),
        context=random.uniform(1e-7, 1e-5),
        prefill_attention=random.uniform(1e-8, 1e-6),
    )


def samples_of(random: Random, cost: Linear, count: int = 400, switch: float = 0.0) -> Samples:
    steps, switches = [step_of(random) for _ in range(count)], [random.random() < 0.4 for _ in range(count)]
    seconds = [cost.seconds(step) + switch * is_other for step, is_other in zip(steps, switches, strict=True)]
    return Samples(steps, switches, seconds)


def test_a_linear_machine_is_found_exactly() -> None:
    @for_every_seed(12)
    def check(seed: int) -> None:
        random = Random(seed)
        cost, switch = linear_of(random), random.choice([0.0, random.uniform(1e-3, 1e-2)])
        found = fit(samples_of(random, cost, switch=switch))
        assert np.abs(samples_of(random, cost, switch=switch).errors(found)).max() < 1e-6
        assert found.context == pytest.approx(cost.context, rel=1e-6)
        assert found.switch == pytest.approx(switch, rel=1e-6, abs=1e-9)
        assert found.chunk_switch == pytest.approx(switch, rel=1e-6, abs=1e-9)

    check()


def test_pauses_of_the_machine_lengthen_all_steps_alike() -> None:
    """Every twentieth step takes 1.8 times as long: the shapes stay, and the mean is right."""

    @for_every_seed(8)
    def check(seed: int) -> None:
        random = Random(seed)
        cost = linear_of(random)
        measured = samples_of(random, cost)
        measured.seconds = [
            seconds * random.gauss(1.0, 0.01) * (1.8 if i % 20 == 0 else 1.0)
            for i, seconds in enumerate(measured.seconds)
        ]
        found = fit(measured)
        ratios = 1 + samples_of(random, cost).errors(found)
        assert np.mean(1 / (1 + measured.errors(found))) == pytest.approx(1.0)
        assert np.mean(np.abs(ratios / np.median(ratios) - 1)) < 0.05

    check()


def test_short_steps_that_vary_most_are_fitted_to_their_mean() -> None:
    """Beside long ones whose times are even: the whole time of each kind is right."""

    @for_every_seed(8)
    def check(seed: int) -> None:
        random = Random(seed)
        cost = linear_of(random)
        measured = samples_of(random, cost, 1500)
        middle = float(np.median(measured.seconds))
        spread = [0.3 if seconds < middle else 0.03 for seconds in measured.seconds]
        measured.seconds = [
            seconds * random.lognormvariate(-wide * wide / 2, wide)
            for seconds, wide in zip(measured.seconds, spread, strict=True)
        ]
        fitted, taken = measured.fitted(fit(measured)), np.array(measured.seconds)
        for is_short in (True, False):
            chosen = (np.array(spread) > 0.1) == is_short
            assert fitted[chosen].sum() / taken[chosen].sum() == pytest.approx(1.0, abs=0.03)

    check()


def test_kernels_that_change_with_the_rows_are_followed() -> None:
    """Seconds that jump between the powers of two are met at them, and never fall between."""
    levels = {1: 7e-3, 2: 8e-3, 4: 10.6e-3, 8: 14.8e-3, 16: 24.2e-3}
    measured = Samples()
    for rows, seconds in levels.items():
        for _ in range(4):
            step = Step()
            step.quiet(rows, 0, 0)
            measured.steps.append(step)
            measured.switches.append(False)
            measured.seconds.append(seconds)
    found = fit(measured)
    times = [found.decode_seconds(rows, 0) for rows in range(1, 17)]
    assert times == sorted(times)
    assert [times[rows - 1] for rows in levels] == pytest.approx(list(levels.values()), rel=1e-6)


def test_quiet_steps_cost_the_same_at_once_and_one_by_one() -> None:
    @for_every_seed(12)
    def check(seed: int) -> None:
        random = Random(seed)
        found = fit(samples_of(random, linear_of(random)))
        step, count = step_of(random), random.randrange(1, 40)
        step.quiet(max(step.num_decodes, 1), step.padded_rows, step.context_tokens)
        one_by_one = sum(found.seconds(step.later(k)) for k in range(count))
        assert found.stretch(step, count) == pytest.approx(one_by_one, rel=1e-9)

    check()


def test_more_work_never_takes_less_time() -> None:
    """However noisy the measurements were."""

    @for_every_seed(12)
    def check(seed: int) -> None:
        random = Random(seed)
        measured = samples_of(random, linear_of(random), 60)
        measured.seconds = [seconds * random.uniform(0.3, 3.0) for seconds in measured.seconds]
        found = fit(measured)
        step = step_of(random)
        before = found.seconds(step)
        for name in ("prefill_tokens", "num_chunks", "num_decodes", "context_tokens", "sampled_rows"):
            setattr(step, name, getattr(step, name) + random.randrange(100))
            after = found.seconds(step)
            assert after >= before
            before = after

    check()


def test_no_coefficient_is_better_when_none_may_be_negative() -> None:
    """The conditions of Karush, Kuhn and Tucker: what is free has no slope, what is 0 would only fall."""

    @for_every_seed(30)
    def check(seed: int) -> None:
        rng = np.random.default_rng(seed)
        columns, values = rng.normal(size=(30, 8)), rng.normal(size=30)
        found = nonnegative(columns, values)
        slope = columns.T @ (values - columns @ found)
        assert (found >= 0).all()
        assert (np.abs(slope[found > 0]) < 1e-6).all()
        assert (slope[found == 0] < 1e-6).all()

    check()


def test_columns_that_are_alike_do_no_harm() -> None:
    columns = np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 1.0], [3.0, 3.0, 0.0]])
    found = nonnegative(columns, np.array([2.0, 5.0, 6.0]))
    assert columns @ found == pytest.approx([2.0, 5.0, 6.0])


def test_too_few_steps_and_lines_that_fall_are_refused() -> None:
    with pytest.raises(InputError, match="3 steps"):
        fit(samples_of(Random(0), linear_of(Random(0)), 3))
    for knots, seconds in (((1.0,), (2.0,)), ((1.0, 2.0), (3.0, 2.0)), ((2.0, 1.0), (1.0, 2.0))):
        with pytest.raises(CostError):
            Line(knots, seconds)


def test_parts_put_together_have_all_steps() -> None:
    parts = [samples_of(Random(i), Linear(0.01), 5) for i in range(3)]
    whole = together(parts)
    assert len(whole) == 15
    assert np.abs(whole.errors(fit(whole))).max() < 1e-9


def test_a_line_goes_through_its_knots_and_on() -> None:
    line = Line((1.0, 2.0, 4.0), (1.0, 2.0, 6.0))
    assert [line.at(x) for x in (1, 1.5, 2, 3, 4, 6)] == [1.0, 1.5, 2.0, 4.0, 6.0, 10.0]
    assert isinstance(fit(samples_of(Random(1), Linear(0.01))), StepTime)
