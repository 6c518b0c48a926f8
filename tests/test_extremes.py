"""The least and the greatest context of a step: those of the reference loop, in every mode, for who asks."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

import reference
from batchwright import Constant, Hosted, Limits, Linear, Request, Simulator
from batchwright.batch import PAD
from batchwright.cost import reads_extremes
from batchwright.extremes import FEW, Extremes
from batchwright.layer_profile import layers
from batchwright.policies import Vllm
from batchwright.request import DECODING, FINISHED
from batchwright.run.decode_runs import extremes
from batchwright.run.timeline import Timeline
from batchwright.step import Step
from layer_folders import FOLDER
from strategies import for_every_seed, timed_workload
from test_properties import (
    PEERS,
    SIMULATED,
    assert_over,
    assert_same,
    drawn,
    policy_of,
    real_valued,
    run,
    simulator_of,
)

LAYERS = layers(FOLDER, layers=2)


class Uneven:
    """Seconds of exact sums that grow with both contexts, as the reference prices them."""

    reads_extremes = True

    def seconds(self, step: Step) -> float:
        return exact({name: getattr(step, name) for name in reference.work_of(reference.Plan())})


def exact(work: dict[str, float]) -> float:
    return reference.linear()(work) + 2**-10 * work["greatest_context"] + 2**-9 * work["least_context"]


@pytest.mark.parametrize("name", ["vllm", "static", "dynamic", "orca", *PEERS])
@for_every_seed(25)
def test_a_cost_that_asks_sees_the_contexts_of_the_reference(name: str, seed: int) -> None:
    load = timed_workload(seed, headroom=name != "vllm")
    expected = reference.timed(load, exact, policy_of(name, load)[1])
    simulator, requests = run(name, load, Uneven())
    assert_over(simulator, requests)
    for r, row in zip(requests, expected.values(), strict=True):
        assert (r.first_token, r.finished) == (row["first_token"], row["finished"])


@pytest.mark.parametrize("name", SIMULATED)
@for_every_seed(8)
def test_an_audit_finds_the_contexts_of_the_rows_at_every_step(name: str, seed: int) -> None:
    simulator = run(name, real_valued(seed), LAYERS, audit=True)[0]
    assert simulator.batch.extremes is not None


@for_every_seed(60)
def test_skipped_steps_give_the_bits_of_walked_ones(seed: int) -> None:
    load, random = real_valued(seed), Random(seed)
    name, cost = drawn(random), random.choice([LAYERS, Uneven(), Hosted(LAYERS, 7e-4, 1e-5)])
    quick, walked = run(name, load, cost), run(name, load, cost, skip=False)
    assert_same(quick, walked)


@for_every_seed(25)
def test_steps_inside_stretches_are_priced_anew_at_the_times_of_a_walk(seed: int) -> None:
    load, random = real_valued(seed), Random(seed)
    name, cost = drawn(random), random.choice([LAYERS, Uneven(), Hosted(LAYERS, 7e-4, 1e-5)])
    quick, walked = (timeline_of(run(name, load, cost, skip=skip)[0]) for skip in (True, False))
    np.testing.assert_allclose(quick.ends, walked.ends, rtol=1e-12)


def timeline_of(simulator: Simulator) -> Timeline:
    b = simulator.batch
    return Timeline(simulator.log, b.on_end == PAD, simulator.cost, b.overlap, simulator.stretch)


@for_every_seed(25)
def test_the_log_tells_the_contexts_of_every_stretch(seed: int) -> None:
    load, seen = real_valued(seed), []

    class Seen(Uneven):
        def stretch(self, step: Step, steps: int) -> float:
            if step.prefill_tokens == 0 and steps > 1:
                rows = (step.num_decodes, step.padded_rows, step.context_tokens)
                seen.append((*rows, step.least_context, step.greatest_context))
            return 0.01 * steps

    timeline = timeline_of(run(drawn(Random(seed)), load, Seen())[0])
    least, greatest = extremes(timeline)
    is_long = timeline.steps > 1
    columns = (timeline.decodes, timeline.padded, timeline.first_context, least, greatest)
    assert set(zip(*(column[is_long].tolist() for column in columns), strict=True)) <= set(seen)


@pytest.mark.parametrize("cost", [Constant(0.01), Linear(0.01), Hosted(Linear(0.01)), lambda step: 0.01])
def test_nobody_keeps_contexts_that_no_cost_model_asks_for(cost: Any) -> None:
    simulator = simulator_of("vllm", real_valued(1), cost)
    assert not reads_extremes(cost) and simulator.batch.extremes is None


def test_a_host_passes_on_what_its_device_asks_for() -> None:
    assert reads_extremes(Hosted(LAYERS)) and reads_extremes(LAYERS) and reads_extremes(Uneven())


def test_a_later_step_has_contexts_that_have_grown() -> None:
    step = Step()
    step.quiet(2, 0, 30)
    assert (step.later(5).least_context, step.later(5).greatest_context) == (0, 0)
    step.least_context, step.greatest_context = 10, 20
    later = step.later(5)
    assert (later.least_context, later.greatest_context) == (15, 25)
    assert not later.same(step) and step.later(0).same(step)
    step.quiet(2, 0, 30)
    assert (step.least_context, step.greatest_context) == (0, 0)


def test_rows_that_come_and_go_for_long_leave_few_entries() -> None:
    found, step = Extremes(), Step()
    step.num_decodes = 1
    for number in range(20 * FEW):
        r = Request(number, 0.0, 1, 1)
        r.state, r.shift = DECODING, number % 7
        found.join(r)
        found.measure(step, 100)
        if number % 7:
            r.state = FINISHED
    assert len(found._least) < 10 * FEW and len(found._greatest) < 10 * FEW
    assert (step.least_context, step.greatest_context) == (100, 105)


def test_a_policy_may_ask_for_the_coming_step_with_more_prompt_tokens() -> None:
    simulator = Simulator(Vllm(), LAYERS, Limits(num_kv_blocks=400))
    requests = [Request(0, 0.0, 300, 40), Request(1, 0.0, 30, 40)]
    simulator.feed(requests)
    simulator.advance(0.02)
    step = Step()
    simulator.batch.measure(step)
    assert (step.least_context, step.greatest_context) == (step.greatest_context - 270, step.greatest_context)
    assert simulator.batch.predict(0) == LAYERS.seconds(step)
    assert simulator.batch.predict(16) > simulator.batch.predict(0)
