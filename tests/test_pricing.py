"""Quiet steps that are priced in arrays take the seconds that the cost model itself says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import batchwright as bw
from batchwright.cost import Table, stretch_of
from batchwright.operators.tables import operator_times
from batchwright.run.pricing import Quiet, closed_form, inner_seconds
from batchwright.step import Step
from measured_operators import Made
from strategies import for_every_seed

DENSE = bw.Roofline("H100-SXM", "llama-3.1-8b")
TABLE = Table(operator_times(Made()), ())
COSTS: dict[str, Any] = {
    "constant": bw.Constant(0.02),
    "linear": bw.Linear(0.01, 1e-5, 1e-4, 1e-7),
    "fitted": bw.Fitted([(0, 0.004), (20, 0.006), (90, 0.02)], decode=1e-4, context=1e-7),
    "roofline": DENSE,
    "two gpus": bw.Roofline("H100-SXM", "llama-3.1-8b", tp=2),
    "experts": bw.Roofline("H100-SXM", "mixtral-8x7b", tp=4),
    "hosted": bw.Hosted(DENSE),
    "table": TABLE,
    "hosted table": bw.Hosted(TABLE, base=0.004, per_running=1e-5),
    "slow host": bw.Hosted(bw.Linear(0.01, decode=1e-4, context=1e-5), base=0.012, per_running=3e-4),
}
OTHERS: dict[str, Any] = {
    "function": lambda step: 0.01 + 1e-6 * step.context_tokens,
    "two stages": bw.Roofline("H100-SXM", "llama-3.1-8b", pp=2),
    "hosted function": bw.Hosted(lambda step: 0.01 + 1e-6 * step.context_tokens, base=0.015),
}


def quiet_stretches(seed: int) -> Quiet:
    random = np.random.default_rng(seed)
    decodes = random.integers(1, random.choice([3, 50, 600]), 12)
    return Quiet(
        decodes=decodes,
        padded=random.integers(0, 3, 12),
        context=decodes * random.integers(1, random.choice([30, 4000]), 12),
        steps=random.integers(2, random.choice([4, 80]), 12),
    )


def one_by_one(quiet: Quiet, cost: Any, overlap: bool) -> list[float]:
    stretch, step = stretch_of(cost, overlap), Step()
    found: list[float] = []
    for decodes, padded, context, steps in zip(
        quiet.decodes.tolist(),
        quiet.padded.tolist(),
        quiet.context.tolist(),
        quiet.steps.tolist(),
        strict=True,
    ):
        step.quiet(decodes, padded, context)
        found += [stretch(step, k) for k in range(1, steps)]
    return found


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", [*COSTS, *OTHERS])
@for_every_seed(30)
def test_seconds_in_arrays_are_those_of_the_cost_model(name: str, overlap: bool, seed: int) -> None:
    cost, quiet = (COSTS | OTHERS)[name], quiet_stretches(seed)
    found = inner_seconds(quiet, cost, overlap, stretch_of(cost, overlap))
    np.testing.assert_allclose(found, one_by_one(quiet, cost, overlap), rtol=1e-12)


def test_every_cost_model_of_the_package_has_a_closed_form_and_functions_have_none() -> None:
    assert all(closed_form(cost, overlap) for cost in COSTS.values() for overlap in (False, True))
    assert not any(closed_form(cost, True) for cost in OTHERS.values())


def test_a_slow_host_is_overtaken_inside_some_stretches_and_outside_others() -> None:
    cost, step = COSTS["slow host"], Step()
    step.quiet(10, 0, 100)
    device, both = stretch_of(cost.cost), stretch_of(cost, True)
    assert both(step, 1) > device(step, 1) and both(step, 50) > device(step, 50)
    assert both(step, 50) - both(step, 49) == pytest.approx(device(step, 50) - device(step, 49))


def test_no_stretch_has_no_seconds() -> None:
    none = np.array([], np.int64)
    quiet = Quiet(decodes=none, padded=none, context=none, steps=none)
    for cost in (*COSTS.values(), *OTHERS.values()):
        assert len(inner_seconds(quiet, cost, True, stretch_of(cost, True))) == 0
