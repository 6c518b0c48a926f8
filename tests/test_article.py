"""The article's numbers, computed again: against closed forms, and against what is known of them."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from batchwright.article import Study, as_json, claims, formulas, full_text, recompute, short_text
from batchwright.article.counts import count_row
from batchwright.article.scheduler import asynchronous_loss
from batchwright.article.serve import STATIC, closed_form_gain, serve
from batchwright.cli import main
from batchwright.cost import Constant
from batchwright.interval import Interval
from strategies import for_every_seed

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

ROOT = Path(__file__).resolve().parent.parent
KEY = re.compile(r"^\| `([\w.]+)` \|", re.MULTILINE)


@pytest.fixture(scope="module")
def study() -> Study:
    return recompute(200)


def agrees(found: Interval, expected: float) -> bool:
    """Is it in the 99.7 % interval, and is that so narrow that 3 % more or less would not be?

    99.7 %, as many numbers of the same workloads are checked, and they go up and down together.
    """
    margin = 1.5 * found.half
    return abs(found.value - expected) <= margin < 0.03 * abs(expected)


# --- its formulas ------------------------------------------------------------------------


def test_the_formulas_give_what_their_closed_forms_say(study: Study) -> None:
    static, waves = study.expected["static_formula"], study.expected["continuous_formula"]
    assert static == pytest.approx(47.98, abs=0.01) and waves == pytest.approx(39.69, abs=0.01)
    assert agrees(study.rows["static_formula"].seconds, static)
    assert agrees(study.rows["continuous_formula"].seconds, waves)
    assert agrees(study.rows["continuous"].seconds, study.expected["continuous"])


@pytest.mark.parametrize(
    ("way", "total", "output"),
    [
        ("static_formula", 5410, 600),
        ("continuous_formula", 6531, 726),
        ("continuous", 8901, 988),
        ("static_prefill", 3647, 406),
        ("static_prefill_padded", 2958, 329),
        ("continuous_prefill", 4964, 552),
    ],
)
def test_the_tokens_per_second_of_every_way_are_known(
    study: Study, way: str, total: float, output: float
) -> None:
    row = study.rows[way]
    assert agrees(row.total_throughput, total) and agrees(row.output_throughput, output)


@pytest.mark.parametrize(
    ("way", "seconds"),
    [
        ("continuous", 29.19),
        ("static_prefill", 71.1),
        ("static_prefill_padded", 87.7),
        ("continuous_prefill", 52.2),
    ],
)
def test_the_simulated_seconds_are_known(study: Study, way: str, seconds: float) -> None:
    assert agrees(study.rows[way].seconds, seconds)


def test_the_gain_of_its_formulas_is_21_percent(study: Study) -> None:
    found = study.gains.formula
    assert abs(found.value - 0.211) <= 1.5 * found.half < 0.02
    assert not found.low <= claims.CLAIMED_GAIN <= found.high


@pytest.mark.parametrize(
    ("name", "expected"), [("simulated", 0.649), ("prefill", 0.361), ("prefill_padded", 0.68)]
)
def test_the_simulated_gains_are_known(study: Study, name: str, expected: float) -> None:
    assert agrees(getattr(study.gains, name), expected)


@for_every_seed(20)
def test_its_static_formula_is_static_batching_to_the_step(seed: int) -> None:
    load = formulas.load(seed, 1 + seed % 150)
    simulated = serve(load, STATIC, Constant(claims.STEP))
    assert simulated == pytest.approx(formulas.static_seconds(load.output), rel=1e-12)


@for_every_seed(200)
def test_its_formulas_never_show_more_than_the_fraction_of_a_batch(seed: int) -> None:
    random = Random(seed)
    output = np.array([random.randint(1, random.choice([2, 500])) for _ in range(random.randint(1, 300))])
    shown = formulas.static_seconds(output) / formulas.continuous_seconds(output) - 1
    assert shown <= formulas.greatest_gain(len(output)) + 1e-12


def test_equal_outputs_reach_the_bound() -> None:
    output = np.full(claims.REQUESTS, 300)
    shown = formulas.static_seconds(output) / formulas.continuous_seconds(output) - 1
    assert shown == pytest.approx(formulas.greatest_gain(claims.REQUESTS)) == pytest.approx(0.28)


def test_its_formulas_call_continuous_slower_where_batches_are_full(study: Study) -> None:
    slower = {row.requests for row in study.counts if row.formula.high < 0}
    assert {64, 96, 128} <= slower and 100 not in slower
    assert all(row.simulated.low > 0 for row in study.counts if row.requests > claims.BATCH)


def test_the_claimed_static_figure_is_out_of_reach(study: Study) -> None:
    assert study.num_claimed == 0
    assert study.claim_seconds == pytest.approx(74.06, abs=0.01) and study.most_seconds == pytest.approx(51.2)
    assert study.rows["static_formula"].total_throughput.low > claims.CLAIMED_STATIC


# --- continuous batching in closed form --------------------------------------------------


def test_many_requests_gain_the_longest_over_the_mean(study: Study) -> None:
    assert study.gains.limit == pytest.approx(0.732, abs=0.001)
    assert agrees(study.gains.many, study.gains.many_closed_form)
    assert closed_form_gain(3_200_000) == pytest.approx(study.gains.limit, abs=1e-4)


def test_the_closed_form_is_near_the_simulation_for_every_number_of_requests(study: Study) -> None:
    for row in study.counts:
        half = row.simulated.half
        off = abs(row.closed_form - row.simulated.value)
        assert off <= half + 0.02, row.requests


def test_the_gain_by_law_and_batch_size_is_known(study: Study) -> None:
    known = {
        "uniform 64 to 512": (47, 61, 69, 73, 76),
        "uniform 1 to 512": (60, 78, 88, 94, 97),
        "geometric, mean 288": (108, 172, 238, 305, 374),
        "geometric, mean 288, cut at 512": (79, 103, 112, 114, 114),
        "lognormal, mean 288, sigma 0.3": (33, 49, 65, 80, 95),
        "lognormal, mean 288, sigma 0.5": (57, 89, 122, 156, 192),
        "lognormal, mean 288, sigma 0.8": (95, 157, 230, 313, 407),
        "lognormal, mean 288, sigma 1, cut at 1024": (105, 167, 224, 265, 284),
    }
    assert [row.law for row in study.laws] == list(known)
    for row in study.laws:
        assert [100 * gain for gain in row.gains] == pytest.approx(known[row.law], abs=1.1)


# --- GPUs and the scheduler ----------------------------------------------------------------


def test_prompts_that_cost_leave_less_than_the_gain_of_decoding(study: Study) -> None:
    assert [row.gpu for row in study.gpus] == ["L40S", "A100-80G-SXM", "H100-SXM"]
    for row in study.gpus:
        assert row.unpadded.low > 0 and row.unpadded.high < study.gains.simulated.value
        assert row.padded.low > row.unpadded.high and row.all_seats.low > row.unpadded.high
        ratio = row.vllm.value / row.static.value - 1
        assert ratio == pytest.approx(row.unpadded.value, rel=0.03)


def test_scheduling_costs_20_us_and_7_5_per_running_request(study: Study) -> None:
    assert [row.running for row in study.scheduler] == [8, 32, 256]
    assert [row.host for row in study.scheduler] == pytest.approx([80e-6, 260e-6, 1940e-6])
    for row in study.scheduler:
        for name, step in row.steps.items():
            assert row.losses[name] == pytest.approx(row.host / (row.host + step))
        assert row.asynchronous == 0 and row.losses["claimed"] > 0.1


def test_a_flood_loses_what_the_formulas_say(study: Study) -> None:
    flood = study.flood
    assert flood.synchronous_form == pytest.approx(1 / 11)
    assert flood.synchronous == pytest.approx(flood.synchronous_form, rel=0.001)
    assert flood.asynchronous == pytest.approx(flood.asynchronous_form, rel=0.03)


def test_a_host_slower_than_the_device_is_not_hidden() -> None:
    assert asynchronous_loss(0.025, 0.002) == 0
    assert asynchronous_loss(0.005, 0.010) == pytest.approx(0.5)


# --- what is printed -------------------------------------------------------------------------


def test_nothing_is_stored() -> None:
    """No number that comes out is written in the code: the claims are all that is."""
    computed = ("47.9", "39.6", "39.7", "29.1", "29.2", "5410", "6531", "0.732", "0.211", "0.649", "1.28")
    for file in (ROOT / "src" / "batchwright" / "article").glob("*.py"):
        source = file.read_text(encoding="utf-8")
        assert [number for number in computed if number in source] == [], file.name


def test_other_seeds_give_other_numbers_and_the_same_seeds_the_same(study: Study) -> None:
    told: list[float] = []
    few = recompute(10, told.append)
    assert few.rows["continuous"].seconds != study.rows["continuous"].seconds
    assert few.counts[1] == count_row(few.counts[1].requests, 10) != study.counts[1]
    assert told == sorted(told) and len(told) > 10 and 0.9 < told[-1] <= 1


def test_the_short_text_is_ten_lines_that_fit(study: Study) -> None:
    lines = short_text(study).splitlines()
    assert len(lines) == 10 and max(map(len, lines)) <= 100
    assert f"{study.rows['continuous'].seconds.value:.2f} s" in lines[3]


def test_the_full_text_fits_and_has_a_verdict_in_every_section(study: Study) -> None:
    lines = full_text(study).splitlines()
    assert max(map(len, lines)) <= 100
    titles = [line for line in lines if re.match(r"\d\. ", line)]
    assert [title[0] for title in titles] == list("123456")
    assert "* +94%" in full_text(study) and "* +73%" not in full_text(study)


def test_the_json_has_documented_keys_and_no_nan(study: Study) -> None:
    found = json.loads(json.dumps(as_json(study), allow_nan=False))
    page = (ROOT / "docs" / "article.md").read_text(encoding="utf-8")
    assert set(paths(found)) == set(KEY.findall(page))


def paths(value: Any, before: str = "") -> Iterator[str]:
    """Every key; WAY, GPU and B stand for the keys that are names, an estimate is one entry."""
    if isinstance(value, list):
        for item in value:
            yield from paths(item, before)
    elif isinstance(value, dict) and "low" not in value:
        for key, inner in value.items():
            name = {"ways": "WAY", "step_s": "GPU", "synchronous_loss": "GPU", "gains": key}.get(
                before.split(".")[-1], key
            )
            name = "B" if before == "by_law.gains" else name
            yield from paths(inner, f"{before}.{name}" if before else name)
    else:
        yield before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "9"], "seeds is 9; give a whole number of at least 10, for the intervals"),
        (["--short", "--json"], "--short is given together with --json; leave one of them out"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["batchwright", "article", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2 and capsys.readouterr().err == f"batchwright: {said}\n"
