"""The report of the closed forms: what it says agrees with runs, and its numbers can be followed by hand."""

from __future__ import annotations

import json
import re
from heapq import heapreplace
from math import floor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from batchwright import Constant, Hosted, Limits, Linear, Roofline, Workload, dynamic, static, vllm
from batchwright.errors import InputError
from batchwright.slo import Slo
from batchwright.theory import gain, lengths
from batchwright.theory.expected_max import expected_max
from batchwright.theory_report import TheoryReport, theory_report
from batchwright.theory_report.facts import facts
from batchwright.theory_report.quantity import WIDTH, plain, quantity, seconds, shown
from batchwright.theory_report.steps import LinearStep, Regime, linear_step

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

LINEAR = Linear(0.006, 2e-5, 5e-5, 2e-8)
LOAD = "poisson(rate={rate}, n=4000, prompt=uniform(100, 900), output=uniform(20, 180))"


@pytest.fixture(scope="module")
def report() -> TheoryReport:
    """A load of 0.26 on slots that are linear, with KV memory."""
    load = Workload.open(LOAD.format(rate=10))
    limits = Limits(max_num_seqs=64, num_kv_blocks=6000)
    return theory_report(load, LINEAR, limits, [static(16, padded=False)], Slo(tpot=0.012))


@pytest.fixture(scope="module")
def bursty() -> TheoryReport:
    """A roofline with its host, and bursts."""
    cost = Hosted(Roofline("H100-SXM", "llama-3.1-8b"))
    return theory_report(Workload.open("chat"), cost, Limits(max_num_batched_tokens=8192))


NEAR = {
    "longest_of_32": 0.03, "ceiling": 0.03, "static_batch_s": 0.02, "mean_step_s": 0.02, "running": 0.04,
    "tpot_s": 0.02, "ttft_s": 0.03, "e2e_s": 0.03, "static_e2e_s": 0.04, "saturated_gain": 0.05,
    "constant_step_gain": 0.06, "gain_at_once": 0.06, "largest_batch_tpot_s": 0.04,
}  # fmt: skip


@pytest.mark.parametrize("key", NEAR)
def test_a_formula_is_near_its_run(report: TheoryReport, key: str) -> None:
    found = report[key]
    assert found.simulated is not None
    assert found.value == pytest.approx(found.simulated.value, rel=NEAR[key]), found


def test_a_fitted_roofline_is_near_its_run(bursty: TheoryReport) -> None:
    for key, near in (("static_batch_s", 0.05), ("mean_step_s", 0.05), ("tpot_s", 0.1), ("e2e_s", 0.1)):
        found = bursty[key]
        assert found.simulated is not None
        assert found.value == pytest.approx(found.simulated.value, rel=near), found
    assert any("fitted on" in said for part in bursty.sections for said in part.said)
    assert "too low in bursts" in bursty["ttft_s"].holds
    assert bursty["slot_wait_bursty_s"].value >= 0


def test_dynamic_batches_are_near_their_run() -> None:
    load = Workload.open(LOAD.format(rate=8))
    found = theory_report(load, LINEAR, Limits(max_num_seqs=64), [dynamic(16, 0.2)])["dynamic_ttft_s"]
    assert found.simulated is not None
    assert found.value == pytest.approx(found.simulated.value, rel=0.06)


UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
IN_WORDS = ("dynamic_batch", "slo_rate")  # a chain, and an n from the line above


def value_of(filled: str) -> float:
    """What a filled formula comes to."""
    text = filled.partition(", m = ")[0].replace(" x ", " * ")
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    text = re.sub(r"([\d.]+) (us|ms|s)\b", lambda match: f"({match[1]} * {UNITS[match[2]]})", text)
    return float(eval(text, {"min": min, "max": max, "floor": floor, "inf": float("inf")}))


