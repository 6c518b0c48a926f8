"""Predicted beside measured: matching, errors, who queued, residuals, drift, charts and bounds."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.imported import Finding, Imported
from batchwright.profile import Profile, as_text
from batchwright.run.counts import Count
from batchwright.run_folder import RunFolder
from batchwright.validation import Side, Validation, measured_side, paragraph, predicted_side, read_bounds
from batchwright.validation.charts import BOTH, HEIGHT, MEASURED, PREDICTED, area_width, charts, drawn
from batchwright.validation.extrapolation import extrapolation
from batchwright.validation.lines import window
from batchwright.validation.picture import check_plot, picture
from batchwright.validation.report import remarks
from batchwright.validation.side import changes, completed
from test_cli import Command, command, good, refusal

pytestmark = pytest.mark.pure
__all__ = ["command"]  # a fixture

BURST = "arrival,prompt,output\n" + "".join(f"0,{100 + i},{5 + i % 7}\n" for i in range(40))


def imported(count: int = 60, seed: int = 0, series: Any = None, **columns: Any) -> Imported:
    """A server that serves one request every half second, after a wait that differs."""
    random = np.random.default_rng(seed)
    arrival = np.arange(count) / 2
    output = random.integers(2, 50, count)
    ttft = random.uniform(0.05, 0.5, count)
    requests = {
        "arrival_s": arrival,
        "prompt_tokens": random.integers(10, 900, count),
        "output_tokens": output,
        "ttft_s": ttft,
        "e2e_s": ttft + (output - 1) * random.uniform(0.01, 0.02, count),
    }
    return Imported(file="server.json", form="of a test", requests=requests | columns, series=series)


def slower(found: Imported, factor: float) -> Imported:
    """The same with all times after the arrival longer."""
    assert found.requests is not None
    times = {name: factor * found.requests[name] for name in ("ttft_s", "e2e_s")}
    return Imported(file="slow", form="of a test", requests=dict(found.requests) | times)


def validation(predicted: Imported, measured: Imported, **given: Any) -> Validation:
    return Validation(predicted=measured_side(predicted), measured=measured_side(measured), **given)


# --- errors ------------------------------------------------------------------------------


@given(st.floats(-0.5, 3.0), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_times_that_are_all_longer_by_a_share_show_it_as_their_error(share: float, seed: int) -> None:
    measured = imported(seed=seed)
    found = validation(slower(measured, 1 + share), measured)
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        for which in ("mean", "p50", "p90", "p99"):
            assert found.lines[f"{name}.{which}"].error == pytest.approx(share, abs=1e-9)
    assert found.matching.is_paired


def test_sides_that_agree_have_no_error_no_drift_and_no_residual() -> None:
    found = validation(imported(), imported())
    assert all(line.error == 0 for line in found.lines.values() if line.is_defined)
    assert found.drift.value == 0 and not found.drift.is_clear
    assert found.residuals == []
    assert paragraph(found).startswith("Right within 5%:") and "Off by more" not in paragraph(found)


def test_the_interval_of_a_pair_is_narrower_than_that_of_two_distributions() -> None:
    measured = imported(400)
    paired = validation(slower(measured, 1.1), measured).lines["e2e_s.mean"]
    other = imported(399)
    apart = validation(slower(measured, 1.1), other)
    assert not apart.matching.is_paired
    assert 0 < paired.error_half < apart.lines["e2e_s.mean"].error_half / 2


def test_an_error_that_is_sure_has_no_width() -> None:
    found = validation(imported(200), imported(200))
    assert found.lines["ttft_s.mean"].error_half == 0


def test_rates_are_those_from_the_first_arrival_to_the_last_end() -> None:
    rows = {
        "arrival_s": [0.0, 1.0, 3.0],
        "prompt_tokens": [10, 20, 30],
        "output_tokens": [2, 4, 6],
        "finished_s": [2.0, 5.0, 4.0],
    }
    found = validation(_of(rows), _of(rows))
    lines = {key: line.measured for key, line in found.lines.items()}
    assert lines["duration_s"] == 5.0
    assert lines["request_throughput_per_s"] == pytest.approx(3 / 5)
    assert lines["output_throughput_tokens_per_s"] == pytest.approx(12 / 5)
    assert lines["total_throughput_tokens_per_s"] == pytest.approx(72 / 5)
    assert lines["present.mean"] == pytest.approx((2 + 4 + 1) / 5) and lines["present.peak"] == 2
    later = validation(_of(rows), _of(rows), skip=1)
    assert later.lines["output_throughput_tokens_per_s"].measured == pytest.approx(10 / 4)


def _of(rows: Mapping[str, Any], **given: Any) -> Imported:
    requests = {name: np.array(values) for name, values in rows.items()}
    return Imported(file="small", form="of a test", requests=requests, **given)


def test_gaps_are_compared_where_both_sides_have_them() -> None:
    rows = {"arrival_s": [0.0, 1.0], "prompt_tokens": [5, 5], "output_tokens": [3, 2]}
    gaps = (np.array([0.1, 0.3]), np.array([0.2]))
    found = validation(_of(rows, gaps=gaps), _of(rows, gaps=tuple(2 * each for each in gaps)))
    assert found.lines["itl_s.mean"].predicted == pytest.approx(0.2)
    assert found.lines["itl_s.mean"].error == pytest.approx(-0.5)
    without = validation(_of(rows), _of(rows, gaps=gaps))
    assert not without.lines["itl_s.mean"].is_defined
    skipped = validation(_of(rows, gaps=gaps), _of(rows, gaps=gaps), skip=1)
    assert skipped.lines["itl_s.mean"].measured == pytest.approx(0.2)
    assert skipped.lines["itl_s.p99"].measured == pytest.approx(0.2)


def test_a_count_of_zero_has_a_difference_but_no_relative_error() -> None:
    rows = {"arrival_s": [0.0, 1.0], "prompt_tokens": [5, 5], "output_tokens": [3, 2]}
    found = validation(_of(rows | {"preemptions": [1, 2]}), _of(rows, totals={"preemptions": 0.0}))
    line = found.lines["num_preemptions"]
    assert line.difference == 3 and isnan(line.error)
    assert isnan(validation(_of(rows), _of(rows), skip=1).lines["num_preemptions"].measured)


def test_totals_stand_for_requests_that_are_not_there() -> None:
    totals = {
        "ttft_s.mean": 0.2, "ttft_s.p50.least": 0.1, "ttft_s.p50.most": 0.5, "e2e_s.p99.least": 9.0,
        "output_tokens_per_s": 50.0, "preemptions": 2.0,
    }  # fmt: skip
    found = validation(imported(), Imported(file="scrape", form="/metrics", totals=totals))
    assert found.matching.lines[0] == "the measured file has no requests one by one"
    predicted = found.lines["ttft_s.mean"].predicted
    assert found.lines["ttft_s.mean"].error == pytest.approx(predicted / 0.2 - 1)
    assert found.lines["output_throughput_tokens_per_s"].measured == 50.0
    assert found.lines["num_preemptions"].measured == 2.0
    said = remarks(found)
    assert any(line.startswith("TTFT P50: 100 ms to 500 ms measured") and "inside" in line for line in said)
    assert any(line.startswith("E2E P99: over 9.00 s measured") and "outside" in line for line in said)
    assert "Off by more" in paragraph(found)


def test_a_log_of_the_server_alone_has_its_levels_compared() -> None:
    series = {"time_s": np.arange(3.0), "running": np.array([1, 4, 0]), "waiting": np.array([0, 2, 0])}
    found = Validation(
        predicted=measured_side(imported(series=series)),
        measured=measured_side(Imported(file="log", form="a log", series=series)),
    )
    assert found.lines["running.peak"].measured == 4 and found.lines["running.mean"].error == 0
    assert [chart.title for chart in charts(found, 30)] == [
        "running, requests over time",
        "waiting, requests over time",
    ]


# --- columns, and who failed -------------------------------------------------------------


@given(st.integers(0, 10_000))
@settings(max_examples=30, deadline=None)
def test_columns_that_follow_from_others_are_the_same_whichever_are_given(seed: int) -> None:
    whole = completed(imported(seed=seed).requests or {})
    keep = {"arrival_s", "output_tokens", "first_token_s", "finished_s"}
    again = completed({name: values for name, values in whole.items() if name in keep})
    for name in ("ttft_s", "e2e_s", "tpot_s"):
        assert again[name] == pytest.approx(whole[name], nan_ok=True)


def test_requests_that_failed_have_no_part_and_are_told() -> None:
    failed = np.ones(60)
    failed[[3, 9]] = 0
    measured = imported(is_completed=failed)
    found = validation(imported(), measured)
    assert found.lines["e2e_s.mean"].error == 0
    assert any("without an end as measured: 2," in line for line in remarks(found))


def test_rows_are_compared_in_order_of_arrival_whatever_their_order_in_the_file() -> None:
    measured = imported()
    assert measured.requests is not None
    order = np.random.default_rng(1).permutation(60)
    mixed = {name: values[order] for name, values in measured.requests.items()}
    found = validation(measured, Imported(file="x", form="y", requests=mixed))
    assert found.matching.is_paired and found.lines["e2e_s.p99"].error == 0


# --- matching ----------------------------------------------------------------------------


def test_other_counts_are_told_and_distributions_compared() -> None:
    found = validation(imported(60), imported(50))
    assert not found.matching.is_paired
    assert found.matching.lines[0] == "requests: 50 were measured, but 60 predicted"
    assert found.lines["e2e_s.mean"].is_defined and found.residuals == []
    assert sum(part.num_requests for part in found.parts) == 50


def test_other_lengths_are_told_with_the_first_request_that_differs() -> None:
    measured = imported()
    assert measured.requests is not None
    longer = measured.requests["prompt_tokens"].copy()
    longer[[7, 20]] += 3
    found = validation(measured, imported(prompt_tokens=longer))
    was = measured.requests["prompt_tokens"][7]
    assert found.matching.lines[0] == (
        f"prompt tokens differ in 2 of 60 requests, by +0.1 on average; request 7 has {was + 3} measured, "
        f"{was} predicted"
    )


def test_without_lengths_nothing_is_paired() -> None:
    measured = imported()
    assert measured.requests is not None
    times = {name: measured.requests[name] for name in ("arrival_s", "ttft_s", "e2e_s")}
    found = validation(measured, Imported(file="x", form="y", requests=times))
    assert not found.matching.is_paired and "has no lengths" in found.matching.lines[0]


def test_arrivals_that_differ_are_told() -> None:
    shifted = np.arange(60) / 2 + 0.25
    assert len(validation(imported(), imported(arrival_s=shifted)).matching.lines) == 1
    shifted[30:] += 0.3
    late = validation(imported(), imported(arrival_s=shifted.copy()))
    assert late.matching.is_paired
    assert late.matching.lines[1] == "arrivals differ by up to 150 ms, by 150 ms on average"
    shifted[30:] -= 0.3
    shifted[59] += 0.6
    one = validation(imported(), imported(arrival_s=shifted)).matching.lines[1]
    assert one == "arrivals differ by up to 600 ms, by 10.0 ms on average"


# --- who queued --------------------------------------------------------------------------


def side(scheduled: list[float] | None, steps: list[tuple[float, float]]) -> Side:
    """Three requests that come together, have their first token at 1, 2 and 3 s, and end at 4 s."""
    requests = {
        "arrival_s": np.zeros(3),
        "prompt_tokens": np.full(3, 10),
        "output_tokens": np.full(3, 5),
        "ttft_s": np.array([1.0, 2.0, 3.0]),
        "e2e_s": np.full(3, 4.0),
    }
    if scheduled is not None:
        requests["scheduled_s"] = np.array(scheduled)
    start, end = np.array(steps).T
    return Side(name="x", requests=completed(requests), steps={"start_s": start, "end_s": end})


def test_who_waited_longer_than_the_longest_step_has_queued() -> None:
    steps = [(0.0, 0.5), (0.5, 0.7)]
    found = Validation(predicted=side(None, steps), measured=side([0.1, 0.5, 0.6], steps))
    assert found.longest_step == 0.5 and found.who_tells_waits == "measured"
    assert found.unqueued.measured.tolist() == [0, 1]
    assert found.lines["ttft_unqueued_s.mean"].measured == pytest.approx(1.5)
    assert found.lines["ttft_s.mean"].measured == pytest.approx(2.0)


def test_the_predicted_waits_decide_where_none_were_measured() -> None:
    steps = [(0.0, 0.5)]
    found = Validation(predicted=side([0.0, 2.0, 2.0], steps), measured=side(None, steps))
    assert found.who_tells_waits == "predicted" and found.unqueued.measured.tolist() == [0]
    neither = Validation(predicted=side(None, steps), measured=side(None, steps))
    assert neither.who_tells_waits == "" and not neither.lines["ttft_unqueued_s.mean"].is_defined


# --- over time ---------------------------------------------------------------------------


def test_a_level_changes_by_what_comes_and_goes() -> None:
    found = changes(np.array([1.0, 0.0, 3.0, 1.0]), np.array([1, 1, -1, -1]))
    assert found.times.tolist() == [0.0, 1.0, 3.0] and found.values.tolist() == [1, 1, 0]


def test_the_servers_own_samples_stand_before_what_requests_tell() -> None:
    rows = {"arrival_s": [0.0], "scheduled_s": [1.0], "finished_s": [2.0], "prompt_tokens": [1]}
    series = {"time_s": np.array([0.0, 1.0, 2.0]), "running": np.array([0, 7, 0])}
    levels = measured_side(_of(rows, series=series)).levels
    assert levels["running"].values.tolist() == [0, 7, 0]
    assert levels["waiting"].values.tolist() == [1, 0]  # from the requests


def test_samples_without_a_time_or_a_value_are_none() -> None:
    series = {"time_s": np.array([2.0, np.nan, 0.0, 1.0]), "running": np.array([0.0, 9.0, 4.0, np.nan])}
    levels = measured_side(Imported(file="log", form="y", series=series)).levels
    assert levels["running"].times.tolist() == [0.0, 2.0] and levels["running"].values.tolist() == [4.0, 0.0]
    timeless = {"time_s": np.full(2, np.nan), "running": np.ones(2)}
    assert measured_side(Imported(file="log", form="y", series=timeless)).levels == {}


def test_a_level_that_ends_above_zero_was_cut_and_is_compared_up_to_there() -> None:
    cut = Count(times=np.array([0.0, 2.0]), values=np.array([1, 3]))
    whole = Count(times=np.array([0.0, 5.0]), values=np.array([1, 0]))
    sides = [
        Side(name="x", requests={"arrival_s": np.zeros(1)}, levels={"waiting": level})
        for level in (cut, whole)
    ]
    found = Validation(predicted=sides[0], measured=sides[1])
    assert window(found.predicted, found.measured, found.kept, "waiting") == (0.0, 2.0)
    assert found.lines["waiting.mean"].predicted == 1.0


def test_a_difference_that_grows_is_a_drift_and_one_that_stays_is_none() -> None:
    measured = imported(200)
    assert measured.requests is not None
    grows = measured.requests["e2e_s"] + 0.1 * measured.requests["arrival_s"]
    found = validation(imported(200, e2e_s=grows), measured)
    span = (found.parts[-1].begin + found.parts[-1].end - found.parts[0].begin - found.parts[0].end) / 2
    assert found.drift.value == pytest.approx(0.1 * span) and found.drift.is_clear
    assert "The difference grows with time" in paragraph(found)
    stays = validation(imported(200, e2e_s=measured.requests["e2e_s"] + 5.0), measured)
    assert stays.drift.value == pytest.approx(0.0, abs=1e-9)
    assert "grows" not in paragraph(stays)


def test_the_largest_residuals_come_first_and_add_up() -> None:
    measured = imported()
    assert measured.requests is not None
    ttft, e2e = measured.requests["ttft_s"].copy(), measured.requests["e2e_s"].copy()
    ttft[5] += 1.0
    e2e[5] += 3.0
    e2e[8] -= 2.0
    found = validation(imported(ttft_s=ttft, e2e_s=e2e), measured)
    assert [one.request for one in found.residuals] == [5, 8]
    first = found.residuals[0]
    assert first.of_ttft == pytest.approx(1.0) and first.of_decoding == pytest.approx(2.0)
    assert first.size == pytest.approx(first.of_ttft + first.of_decoding)
    assert first.arrival == 2.5 and first.prompt == measured.requests["prompt_tokens"][5]


# --- extrapolation -----------------------------------------------------------------------


def test_steps_outside_the_fitted_range_are_counted_with_their_time() -> None:
    steps = {
        "start_s": np.array([0.0, 1.0, 2.0]),
        "end_s": np.array([1.0, 2.0, 5.0]),
        "num_decodes": np.array([4, 8, 20]),
        "prefill_tokens": np.array([0, 100, 0]),
    }
    one, other = extrapolation(steps, {"num_decodes": (1, 16), "context_tokens": (0, 9)})
    assert [each.reached for each in extrapolation(steps, {"tokens": (1, 107)})] == [108]
    assert one.steps == pytest.approx(1 / 3) and one.seconds == pytest.approx(3 / 5) and one.reached == 20
    assert isnan(other.steps) and isnan(other.reached)
    (inside,) = extrapolation(steps, {"num_decodes": (4, 20)})
    assert inside.steps == 0 and isnan(inside.reached)


def test_a_model_without_a_fitted_range_says_so() -> None:
    assert any("no fitted range" in line for line in remarks(validation(imported(), imported())))
    steps = {"start_s": np.zeros(1), "end_s": np.ones(1)}
    steps |= {"num_decodes": np.array([30]), "prefill_tokens": np.array([0])}
    predicted = Side(name="x", requests=measured_side(imported()).requests, steps=steps)
    found = Validation(
        predicted=predicted, measured=measured_side(imported()), fitted={"num_decodes": (1.0, 16.0)}
    )
    assert any(
        line.startswith("extrapolates: num_decodes was fitted on 1.00 to 16.0") for line in remarks(found)
    )


# --- words -------------------------------------------------------------------------------


def test_the_paragraph_says_where_to_look() -> None:
    measured = imported()
    assert measured.requests is not None
    rows, gaps = measured.requests, measured.requests["output_tokens"] - 1
    slow = imported(e2e_s=rows["e2e_s"] + 0.01 * gaps)
    assert "Look at the step time first: a decode takes too long a time" in paragraph(
        validation(slow, measured)
    )
    late = imported(ttft_s=rows["ttft_s"] + 2, e2e_s=rows["e2e_s"] + 2)
    assert "Look at the queue" in paragraph(validation(late, measured))
    steps = [(0.0, 9.0)]
    early = side([0.0, 0.0, 0.0], steps)
    later = Side(
        name="y",
        requests=dict(early.requests)
        | {"ttft_s": early.requests["ttft_s"] + 1, "e2e_s": early.requests["e2e_s"] + 1},
        steps=early.steps,
    )
    assert "Look at the time before the first token" in paragraph(Validation(predicted=later, measured=early))


def test_without_latencies_or_throughput_nothing_is_said() -> None:
    nothing = Imported(file="x", form="y")
    assert "nothing can be said" in paragraph(validation(imported(), nothing))


def test_findings_stand_above_the_table_with_those_that_are_wrong_marked() -> None:
    found = Imported(
        file="x",
        form="tool 1.0",
        conventions=("TTFT: as ours",),
        findings=(Finding(text="TPOT is half", is_wrong=True), Finding(text="odd", is_wrong=False)),
    )
    assert measured_side(found).remarks == ("tool 1.0", "TTFT: as ours", "wrong: TPOT is half", "odd")


# --- pictures ----------------------------------------------------------------------------


def test_sides_that_agree_are_one_line_in_every_chart() -> None:
    found = charts(validation(imported(), imported()), 30)
    assert len(found) == 4  # three distributions and one of points
    for chart in found[:3]:
        assert len(chart.rows) == HEIGHT and {len(row) for row in chart.rows} == {30}
        assert set("".join(chart.rows)) == {" ", BOTH}
        columns = list(zip(*chart.rows, strict=True))
        assert all(BOTH in column for column in columns)


def test_a_slower_prediction_lies_to_the_right() -> None:
    measured = imported()
    chart = charts(validation(slower(measured, 2), measured), 40)[0]
    top = chart.rows[0]
    assert MEASURED in top and top.index(MEASURED) < max(top.find(PREDICTED), top.find(BOTH))


def test_two_charts_stand_in_a_row_where_they_fit() -> None:
    found = validation(imported(), imported())
    wide = drawn(charts(found, area_width(100)), 100)
    assert max(map(len, wide)) <= 100 and len(wide) == 2 * (HEIGHT + 3)
    narrow = drawn(charts(found, area_width(40)), 40)
    assert max(map(len, narrow)) <= 40 and len(narrow) == 4 * (HEIGHT + 3)


def test_the_picture_is_the_same_every_time_whatever_there_is() -> None:
    pytest.importorskip("matplotlib")
    found = validation(imported(), imported())
    drawing = picture(found, ".svg")
    assert drawing == picture(found, ".svg") and b"<svg" in drawing
    assert picture(validation(imported(), imported(50)), ".PNG").startswith(b"\x89PNG")
    assert b"<svg" in picture(validation(imported(), Imported(file="x", form="y")), ".svg")


def test_a_picture_needs_a_known_ending_and_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"x\.pdf: --plot writes \.svg or \.png"):
        check_plot(Path("x.pdf"))
    monkeypatch.setattr("batchwright.validation.picture.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'batchwright\[plot\]'"):
        check_plot(Path("x.svg"))


# --- bounds ------------------------------------------------------------------------------


def test_a_bound_holds_up_to_its_share_and_no_further() -> None:
    measured = imported()
    lines = validation(slower(measured, 1.1), measured).lines
    assert not read_bounds(["e2e.mean=10.001%"], lines)[0].is_broken(lines)
    assert read_bounds(["e2e_s.mean = 9.9%"], lines)[0].is_broken(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("e2e.mean", "give a number and its greatest error"),
        ("e2e.mean=5", "in per cent"),
        ("e2e.mean=-5%", "in per cent"),
        ("e2e.mean=nan%", "in per cent"),
        ("e2e.maen=5%", "did you mean 'e2e.mean'"),
        ("itl.mean=5%", "is not known on both sides"),
    ],
)
def test_a_bad_bound_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_bounds([text], validation(imported(), imported()).lines)


def test_more_requests_than_there_are_cannot_be_skipped() -> None:
    with pytest.raises(InputError, match="--skip is 60, but there are 60 requests; give 0 to 59"):
        validation(imported(), imported(), skip=60)
    with pytest.raises(InputError, match="--skip is -1"):
        validation(imported(), imported(), skip=-1)


# --- the command -------------------------------------------------------------------------

SERVER = ("--max-num-seqs", "8", "--policies", "vllm")


def run_into(command: Command, name: str, cost: str, *more: str) -> None:
    Path("burst.csv").write_text(BURST, encoding="utf-8")
    good(command("compare", "burst.csv", "--cost", cost, "-o", name, *(more or SERVER)))


def test_a_run_against_itself_has_no_error(command: Command) -> None:
    run_into(command, "a", "linear(0.01, 1e-5, 1e-4, 1e-8)")
    found = json.loads(good(command("validate", "a", "--against", "a", "--json")))
    defined = {key: line for key, line in found["numbers"].items() if line["error"] is not None}
    assert {line["error"] for line in defined.values()} == {0.0}
    for key in ("ttft_s.p99", "ttft_unqueued_s.mean", "itl_s.p90", "num_preemptions", "waiting.mean"):
        assert key in defined
    assert found["is_paired"] and found["largest"] == []


def test_a_prediction_that_is_slower_by_a_tenth_shows_it(command: Command) -> None:
    run_into(command, "measured", "constant(0.02)")
    run_into(command, "slow", "constant(0.022)")
    found = json.loads(good(command("validate", "slow", "--against", "measured", "--json")))
    for key in ("ttft_s.mean", "ttft_s.p99", "tpot_s.mean", "e2e_s.p50", "itl_s.mean", "duration_s"):
        assert found["numbers"][key]["error"] == pytest.approx(0.1), key
    assert found["numbers"]["request_throughput_per_s"]["error"] == pytest.approx(1 / 1.1 - 1)
    assert found["numbers"]["waiting.peak"]["error"] == 0 and found["numbers"]["waiting.mean"]["error"] > 0


def test_a_file_of_a_client_is_compared_with_what_it_was_made_from(command: Command) -> None:
    run_into(command, "a", "linear(0.01, 1e-5, 1e-4, 1e-8)")
    good(command(
        "export", "burst.csv", "--cost", "linear(0.01, 1e-5, 1e-4, 1e-8)", *SERVER, "--format", "vllm-bench",
        "-o", "bench.json",
    ))  # fmt: skip
    found = json.loads(good(command("validate", "a", "--against", "bench.json", "--json")))
    assert found["is_paired"] and "vllm bench serve" in found["measured_remarks"][0]
    for key in ("ttft_s.p99", "tpot_s.mean", "e2e_s.mean", "itl_s.p99", "output_throughput_tokens_per_s"):
        assert found["numbers"][key]["error"] == pytest.approx(0.0, abs=1e-6), key
    good(command("import", "bench.json", "-o", "folder"))
    again = json.loads(good(command("validate", "a", "--against", "folder", "--json")))
    assert again["numbers"] == found["numbers"]


def test_a_bound_that_is_broken_gives_exit_status_3(command: Command) -> None:
    run_into(command, "measured", "constant(0.02)")
    run_into(command, "slow", "constant(0.022)")
    holds = command("validate", "slow", "--against", "measured", "--bound", "e2e.mean=11%")
    assert holds.status == 0 and "bound e2e_s.mean within 0.11: holds" in holds.out
    broken = command("validate", "slow", "--against", "measured", "--bound", "e2e.mean=9%")
    assert broken.status == 3 and "is broken, E2E mean +10.0" in broken.out


def test_bad_files_are_one_line(command: Command) -> None:
    run_into(command, "a", "constant(0.02)")
    text = "{" + '"completed": 3, "ttfts": [0.1, 0.2'
    Path("cut.json").write_text(text, encoding="utf-8")
    assert "cut.json" in refusal(command("validate", "a", "--against", "cut.json"))
    assert "four.csv" in refusal(command("validate", "a", "--against", "four.csv"))
    assert "nowhere" in refusal(command("validate", "a", "--against", "nowhere"))
    assert "is no run folder" in refusal(command("validate", "four.csv", "--against", "a"))
    (Path("b")).mkdir()
    assert "is no run folder" in refusal(command("validate", "b", "--against", "a"))


def test_a_run_of_several_policies_needs_one_to_be_named(command: Command) -> None:
    run_into(command, "a", "constant(0.02)", "--policies", "static(4),vllm")
    said = refusal(command("validate", "a", "--against", "a"))
    assert "has the policies static(4), vllm; give one with --policy" in said
    found = json.loads(good(command("validate", "a", "--against", "a", "--policy", "static(4)", "--json")))
    assert found["policy"] == "static(4)" and found["numbers"]["tpot_s.mean"]["predicted"] is None
    assert "did you mean 'vllm'" in refusal(command("validate", "a", "--against", "a", "--policy", "vlm"))


def test_a_picture_that_is_there_is_kept_unless_forced(command: Command) -> None:
    pytest.importorskip("matplotlib")
    run_into(command, "a", "constant(0.02)")
    good(command("validate", "a", "--against", "a", "--plot", "p.svg"))
    first = Path("p.svg").read_bytes()
    assert "is there already" in refusal(command("validate", "a", "--against", "a", "--plot", "p.svg"))
    good(command("validate", "a", "--against", "a", "--plot", "p.svg", "--force"))
    assert Path("p.svg").read_bytes() == first


def test_of_several_loads_the_first_is_compared_and_that_is_said(command: Command) -> None:
    load = "poisson(n=400, rate=6, prompt=uniform(10, 100), output=uniform(5, 20))"
    more = ("--cost", "constant(0.02)", "--policies", "vllm", "--repeat", "3", "-o", "a")
    good(command("compare", load, *more))
    printed = good(command("validate", "a", "--against", "a"))
    assert "the run folder is of 3 loads; the first one is compared" in printed
    assert "requests: 400 in pairs" in printed and "ITL" not in printed.partition("TTFT, share")[0]


def test_several_replicas_are_added_up(command: Command) -> None:
    run_into(command, "two", "constant(0.02)", "--max-num-seqs", "8", "--policies", "replicas(n=2)")
    found = predicted_side(RunFolder.open(Path("two")))
    assert found.levels["running"].greatest(0.0, 1e9) == 16
    assert found.levels["running"].values[-1] == 0


def test_the_table_names_what_is_not_compared(command: Command) -> None:
    run_into(command, "a", "constant(0.02)")
    rows = {"arrival_s": np.zeros(40), "prompt_tokens": 100 + np.arange(40)}
    measured = measured_side(Imported(file="x", form="y", requests=rows))
    found = Validation(predicted=predicted_side(RunFolder.open(Path("a"))), measured=measured)
    said = next(line for line in remarks(found) if line.startswith("not compared"))
    for name in ("TTFT: not measured", "ITL: not measured", "preemptions: not measured"):
        assert name in said


def test_help_needs_no_numpy() -> None:
    import subprocess

    code = "import sys; from batchwright.cli.app import app; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- profiles, and the page --------------------------------------------------------------


def test_a_run_with_a_profile_says_where_it_extrapolates(command: Command) -> None:
    profile = Profile(
        name="mine", cost="constant(0.02)", range={"num_decodes": (1.0, 4.0), "tokens": (1.0, 9e9)}
    )
    Path("mine.yaml").write_text(as_text(profile), encoding="utf-8")
    Path("burst.csv").write_text(BURST, encoding="utf-8")
    good(command("compare", "burst.csv", "--profile", "mine.yaml", "-o", "deep/er/a", *SERVER))
    found = json.loads(good(command("validate", "deep/er/a", "--against", "deep/er/a", "--json")))
    decodes, tokens = found["extrapolation"]
    assert (
        decodes["feature"] == "num_decodes" and decodes["reached"] == 8 and 0 < decodes["share_of_steps"] < 1
    )
    assert tokens["share_of_steps"] == 0 and tokens["reached"] is None
    Path("mine.yaml").unlink()
    assert "mine.yaml" in refusal(command("validate", "deep/er/a", "--against", "deep/er/a"))


def test_the_page_has_every_flag_and_every_key(command: Command) -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "validate.md").read_text(encoding="utf-8")
    flags = set(re.findall(r"--[a-z][a-z-]+", good(command("validate", "--help"))))
    assert "--against" in flags
    assert flags == set(re.findall(r"^\| `(--[a-z-]+)`", page, flags=re.MULTILINE))
    run_into(command, "a", "constant(0.02)")
    found = json.loads(good(command("validate", "a", "--against", "a", "--bound", "e2e.mean=5%", "--json")))
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", page.partition("## JSON")[2], flags=re.MULTILINE)
    assert set(found) == {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    for key in ("bounds", "parts"):
        assert all(f"`{name}`" in page for name in found[key][0])
