"""The table shows every policy and every metric, and JSON says null for what is not applicable."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import batchwright as bw
from batchwright.figures import (
    Unit,
    amount,
    plain_unit,
    seconds,
    seconds_unit,
    share,
    share_unit,
    with_interval,
)
from batchwright.interval import Interval, around
from batchwright.metrics import STATISTICS
from batchwright.plain_table import table_text
from batchwright.report import CAPTION, table
from batchwright.report_json import NAMES, SPREADS
from batchwright.workload import Workload
from strategies import for_every_seed

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

LABELS = {"mean": "mean", "p50": "P50", "p90": "P90", "p95": "P95", "p99": "P99"}
TIMES = {"TTFT": "ttft_s", "TPOT": "tpot_s", "ITL": "itl_s", "E2E": "e2e_s"}
ROWS = [
    "output tokens/s", "total tokens/s", "requests/s",
    *(f"{title} {label}" for title in TIMES for label in LABELS.values()),
    "E2E per token mean", "E2E per token P99", "mean batch", "peak batch", "KV occupancy mean",
    "KV occupancy peak", "prefix cache hits", "slots: prefill", "slots: decode", "slots: padding",
    "slots: held", "slots: idle, some wait", "slots: idle, none wait", "preemptions", "rejected",
    "cut at max_model_len", "finished", "duration",
]  # fmt: skip
NAN = float("nan")


def runs_of(policies: Mapping[str, str], seed: int = 0, **limits: int) -> bw.Runs:
    random = np.random.default_rng(seed)
    load = Workload.from_columns(
        np.arange(40) / 4, random.integers(1, 200, 40), random.integers(1, 40, 40), name="forty"
    )
    return bw.compare(load, bw.Constant(0.02), bw.Limits(**limits), policies)


def cells(printed: str, runs: bw.Runs) -> dict[str, list[str]]:
    """The cells of each row by its title."""
    found = {}
    for line in printed.splitlines():
        title, *values = re.split(r"\s{2,}", line.strip())
        if len(values) == len(runs):
            found[title] = values
    return found


TWO = {"static": "static(4)", "vllm": "vllm"}
plain_runs = runs_of(TWO)


# --- table -------------------------------------------------------------------------------


def test_the_table_has_a_column_per_policy_and_a_row_per_metric() -> None:
    runs = runs_of({"static": "static(4)", "dynamic(8)": "dynamic(8)", "vllm@0.19": "vllm@0.19"})
    printed = runs.table()
    assert printed.strip().splitlines()[0].split() == list(runs)
    assert list(cells(printed, runs)) == ROWS


def test_the_cells_are_the_numbers_of_the_estimates() -> None:
    runs = runs_of(TWO, num_kv_blocks=40)
    found = cells(runs.table(), runs)
    for place, (name, run) in enumerate(runs.items()):
        summary, values = run.summary, runs.estimates.values[name][0]
        row = {title: cells[place].removesuffix(" *").partition(" ±")[0] for title, cells in found.items()}
        assert row["finished"] == str(summary.num_finished) and row["rejected"] == str(summary.num_rejected)
        assert row["preemptions"] == str(summary.num_preemptions)
        assert row["output tokens/s"] == amount(values["output_throughput"])
        assert row["mean batch"] == amount(values["mean_batch"])
        assert row["duration"] == seconds(summary.duration)
        assert row["KV occupancy mean"].rstrip("%") == f"{100 * summary.kv_occupancy:.1f}"
        assert row["prefix cache hits"] == "n/a"
        for title, metric in TIMES.items():
            for statistic, label in LABELS.items():
                shown = seconds(values[f"{metric}.{statistic}"])
                assert row[f"{title} {label}"].split()[0] == shown.split()[0]


def test_what_serves_better_beyond_doubt_is_marked_and_nothing_else() -> None:
    random = np.random.default_rng(5)
    load = Workload.from_columns(
        np.arange(400) / 4, random.integers(1, 200, 400), random.integers(1, 40, 400), name="long"
    )
    runs = bw.compare(load, bw.Constant(0.02), bw.Limits(), {"static": "static(4)", "vllm": "vllm"})
    found = cells(runs.table(), runs)
    assert runs.winner("ttft_s.mean") == "vllm"
    assert found["TTFT mean"][1].endswith(" *") and not found["TTFT mean"][0].endswith("*")
    assert "* better than every other policy" in runs.table()
    marked = {title for title, values in found.items() if any(value.endswith("*") for value in values)}
    assert marked and not marked & {"mean batch", "finished", "duration", "KV occupancy mean"}
    same = bw.compare(load, bw.Constant(0.02), bw.Limits(), {"a": "vllm", "b": "vllm"})
    assert "*" not in same.table()


def test_what_is_not_applicable_is_said_so_and_explained() -> None:
    found = cells(plain_runs.table(), plain_runs)
    for title in ("TPOT mean", "TPOT P50", "TPOT P99", "ITL mean", "ITL P95"):
        assert found[title][0] == "n/a" and found[title][1].endswith("ms")
    assert found["KV occupancy mean"] == found["KV occupancy peak"] == ["n/a", "n/a"]
    assert CAPTION in " ".join(plain_runs.table().split())
    assert CAPTION not in " ".join(runs_of({"vllm": "vllm"}).table().split())


@pytest.mark.parametrize("width", [60, 80, 110, 200])
def test_no_line_is_wider_than_asked(width: int) -> None:
    lines = table_text(table(plain_runs.estimates, list(plain_runs)), width).splitlines()
    assert max(map(len, lines)) <= width
    assert all(line == line.rstrip() for line in lines)


def test_the_text_of_a_table_has_no_blank_line_around_it() -> None:
    lines = plain_runs.table().splitlines()
    assert lines[0] and lines[-1]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_policy_and_metric_is_in_the_table(count: int) -> None:
    runs = runs_of({f"static({size})": f"static({size})" for size in range(10, 10 + count)})
    printed = runs.table()
    assert all(name in printed for name in runs)
    assert list(cells(printed, runs)) == ROWS


@pytest.mark.parametrize("count", [8, 12])
def test_many_policies_with_long_names_are_folded_and_nothing_is_cut_off(count: int) -> None:
    runs = runs_of({f"dynamic({size}, window=0.5)": "dynamic" for size in range(10, 10 + count)})
    printed = runs.table()
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= 110
    assert printed.count("n/a") == 3 * count  # KV occupancy, and hits


def test_names_are_printed_as_they_are_given() -> None:
    runs = runs_of({"[bold]x[/bold]": "vllm", "[1]": "vllm"})
    assert runs.table().strip().splitlines()[0].split() == ["[bold]x[/bold]", "[1]"]


def test_the_table_of_a_run_in_which_nobody_is_served_is_not_applicable() -> None:
    runs = runs_of(TWO, num_kv_blocks=40, max_model_len=1)
    found = cells(runs.table(), runs)
    assert list(found) == ROWS
    assert found["rejected"] == ["40", "40"] and found["finished"] == ["0", "0"]
    counts = {"preemptions", "rejected", "cut at max_model_len", "finished"}
    assert all(found[title] == ["n/a", "n/a"] for title in ROWS if title not in counts), found


# --- one value ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0 ms"), (0.0004567, "0.457 ms"), (0.0123, "12.3 ms"), (0.25, "250 ms"), (1.0, "1.00 s"),
     (59.94, "59.9 s"), (0.9996, "1.00 s"), (999.6, "1,000 s"), (1000.0, "1,000 s"),
     (123456.7, "123,457 s"), (NAN, "n/a")],
)  # fmt: skip
def test_seconds_are_shown_with_three_digits(value: float, shown: str) -> None:
    assert seconds(value) == shown


@settings(derandomize=True, deadline=None, database=None)
@given(st.floats(1e-6, 1e6))
def test_a_time_that_is_shown_is_within_half_a_percent_and_never_in_exponents(value: float) -> None:
    number, unit = seconds(value).split()
    assert "e" not in number
    read = float(number.replace(",", "")) * {"s": 1.0, "ms": 1e-3}[unit]
    assert read == pytest.approx(value, rel=5.1e-3)


@settings(derandomize=True, deadline=None, database=None)
@given(st.floats(1e-3, 1e7))
def test_an_amount_that_is_shown_is_within_half_a_percent_and_never_in_exponents(value: float) -> None:
    shown = amount(value)
    assert "e" not in shown
    assert float(shown.replace(",", "")) == pytest.approx(value, rel=5.1e-3)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0, "0.0%"), (0.1234, "12.3%"), (1.0, "100.0%"), (NAN, "n/a")]
)
def test_shares_are_shown_as_per_cent(value: float, shown: str) -> None:
    assert share(value) == shown


@settings(derandomize=True, deadline=None, database=None)
@given(st.floats(1e-5, 1e6), st.floats(0, 2), st.sampled_from([seconds_unit, plain_unit, share_unit]))
def test_an_interval_is_shown_beside_its_value_in_one_unit(value: float, part: float, unit: Unit) -> None:
    shown = with_interval(around(value, value * part), unit)
    number, half = shown.replace(",", "").rstrip("ms% ").split(" ±")
    size = unit(value)[0]
    places = len(number.partition(".")[2])
    assert float(number) * size == pytest.approx(value, rel=5.1e-3 if unit is not share_unit else 1, abs=6e-4)
    assert float(half) * size == pytest.approx(value * part, abs=0.51 * size / 10**places)


def test_an_interval_that_is_not_known_is_left_out() -> None:
    assert with_interval(around(0.25, NAN), seconds_unit) == "250 ms"
    assert with_interval(around(0.25, NAN), share_unit) == "25.0%"
    assert with_interval(Interval(value=NAN, low=NAN, high=NAN), plain_unit) == "n/a"


# --- JSON --------------------------------------------------------------------------------


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for inner in value.values() for leaf in leaves(inner)]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in leaves(inner)]
    return [value]


@for_every_seed(10)
def test_json_has_no_nan_and_only_plain_values(seed: int) -> None:
    limits = [{}, {"num_kv_blocks": 30}, {"num_kv_blocks": 30, "max_model_len": 1}][seed % 3]
    found = runs_of({**TWO, "orca": "orca(2)", "dynamic": "dynamic(2)"}, seed, **limits).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert {type(leaf) for leaf in leaves(found)} <= {int, float, str, bool, type(None)}


@pytest.mark.parametrize("limits", [{}, {"num_kv_blocks": 40}], ids=["no memory", "memory"])
def test_json_says_null_exactly_where_an_estimate_is_not_applicable(limits: dict[str, int]) -> None:
    runs = runs_of(TWO, **limits)
    found = runs.to_json()["policies"]
    for name, run in runs.items():
        row, summary, values = found[name], run.summary, runs.estimates.values[name][0]
        for metric, key in NAMES.items():
            assert row[key] is None if np.isnan(values[metric]) else row[key] == values[metric], key
        for metric in SPREADS:
            for statistic in STATISTICS:
                value, shown = values[f"{metric}.{statistic}"], row[metric][statistic]
                assert shown is None if np.isnan(value) else shown == value, (metric, statistic)
        counts = ("num_requests", "num_finished", "num_rejected", "num_cut", "num_preemptions", "num_steps")
        assert {key: row[key] for key in counts} == {key: getattr(summary, key) for key in counts}
    assert found["static"]["tpot_s"] == dict.fromkeys(STATISTICS)


def test_json_has_the_intervals_and_differences_of_the_estimates() -> None:
    runs = runs_of(TWO)
    found = runs.to_json()
    mean = runs.estimates.interval("vllm", "e2e_s.mean")
    assert found["policies"]["vllm"]["intervals"]["e2e_s.mean"] == [mean.low, mean.high]
    gap = runs.difference("vllm", "static", "e2e_s.mean")
    assert found["differences"]["vllm - static"]["e2e_s.mean"] == [gap.value, gap.low, gap.high]
    assert found["winners"]["e2e_s.mean"] == runs.winner("e2e_s.mean")
    assert "tpot_s.mean" not in found["differences"]["vllm - static"]


def test_json_says_what_was_run() -> None:
    found = plain_runs.to_json()
    load = plain_runs.load
    assert found["schema_version"] == 1
    assert found["workload"] == {
        "name": "forty", "num_requests": 40, "span_s": load.span, "sha256": load.digest,
    }  # fmt: skip
    assert bw.Limits(**found["limits"]) == plain_runs.limits