@pytest.mark.parametrize("which", ["report", "bursty"])
def test_the_numbers_put_in_give_the_value(which: str, request: pytest.FixtureRequest) -> None:
    found = request.getfixturevalue(which)
    asked = [q for part in found.sections for q in part.quantities if q.filled and q.key not in IN_WORDS]
    assert len(asked) > 20
    for q in asked:
        near = 0.01 if q.key != "overlap_gain" else 0.1  # a small difference of rounded numbers
        assert value_of(q.filled) == pytest.approx(q.value, rel=near, abs=1e-9), q


def test_no_line_is_wider_than_a_terminal_of_110(report: TheoryReport, bursty: TheoryReport) -> None:
    for found in (report, bursty):
        assert max(map(len, found.text().splitlines())) <= WIDTH


def test_what_is_overloaded_says_so_and_the_rest_has_values() -> None:
    load = Workload.open(LOAD.format(rate=200)).head(1000)
    found = theory_report(load, LINEAR, Limits(max_num_seqs=64))
    for key in ("tpot_s", "static_e2e_s", "dynamic_ttft_s"):
        assert np.isnan(found[key].value) and "must be under 1 for a steady state" in found[key].why
    assert found["load"].value > 1 and found["slots_ceiling"].value < 200
    assert "does not apply: load" in found.text()


def test_a_load_at_once_has_a_gain_and_no_waits() -> None:
    found = theory_report(Workload.open("article"), Constant(0.025), Limits(max_num_seqs=32))
    assert "all requests come at once" in found["tpot_s"].why
    assert found["gain_at_once"].name.endswith("100 requests at once")
    assert found["gain_at_once"].value == pytest.approx(0.6, abs=0.1)


def test_a_closed_loop_has_no_rate_of_its_own() -> None:
    load = Workload.open("closed(clients=4, n=100, prompt=100, output=50)")
    found = theory_report(load, LINEAR, Limits(max_num_seqs=8))
    assert "only a run knows their rate" in found["ttft_s"].why
    assert found["slots_ceiling"].value > 0


def test_an_objective_bounds_the_batch(report: TheoryReport) -> None:
    batch, rate = report["slo_batch"].value, report["slo_rate"].value
    each = (report["largest_batch_tpot_s"].value - 0.006) / report["largest_batch"].value
    assert 0.006 + batch * each <= 0.012 < 0.006 + (batch + 1) * each
    assert 0 < rate < report["slots_ceiling"].value


def test_the_policies_set_batch_window_and_scheduling() -> None:
    load, limits = Workload.open(LOAD.format(rate=8)).head(500), Limits(max_num_seqs=16)
    policies = [vllm(async_scheduling=False), static("auto"), dynamic(4, 0.5)]
    found = theory_report(load, LINEAR, limits, policies)
    said = [line for part in found.sections for line in part.said]
    assert any(line.startswith("batches of 16, padded") for line in said)  # auto: the default
    assert any(line.startswith("batches of up to 4, window 500 ms") for line in said)


# --- the fitted step ---------------------------------------------------------------------


def test_a_linear_step_under_another_name_is_fitted_exactly() -> None:
    known = facts(Workload.open(LOAD.format(rate=8)), Limits())
    found = linear_step(LINEAR.seconds, known, Regime(least=1, most=64), overlap=False)
    assert (found.base, found.prefill) == pytest.approx((0.006, 2e-5), rel=1e-3)
    assert (found.decode, found.context) == pytest.approx((5e-5, 2e-8), rel=1e-3)
    assert found.error < 1e-3 and "1 to 64 requests" in found.fit


def test_a_host_adds_to_the_step_where_it_does_not_overlap() -> None:
    known = facts(Workload.open(LOAD.format(rate=8)), Limits())
    hosted = Hosted(LINEAR, base=1e-3, per_running=1e-4)
    found = linear_step(hosted, known, Regime(least=1, most=64), overlap=False)
    assert found == LinearStep(base=0.007, request=1e-4, prefill=2e-5, decode=5e-5 + 1e-4, context=2e-8)
    hidden = linear_step(hosted, known, Regime(least=1, most=16), overlap=True)
    assert hidden.base == pytest.approx(0.006, rel=1e-3)


