"""Parameters from the timings of requests: simulated ones, so that the truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from random import Random

import numpy as np
import pytest

from batchwright import Limits, Roofline, Workload
from batchwright.calibration.timings import Parameter, Timings, TimingsFit, fit
from batchwright.comparison import run
from batchwright.errors import InputError
from batchwright.policies import Vllm

pytest.importorskip("scipy")
pytestmark = pytest.mark.pure

PARAMETERS = (
    Parameter(name="mfu", prior=0.5, least=0.05, most=1.0),
    Parameter(name="mbu", prior=0.75, least=0.2, most=1.0),
    Parameter(name="fixed_seconds", prior=5e-4, least=1e-5, most=0.05),
)
TRUTH = {"mfu": 0.37, "mbu": 0.61, "fixed_seconds": 4e-3}
LIMITS = Limits(max_num_seqs=32, max_num_batched_tokens=1024, max_model_len=4096, num_kv_blocks=4000)
LONG = Workload.open("poisson(rate=6, n=50, prompt=uniform(64,2048), output=uniform(8,64), seed=3)")
SHORT = Workload.open("poisson(rate=6, n=50, prompt=1, output=uniform(16,64), seed=3)")


def served(load: Workload, values: Mapping[str, float]) -> Timings:
    cost = Roofline("H100-SXM", "llama-3.1-8b", **values)
    found = run("vllm", Vllm(), load, cost, LIMITS).requests()
    return {name: np.array(found[name]) for name in ("ttft_s", "tpot_s", "e2e_s")}


def fitted(load: Workload, measured: Timings, *names: str) -> TimingsFit:
    """Fit those parameters, or all; the others are as they are."""
    chosen = [one for one in PARAMETERS if not names or one.name in names]
    return fit(lambda values: served(load, TRUTH | dict(values)), measured, chosen)


def noisy(timings: Timings, seed: int, width: float) -> Timings:
    """The same with a lognormal error of each request."""
    random = Random(seed)
    return {
        name: column * np.exp([random.gauss(0.0, width) for _ in column]) for name, column in timings.items()
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_timings_of_known_parameters_give_these_parameters(seed: int) -> None:
    found = fitted(LONG, noisy(served(LONG, TRUTH), seed, 0.01), "mfu", "mbu")
    for one in found.estimates:
        assert not one.is_kept and one.is_bounded, one
        assert one.value == pytest.approx(TRUTH[one.parameter.name], rel=0.08), one
        assert one.low * 0.97 < TRUTH[one.parameter.name] < one.high * 1.03, one


def test_what_timings_do_not_tell_is_named_and_kept_at_its_prior() -> None:
    """Prompts of one token are never bound by arithmetic, so mfu could be anything."""
    found = fitted(SHORT, noisy(served(SHORT, TRUTH), 2, 0.01), "mfu", "mbu")
    mfu, mbu = found.estimates
    assert mfu.is_kept and mfu.value == mfu.parameter.prior and mfu.high == mfu.parameter.most
    assert not mbu.is_kept and mbu.value == pytest.approx(TRUTH["mbu"], rel=0.05)


def test_held_out_requests_are_predicted_whatever_is_determined() -> None:
    measured = noisy(served(LONG, TRUTH), 4, 0.01)
    half = {name: np.where(np.arange(50) < 25, column, nan) for name, column in measured.items()}
    again = served(LONG, fitted(LONG, half).values)
    for name in ("tpot_s", "e2e_s"):
        assert again[name][25:].mean() == pytest.approx(measured[name][25:].mean(), rel=0.05)


def test_a_few_odd_requests_do_not_decide() -> None:
    measured = noisy(served(LONG, TRUTH), 3, 0.01)
    for i in (4, 17, 30):
        measured["tpot_s"][i] *= 20
    assert fitted(LONG, measured, "mbu").values["mbu"] == pytest.approx(TRUTH["mbu"], rel=0.08)


def test_a_server_faster_than_any_parameters_gives_the_end_of_their_range() -> None:
    """A roofline over its peak does not exist, and is never asked for."""
    best = served(LONG, TRUTH | {"mbu": 1.0})
    measured = {name: 0.8 * column for name, column in noisy(best, 5, 0.01).items()}
    assert fitted(LONG, measured, "mbu").values["mbu"] == pytest.approx(1.0, abs=1e-3)


def test_only_requests_with_timings_count() -> None:
    """So the second half of a run can be held out, though its requests are simulated too."""
    measured = served(LONG, TRUTH)
    for column in measured.values():
        column[25:] = nan
    assert fitted(LONG, measured, "mbu").num_requests == 25


def test_too_few_requests_are_refused() -> None:
    measured = served(LONG, TRUTH)
    for column in measured.values():
        column[7:] = nan
    with pytest.raises(InputError, match=r"^7 requests have timings; a fit needs 20, beside those held out$"):
        fitted(LONG, measured)
