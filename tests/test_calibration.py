"""Fits to logs of steps: known coefficients come back, and errors are what their definitions say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

pytest.importorskip("scipy", reason="needs the extra fit")

from batchwright import Fitted, Hosted
from batchwright.calibration import solve
from batchwright.calibration.blocks import BLOCKS, block_of, held_out
from batchwright.calibration.cost_words import text_of
from batchwright.calibration.errors import classes, errors
from batchwright.calibration.measured import Steps, read_steps, steps_of, thinned, together
from batchwright.calibration.report import profile_of, to_json
from batchwright.calibration.solve import robust_fit
from batchwright.calibration.steps import FEWEST, StepFit, fit_steps
from batchwright.calibration.terms import Terms, knots, usable
from batchwright.cost_text import cost as cost_of
from batchwright.errors import InputError
from batchwright.imported import Finding, Imported
from batchwright.metrics import Numbers
from batchwright.step import Step
from strategies import for_every_seed

pytestmark = pytest.mark.pure

LOG = Path(__file__).parent / "data" / "vllm_steps.csv"
TERMS = ("chunk", "decode", "context", "past", "prefill_attention")


def cost_of_seed(random: Random) -> Fitted:
    """A cost whose every term matters."""
    return Fitted(
        [(0, random.uniform(0.002, 0.02)), (512, random.uniform(0.03, 0.06))],
        chunk=random.uniform(1e-4, 1e-3),
        decode=random.uniform(1e-4, 1e-3),
        context=random.uniform(1e-7, 1e-6),
        past=random.uniform(1e-7, 1e-6),
        prefill_attention=random.uniform(1e-9, 1e-8),
    )


def steps_like(random: Random, cost: Fitted, count: int = 400, noise: float = 0.0) -> Steps:
    """Steps of all kinds, with the seconds that `cost` gives, times one with so much noise."""
    rows, seconds = [], []
    for _ in range(count):
        step = Step()
        step.quiet(decodes := random.randint(0, 32), 0, decodes * random.randint(1, 2000))
        if decodes == 0 or random.random() < 0.5:
            step.num_chunks = random.randint(1, 4)
            step.prefill_tokens = step.num_chunks * random.randint(1, 256)
            step.past_tokens = random.choice([0, random.randint(1, 4000)])
            step.prefill_attention = step.prefill_tokens * (step.past_tokens + step.prefill_tokens / 2)
        rows.append(step)
        seconds.append(cost.seconds(step) * random.gauss(1.0, noise))
    names = ("prefill_tokens", "num_chunks", "num_decodes", "context_tokens", "past_tokens")
    work = {name: np.array([float(getattr(step, name)) for step in rows]) for name in names}
    work["prefill_attention"] = np.array([step.prefill_attention for step in rows])
    work["tokens"] = work["prefill_tokens"] + work["num_decodes"]
    return Steps(work=work, seconds=np.array(seconds))


def imported(count: int = 80, **columns: Numbers) -> Imported:
    """A log of decodes, one after the other."""
    start = np.arange(count) * 0.01
    decodes = np.arange(count) % 7 + 1
    steps = {"start_s": start, "end_s": start + 0.005 + 1e-4 * decodes, "num_decodes": decodes}
    return Imported(file="a.csv", form="log", steps={**steps, "prefill_tokens": 0 * decodes, **columns})


# --- known coefficients ------------------------------------------------------------------


@for_every_seed(20)
def test_the_coefficients_of_steps_without_noise_come_back(seed: int) -> None:
    random = Random(seed)
    cost = cost_of_seed(random)
    fit = fit_steps(steps_like(random, cost))
    assert fit.held_out.mean < 1e-9 and fit.kept == ()
    assert fit.device.line.at(0) == pytest.approx(cost.line.at(0))
    assert fit.device.line.at(300) == pytest.approx(cost.line.at(300))
    for name in TERMS:
        assert getattr(fit.device, name) == pytest.approx(getattr(cost, name)), name


@for_every_seed(10)
def test_with_noise_most_coefficients_are_within_two_standard_errors(seed: int) -> None:
    random = Random(seed)
    cost = cost_of_seed(random)
    fit = fit_steps(steps_like(random, cost, noise=0.05))
    true = {"base": cost.line.at(0), **{name: getattr(cost, name) for name in TERMS}}
    off = [abs(one.value - true[one.name]) / one.error for one in fit.coefficients if one.name in true]
    assert sum(ratio < 2 for ratio in off) >= 4 and max(off) < 8
    assert 0.03 < fit.held_out.mean < 0.05  # sqrt(2 / pi) of the noise, 0.04


@for_every_seed(10)
def test_pauses_are_no_property_of_a_step_but_are_told_in_the_total(seed: int) -> None:
    random = Random(seed)
    cost = cost_of_seed(random)
    steps = steps_like(random, cost, noise=0.02)
    is_pause = np.array([random.random() < 0.03 for _ in range(len(steps))])
    paused = Steps(work=steps.work, seconds=np.where(is_pause, 5 * steps.seconds, steps.seconds))
    fit = fit_steps(paused)
    assert fit.device.line.at(0) == pytest.approx(cost.line.at(0), rel=0.15)
    assert fit.fit.total == pytest.approx(-4 * is_pause.mean() / (1 + 4 * is_pause.mean()), abs=0.04)


@for_every_seed(5)
def test_a_kink_is_found_where_there_is_one_and_nowhere_else(seed: int) -> None:
    random = Random(seed)
    straight, kinked = (Fitted([(0, 0.01), (64, 0.01 + more), (1024, 0.2)], chunk=1e-4, decode=1e-4,
                               context=1e-7) for more in (0.19 * 64 / 1024, 0.0))  # fmt: skip
    assert len(fit_steps(steps_like(random, straight)).device.tokens) == 2
    found = fit_steps(steps_like(random, kinked, noise=0.01))
    assert len(found.device.tokens) > 2
    assert found.device.line.at(64) == pytest.approx(0.01, rel=0.05)
    assert found.device.line.at(900) == pytest.approx(kinked.line.at(900), rel=0.05)


def test_the_host_is_fitted_apart_where_a_log_has_it_apart() -> None:
    random = Random(3)
    steps = steps_like(random, cost_of_seed(random))
    running = steps.work["num_decodes"] + steps.work["num_chunks"]
    host = 50e-6 + 3e-6 * running
    fit = fit_steps(Steps(work=steps.work, seconds=steps.seconds, host=host))
    assert isinstance(fit.cost, Hosted) and fit.host == pytest.approx((50e-6, 3e-6))
    assert fit.coefficients[-1].per == "running request"


# --- what a log does not tell ------------------------------------------------------------


def test_terms_that_a_log_does_not_tell_are_left_out_and_named() -> None:
    fit = fit_steps(steps_of(imported()))
    assert [one.name for one in fit.coefficients] == ["base", "tokens from 0"]
    assert fit.device.line.at(3) == pytest.approx(0.0053)
    reasons = " ".join(fit.kept)
    assert "chunk: the log does not say num_chunks" in reasons
    assert "decode: the steps do not tell it from the other terms" in reasons  # tokens are decodes
    assert "context: the log does not say context_tokens" in reasons


def test_attention_can_be_left_out() -> None:
    random = Random(1)
    fit = fit_steps(steps_like(random, cost_of_seed(random)), attention=False)
    assert fit.device.context == fit.device.past == fit.device.prefill_attention == 0
    assert "context: left out by --no-attention" in fit.kept


def test_a_term_that_no_step_has_is_left_out() -> None:
    random = Random(2)
    steps = steps_like(random, cost_of_seed(random))
    work = {**steps.work, "past_tokens": 0 * steps.seconds}
    names, kept = usable(work, steps.seconds, attention=True)
    assert "past" not in names and kept == ["past: no step has any, so it is left out"]


def test_context_is_worked_out_from_free_blocks() -> None:
    free = np.array([100] + [90] * 79)
    steps = steps_of(imported(free_blocks=free, running=np.full(80, 4)))
    assert steps.work["context_tokens"].tolist() == [0] + [10 * 16 - 4 * 8] * 79
    assert "worked out from the KV blocks" in steps.notes[0]


def test_context_is_worked_out_from_the_usage_of_the_cache() -> None:
    found = imported(kv_usage=np.full(80, 0.5))
    assert "context_tokens" not in steps_of(found).work
    about = {"num_gpu_blocks": 20, "block_size": 32}
    known = Imported(file="a", form="log", steps=found.steps, about=about)
    decodes = np.arange(80) % 7 + 1
    assert steps_of(known).work["context_tokens"].tolist() == (10 * 32 - decodes * 16).tolist()


def test_tokens_that_a_preempted_request_computes_again_are_tokens_of_the_step() -> None:
    steps = steps_of(imported(decode_tokens=np.full(80, 50)))
    assert steps.work["tokens"].tolist() == [50] * 80


def test_steps_without_work_or_time_are_left_out() -> None:
    start = np.arange(80) * 0.01
    end, decodes = start + 0.005, np.full(80, 2)
    end[3], decodes[5] = start[3], 0
    steps = steps_of(imported(end_s=end, num_decodes=decodes))
    assert len(steps) == 78
    assert "a.csv: 1 of 80 steps took no time, and are left out" in steps.notes


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Imported(file="a", form="bench"), "a: has no steps"),
        (Imported(file="a", form="log", steps={"num_decodes": np.ones(9)}), "do not say prefill_tokens"),
        (
            Imported(
                file="a",
                form="log",
                steps=imported().steps,
                findings=(Finding(text="3 steps end before they start", is_wrong=True),),
            ),
            "a: 3 steps end before they start; a fit would rest on it",
        ),
    ],
    ids=["no steps", "no prefill", "broken"],
)
def test_a_file_that_cannot_be_fitted_is_refused_with_its_reason(found: Imported, why: str) -> None:
    with pytest.raises(InputError, match=why):
        steps_of(found)


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(InputError, match=f"59 steps were measured; a fit needs {FEWEST}"):
        fit_steps(steps_of(imported(59)))


def test_files_are_put_together_with_what_all_of_them_say() -> None:
    one, two = steps_of(imported(free_blocks=np.full(80, 9))), steps_of(replace(imported(70), file="b.csv"))
    both = together([one, two])
    assert len(both) == 150 and len(both.sources) == 2
    assert "context_tokens" not in both.work
    assert both.work["num_decodes"].tolist() == [*one.work["num_decodes"], *two.work["num_decodes"]]


def test_a_log_that_is_given_twice_would_be_tested_on_itself() -> None:
    with pytest.raises(InputError, match=r"a\.csv: is given twice"):
        together([steps_of(imported()), steps_of(imported())])


def test_logs_of_two_servers_are_not_one_fit() -> None:
    one, two = (replace(imported(), file=gpu, about={"gpu": gpu}) for gpu in ("L4", "T4"))
    with pytest.raises(InputError, match="of several servers, with gpu L4 and T4; fit each by itself"):
        together([steps_of(one), steps_of(two)])


def test_a_base_that_equal_steps_do_not_tell_from_their_tokens_is_named() -> None:
    found = fit_steps(steps_of(imported(num_decodes=np.full(80, 4))))
    assert "base: all steps have 4 tokens, so it is not told from what a token takes" in found.kept
    assert not any(line.startswith("base") for line in fit_steps(steps_of(imported())).kept)


# --- errors, by hand ---------------------------------------------------------------------


def test_errors_by_hand() -> None:
    found = errors(np.array([1.1, 1.8, 3.0]), np.array([1.0, 2.0, 3.0]))
    assert found.mean == pytest.approx(0.2 / 3)
    assert found.p95 == pytest.approx(0.1)
    assert found.total == pytest.approx(5.9 / 6 - 1)


def test_classes_part_the_steps_by_work_and_by_batch() -> None:
    work = {"prefill_tokens": np.array([0, 5, 5, 0]), "num_decodes": np.array([1, 0, 3, 300]),
            "num_chunks": np.array([0, 1, 2, 0])}  # fmt: skip
    found = {one.name: one.steps for one in classes(work, np.ones(4), np.ones(4))}
    kinds = {"decodes only": 2, "prompt tokens only": 1, "both": 1}
    assert found == kinds | {"1 running": 2, "5 to 16 running": 1, "over 256 running": 1}


def test_the_knots_have_enough_steps_on_both_sides() -> None:
    tokens = np.array([1.0] * 9 + [5.0] * 20 + [100.0] * 20 + [500.0] * 3)
    assert knots(tokens, 0) == (0.0, 500.0)
    assert knots(tokens, 2) == (0.0, 8.0, 500.0)  # 9 are at most 4; 3 are over 128


def test_terms_give_the_cost_that_their_columns_give() -> None:
    random = Random(4)
    steps = steps_like(random, cost_of_seed(random), 30)
    terms = Terms((0.0, 64.0, 600.0), TERMS)
    found = np.array([0.01, 2e-5, 5e-5, 1e-4, 2e-4, 3e-7, 4e-7, 5e-9])
    fit = terms.columns(steps.work) @ found
    cost = terms.cost(found)
    for i, seconds in enumerate(fit.tolist()):
        step = Step()
        for name in ("prefill_tokens", "num_chunks", "num_decodes", "context_tokens", "past_tokens"):
            setattr(step, name, int(steps.work[name][i]))
        step.prefill_attention = float(steps.work["prefill_attention"][i])
        assert cost.seconds(step) == pytest.approx(seconds)


# --- blocks ------------------------------------------------------------------------------


def test_no_step_is_predicted_by_a_fit_that_saw_its_block() -> None:
    columns = np.arange(95.0)[:, None]
    seen: list[set[float]] = []

    def solve(given: Numbers, seconds: Numbers) -> Numbers:
        seen.append(set(given[:, 0].tolist()))
        return np.array([float(len(seen))])

    found = held_out(columns, np.ones(95), solve)
    assert len(seen) == BLOCKS
    for row, seconds in enumerate(found.seconds.tolist()):
        fit = round(seconds / row) if row else 1
        assert float(row) not in seen[fit - 1]
    assert (np.diff(block_of(95)) >= 0).all() and set(np.bincount(block_of(95))) == {9, 10}


def test_the_standard_error_of_a_mean_is_that_of_its_blocks() -> None:
    seconds = np.repeat(np.arange(1.0, 11.0), 5)
    ones = np.ones((50, 1))
    found = held_out(ones, seconds, lambda columns, given: np.array([given.mean()]))
    assert found.errors[0] == pytest.approx(np.arange(1.0, 11.0).std(ddof=1) / np.sqrt(10))


def test_a_fit_that_misses_much_of_the_time_says_so() -> None:
    random = Random(5)
    steps = steps_like(random, cost_of_seed(random))
    slow = np.where(np.arange(len(steps)) % 8 == 0, 20 * steps.seconds, steps.seconds)
    (told,) = fit_steps(Steps(work=steps.work, seconds=slow)).remarks
    assert told.startswith("all steps together took +") and "the machine paused" in told
    assert fit_steps(steps).remarks == []


def test_a_coefficient_that_is_hardly_known_is_named() -> None:
    fit = fit_steps(steps_of(imported(num_chunks=np.arange(80) % 2, end_s=np.arange(80) * 0.01
                                      + np.random.default_rng(1).uniform(0.004, 0.008, 80))))  # fmt: skip
    weak = {one.name for one in fit.coefficients if 0 < one.value < one.error}
    assert weak and all(name in fit.remarks[-1] for name in weak)


def test_of_a_long_log_evenly_spaced_steps_are_fitted_and_the_range_is_that_of_all() -> None:
    steps = steps_of(imported(20_100))
    kept = thinned(steps, 80)
    assert len(kept) == 80
    assert kept.notes == ("of 20,100 steps, one in 252 is fitted, and errors are of those",)
    assert kept.work["num_decodes"].tolist() == steps.work["num_decodes"][::252].tolist()
    assert thinned(steps, 20_100) is steps
    fit = fit_steps(steps)
    assert len(fit.steps) == 10_050 and fit.range["num_decodes"] == (1, 7)


def test_a_long_log_has_the_same_fit_whether_it_is_summed_up_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(8)
    columns = random.random((5000, 4))
    seconds = columns @ np.array([1.0, 0.0, 3.0, 4.0]) + random.uniform(0, 0.5, 5000)
    summed = robust_fit(columns, seconds)
    monkeypatch.setattr(solve, "SHORT", 10_000)
    assert robust_fit(columns, seconds) == pytest.approx(summed, rel=1e-9)


def test_a_coefficient_is_never_negative() -> None:
    x = np.arange(1.0, 50.0)
    assert robust_fit(np.column_stack([np.ones(49), x]), 100 - x)[1] == 0


# --- a log of vLLM, and what is written --------------------------------------------------


@pytest.fixture(scope="module")
def of_vllm() -> StepFit:
    return fit_steps(read_steps([LOG]))


def test_steps_of_vllm_are_predicted_when_they_are_held_out(of_vllm: StepFit) -> None:
    assert of_vllm.held_out.mean < 0.06 and abs(of_vllm.held_out.total) < 0.01
    assert of_vllm.held_out.mean >= of_vllm.fit.mean
    assert sum(one.steps for one in of_vllm.classes[:3]) == len(of_vllm.steps) == 615


def test_half_of_a_log_predicts_the_other_half(of_vllm: StepFit) -> None:
    steps = of_vllm.steps
    half = len(steps) // 2
    first = {name: values[:half] for name, values in steps.work.items()}
    fit = fit_steps(Steps(work=first, seconds=steps.seconds[:half]))
    line, work = fit.device, {name: values[half:] for name, values in steps.work.items()}
    predicted = np.array([line.line.at(tokens) for tokens in work["tokens"]])
    predicted = predicted + line.chunk * work["num_chunks"] + line.decode * work["num_decodes"]
    predicted += line.context * work["context_tokens"] + line.prefill_attention * work["prefill_attention"]
    assert errors(predicted, steps.seconds[half:]).mean < 0.1


@for_every_seed(20)
def test_the_text_of_a_cost_is_read_back_to_six_digits(seed: int) -> None:
    device = cost_of_seed(Random(seed))
    for cost in (device, Hosted(device, 1e-4, 1e-6)):
        again = cost_of(text_of(cost))
        step = Step()
        step.quiet(9, 0, 4000)
        assert again.seconds(step) == pytest.approx(cost.seconds(step), rel=1e-5)


def test_a_profile_says_where_it_is_from_and_where_it_holds(of_vllm: StepFit) -> None:
    profile = profile_of(of_vllm, "mine")
    assert profile.model().seconds(Step()) > 0
    assert profile.range["tokens"] == (1, 506)
    assert profile.error["held_out"]["mean of a step"] == pytest.approx(of_vllm.held_out.mean, rel=1e-3)
    assert "615 steps" in profile.provenance["sources"][0]


def test_json_has_every_coefficient(of_vllm: StepFit) -> None:
    found = to_json(of_vllm)
    assert [one["name"] for one in found["coefficients"]] == [one.name for one in of_vllm.coefficients]
    assert found["held_out"]["mean"] == of_vllm.held_out.mean