def test_only_what_is_served_counts() -> None:
    load = Workload.from_columns([0, 1, 2], [10, 50, 10], [5, 5, 60])
    known = facts(load, Limits(max_model_len=40))
    assert known.outputs.tolist() == [5, 30]
    with pytest.raises(InputError, match="no prompt is under max_model_len 8; raise it"):
        facts(load, Limits(max_model_len=8))


# --- text and JSON -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0062, "s", "6.20 ms"), (12.34, "s", "12.3 s"), (2e-5, "s", "20.0 us"), (0.9999, "s", "1.00 s"),
        (0.732, "gain", "+73.2%"), (0.074, "share", "7.4%"), (1.735, "x", "1.74x"),
        (12345.6, "requests/s", "12,346 requests/s"), (64, "requests", "64 requests"),
    ],
)  # fmt: skip
def test_values_have_three_digits_and_their_unit(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_numbers_in_formulas_have_four_digits() -> None:
    assert [plain(x) for x in (211.13, 0.0123456, 123456.7)] == ["211.1", "0.01235", "123,457"]
    assert [seconds(x) for x in (0.0, 3e-7, 0.006213, 12.0)] == ["0 s", "0.3 us", "6.213 ms", "12 s"]


def test_a_quantity_that_does_not_apply_keeps_the_reason_and_no_numbers() -> None:
    def refuses() -> float:
        raise InputError("load is 2")

    found = quantity("k", "name", "s", "a / b", "1 / 0", refuses)
    assert np.isnan(found.value) and found.why == "load is 2" and found.filled == ""


def test_every_key_of_the_json_is_documented(report: TheoryReport) -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "theory.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `([a-zA-Z_.0-9]+)` \|", page.partition("## JSON")[2], re.MULTILINE))
    found: dict[str, Any] = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert set(found["quantities"]) >= set(NEAR)
    keys = {f"quantities.KEY.{key}" for q in found["quantities"].values() for key in q}
    keys |= {f"workload.{key}" for key in found["workload"]} | {"schema_version", "assumptions"}
    assert documented == keys | {"cost", "notes"}  # the command adds the last two


def test_every_function_that_the_page_names_exists() -> None:
    from importlib import import_module

    page = (Path(__file__).resolve().parent.parent / "docs" / "theory.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)\.(\w+)`", page.partition("## JSON")[0], re.MULTILINE)
    assert len(named) > 40
    for module, function in named:
        assert callable(getattr(import_module(f"batchwright.theory.{module}"), function)), function


def test_the_command_says_what_it_leaves_out(capsys: pytest.CaptureFixture[str]) -> None:
    from batchwright.cli.theory import theory
    from batchwright.scenario.keys import Scenario

    asked = Scenario(
        workload="poisson(rate=4, n=300, prompt=100, output=50)",
        cost="linear(0.006, 2e-5, 5e-5)",
        policies="static(8),orca,vllm,static(16)",
        slo="tpot=10ms",
        repeat=3,
    )
    theory(asked, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert any(note.startswith("no formulas for orca, static(16):") for note in found["notes"])
    assert any("--repeat has no effect" in note for note in found["notes"])
    assert found["quantities"]["slo_batch"]["value"] > 1
    theory(asked, as_json=False)
    printed = capsys.readouterr().out
    assert "largest batch with a TPOT of 10 ms" in printed and "no formulas for orca" in printed


# --- where the formulas end, and what they leave out -------------------------------------


@pytest.mark.parametrize("spread", [0, 10])
def test_outputs_that_hardly_spread_have_no_gain_at_once(spread: int) -> None:
    output = f"uniform({200 - spread}, {200 + spread})"
    load = Workload.open(f"poisson(rate=4, n=300, prompt=500, output={output})")
    found = theory_report(load, LINEAR, Limits(max_num_seqs=64))["gain_at_once"]
    assert np.isnan(found.value) and "leave in waves" in found.why
    assert found.simulated is not None and found.simulated.value < 0.06


LAWS = [lengths.uniform(300 - half, 300 + half) for half in (0, 15, 60, 100, 180, 260)]
LAWS += [lengths.geometric(288.0, 512), lengths.lognormal(288.0, 0.3), lengths.empirical([10, 10, 500])]


def last_end(outputs: list[int], slots: int) -> int:
    """Steps until all have ended; the next one starts where one ends first."""
    ends = [0] * slots
    for tokens in outputs:
        heapreplace(ends, ends[0] + tokens)
    return max(ends)


@pytest.mark.parametrize("slots", [8, 64])
def test_the_time_of_a_flood_is_right_wherever_it_is_given(slots: int) -> None:
    """Within 5 %, 2 % from 4 requests a slot on; what is refused would be off by more than that somewhere."""
    random, worst, refused = np.random.default_rng(5), 0.0, []
    for law in LAWS:
        for turns in (2, 2.5, 3, 4, 6, 12):
            count = round(turns * slots)
            drawn = [last_end(lengths.draw(law, count, random).tolist(), slots) for _ in range(6000 // count)]
            try:
                found = gain.continuous_time(law, count, slots, 1.0) / float(np.mean(drawn)) - 1
                noise = 3 * float(np.std(drawn) / np.mean(drawn)) / len(drawn) ** 0.5
                assert abs(found) < noise + (0.05 if turns < 4 else 0.02), (law.size, turns, found)
            except InputError:
                refused.append((law, count, drawn))
    for law, count, drawn in refused:
        left = lengths.residual(law)
        formula = count * lengths.mean(law) / slots - lengths.mean(left) + expected_max(left, slots)
        worst = max(worst, abs(formula / float(np.mean(drawn)) - 1))
    assert worst > 0.15


@pytest.mark.parametrize(("turns", "cv"), [(2, 0.21), (3, 0.16), (4, 0.13), (6, 0.091), (10, 0.051)])
def test_the_spread_from_which_a_flood_has_a_time_is_that_of_the_page(turns: int, cv: float) -> None:
    for share, is_given in ((0.97, False), (1.03, True)):
        half = round(20_000 * cv * share * 3**0.5)
        error = gain.wave_error(lengths.uniform(20_000 - half, 20_000 + half), turns * 32, 32)
        assert (error <= 0.03) == is_given, (half, error)


def test_under_two_requests_a_slot_a_flood_has_no_time() -> None:
    with pytest.raises(InputError, match="63 requests are under 2 x 32 slots"):
        gain.continuous_time(LAWS[4], 63, 32, 1.0)


def a_load_on_512_slots(rate: float, n: int) -> TheoryReport:
    load = Workload.open(f"poisson(rate={rate}, n={n}, prompt=uniform(100, 900), output=uniform(20, 180))")
    return theory_report(load, LINEAR, Limits(max_num_seqs=512))


def test_near_saturation_a_line_says_what_the_run_differs_by() -> None:
    found = a_load_on_512_slots(rate=54, n=2000)
    assert found["load"].value > 0.9
    for key in ("mean_step_s", "running", "tpot_s", "ttft_s", "e2e_s"):
        assert "the run may not be steady: " in found[key].holds, key
    step = found["mean_step_s"]
    assert step.simulated is not None
    assert abs(step.value / step.simulated.value - 1) > 0.1  # else there is nothing to say
    told = re.search(r"may not be steady: ([\d.]+) ms at the ([\d.]+) requests/s", step.holds)
    assert told is not None and float(told[2]) < 54
    assert float(told[1]) * 1e-3 == pytest.approx(step.simulated.value, rel=0.03)
    said = " ".join(line for part in found.sections for line in part.said)
    assert "is over 90%" in said and "waits for the token budget now and then is not in TTFT" in said


def test_a_steady_run_gets_no_such_word(report: TheoryReport) -> None:
    assert "may not be steady" not in report.text()


def test_a_short_run_is_called_short_at_any_load() -> None:
    found = a_load_on_512_slots(rate=10, n=50)
    assert found["load"].value < 0.5
    assert "may not be steady" in found["tpot_s"].holds and "may not be steady" in found["static_e2e_s"].holds
    assert "50 requests are too few to tell" in found.text()


LIMITED = [
    (vllm(max_num_seqs=16), Limits(max_num_seqs=16)),
    (vllm(max_num_batched_tokens=512), Limits(max_num_batched_tokens=512)),
    (vllm(max_num_scheduled_tokens=64), Limits(max_num_seqs=64, max_num_batched_tokens=64)),
]


@pytest.mark.parametrize(("policy", "limits"), LIMITED)
def test_a_policys_own_limits_are_those_of_the_server(policy: Any, limits: Limits) -> None:
    load = Workload.open(LOAD.format(rate=4)).head(300)
    own = theory_report(load, LINEAR, Limits(), [policy, static(8), dynamic(8)])
    served = theory_report(load, LINEAR, limits, [vllm(), static(8), dynamic(8)])
    for key in ("slots_ceiling", "token_ceiling", "largest_batch", "slots_gain", "slot_wait_s"):
        assert own[key].filled == served[key].filled and own[key].value == served[key].value, key


def test_what_no_formula_uses_is_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    from batchwright.cli.theory import theory
    from batchwright.scenario.keys import Scenario

    asked = Scenario(
        workload="poisson(rate=4, n=300, prompt=100, output=50)",
        cost="linear(0.006, 2e-5, 5e-5)",
        policies="vllm(watermark=0.1,max_num_seqs=16),static(auto,streamed=true),dynamic(8)",
        slo="ttft=100ms,tpot=10ms",
        max_num_seqs=64,
    )
    theory(asked, as_json=False)
    printed = capsys.readouterr().out
    assert "no formula uses watermark of vllm\n" in printed
    assert "no formula uses streamed of static\n" in printed and "of dynamic" not in printed
    assert "no formula finds batch_size=auto: batches of 32" in printed
    assert "no formula bounds a batch by ttft: of the objectives only tpot is used" in printed
    assert "slots bind, " in printed and "so that no wait below has a mean" in printed


@pytest.mark.parametrize(("rate", "near"), [(3, 0.02), (8, 0.03), (12, 0.04)])
def test_prompts_that_share_a_step_are_in_the_fit(rate: float, near: float) -> None:
    """A roofline hides its first prompt of a step behind its weights, and no other."""
    load = Workload.open(f"poisson(rate={rate}, n=2500, prompt=512, output=128)")
    found = theory_report(load, Hosted(Roofline("L40S", "llama-3.1-8b")), Limits())["mean_step_s"]
    assert found.simulated is not None
    assert found.value == pytest.approx(found.simulated.value, rel=near)


def test_a_step_without_prefill_cost_is_fitted_too() -> None:
    load = Workload.open(LOAD.format(rate=8)).head(500)
    known = facts(load, Limits())
    regime = Regime(least=1, most=16, arriving=0.5)
    found = linear_step(Hosted(Constant(0.02), per_running=1e-6), known, regime, overlap=True)
    assert found.base == pytest.approx(0.02, rel=1e-3) and found.prefill == found.attention == 0


def test_a_fitted_step_says_what_an_error_of_the_fit_does(report: TheoryReport, bursty: TheoryReport) -> None:
    assert "here fitted" not in report["mean_step_s"].holds
    told = re.search(r"here fitted: 1% in the work is ([\d.]+)% in it", bursty["mean_step_s"].holds)
    base = re.match(r"([\d.]+) ms", bursty["mean_step_s"].filled)
    assert told is not None and base is not None
    assert float(told[1]) == pytest.approx(bursty["mean_step_s"].value * 1e3 / float(base[1]) - 1, abs=0.06)
