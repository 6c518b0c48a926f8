"""What a load looks like is counted exactly, and said in eighty columns."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise, product
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.cli import main
from batchwright.scenario.loads import load_of
from batchwright.scenario.text import read
from batchwright.workload import Workload, chat, poisson
from batchwright.workload.description import BATCH_SIZES, describe
from batchwright.workload.description_text import WIDTH, bar, sparkline, text
from batchwright.workload.longest import expected_longest, stretch

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

DATA = Path(__file__).parent / "data"
TRACES = Path(__file__).parents[2] / "shared" / "data" / "traces"
small = st.lists(st.integers(1, 60), min_size=1, max_size=5)


@settings(derandomize=True, deadline=None)
@given(small, st.integers(1, 4))
def test_the_expected_longest_is_that_of_all_draws(lengths: list[int], batch_size: int) -> None:
    draws = [max(draw) for draw in product(lengths, repeat=batch_size)]
    assert expected_longest(np.array(lengths), batch_size) == pytest.approx(sum(draws) / len(draws))


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=40))
def test_stretch_grows_from_1_to_the_greatest_over_the_mean(lengths: list[int]) -> None:
    tokens = np.array(lengths)
    ratios = [stretch(tokens, batch_size) for batch_size in (1, 2, 8, 32, 128, 10**6)]
    assert ratios[0] == pytest.approx(1) and ratios[-1] == pytest.approx(tokens.max() / tokens.mean())
    assert all(one <= other * (1 + 1e-12) for one, other in pairwise(ratios))


def test_a_uniform_law_has_the_published_waste() -> None:
    padding = 1 - 1 / stretch(np.arange(512, 4097), 32)
    assert round(100 * padding, 1) == 42.2  # prompts of 512 to 4096 tokens, padded in batches of 32


def test_poisson_arrivals_look_like_poisson_arrivals() -> None:
    found = describe(poisson(40_000, 5.0, 100, 10, seed=4)).arrivals
    assert found is not None
    assert found.rate == pytest.approx(5.0, rel=0.03) and found.gap_cv == pytest.approx(1.0, abs=0.03)
    assert [window for window, _ in found.dispersion] == [1, 10, 60]
    for window, value in found.dispersion:  # the variance of a variance of n counts is about 2 / n
        assert value == pytest.approx(1.0, abs=4 * (2 * window / found.span_s) ** 0.5)


def test_a_clock_has_no_burstiness_and_bursts_have() -> None:
    clock = describe(Workload.from_columns(np.arange(400) / 10, [5] * 400, [1] * 400)).arrivals
    assert clock is not None and clock.gap_cv == pytest.approx(0, abs=1e-9)
    assert [value for _, value in clock.dispersion] == [0.0]
    pairs = np.repeat(np.arange(400), 2) + 0.0
    bursty = describe(Workload.from_columns(pairs, [5] * 800, [1] * 800)).arrivals
    assert bursty is not None and bursty.together == pytest.approx(0.5, abs=0.001)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(1, 1 << 24), min_size=1, max_size=30))
def test_a_histogram_holds_every_length_once(lengths: list[int]) -> None:
    load = Workload.from_columns([0.0] * len(lengths), lengths, [1] * len(lengths))
    bins = describe(load).prompt.histogram
    assert [count for _, _, count in bins] == [
        sum(low <= length <= high for length in lengths) for low, high, _ in bins
    ]
    assert sum(count for _, _, count in bins) == len(lengths) and len(bins) <= 9
    assert all(one[1] + 1 == other[0] for one, other in pairwise(bins))


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(0, 1e5), min_size=2, max_size=30).map(sorted), st.data())
def test_the_rate_over_time_holds_every_request(times: list[float], data: st.DataObject) -> None:
    found = describe(Workload.from_columns(times, [1] * len(times), [1] * len(times))).arrivals
    if times[-1] - times[0] < 1e-9:
        assert found is None
        return
    assert found is not None
    assert sum(found.rate_over_time) * found.bar_s == pytest.approx(len(times))
    assert found.bar_s * len(found.rate_over_time) == pytest.approx(found.span_s)


def test_lengths_are_those_that_are_served() -> None:
    load = Workload.from_columns([0, 1], [10, 20], [100, 300], max_tokens=150)
    found = describe(load)
    assert (found.output.max, found.output.mean, found.total.max) == (150, 125.0, 170)


def test_clients_are_counted() -> None:
    found = describe(Workload.from_columns([0, 1, 2, 3], [1] * 4, [1] * 4, client=[7, 2, 7, 7])).clients
    assert found is not None and (found.count, found.busiest_share) == (2, 0.75)
    assert describe(chat(10)).clients is None


def test_lines_fit_eighty_columns() -> None:
    long = Workload.from_columns(
        np.linspace(0, 1e5, 64), [1 << 24] * 64, [1 << 24] * 32 + [1] * 32, client=range(64),
        hash_ids=[list(range(1 << 15))] * 64,
    )  # fmt: skip
    loads = [
        chat(),
        long,
        Workload.open(DATA / "mooncake_small.jsonl"),
        Workload.open(DATA / "plain_small.csv"),
    ]
    for load in loads:
        printed = text(describe(load))
        assert max(map(len, printed.splitlines())) <= WIDTH, printed


def test_pictures_show_all_that_is_not_0() -> None:
    assert sparkline([0, 1e-9, 4, 8]) == " ▁▄█"
    assert (bar(0), bar(1e-9), bar(0.5), bar(1)) == ("", "▏", "█" * 8, "█" * 16)


def test_words_follow_the_numbers() -> None:
    burst = Workload.from_columns([0.0] * 64, [100] * 64, [10] * 32 + [30] * 32)
    assert "All requests come at once" in text(describe(burst))
    assert "A static batch of 32 decodes until its longest output ends, 1.50 times the mean" in " ".join(
        text(describe(burst)).split()
    )
    assert "33% of its decode slots are padding" in " ".join(text(describe(burst)).split())
    assert "come in bursts" in text(describe(chat()))


def test_one_request_is_singular_and_alone() -> None:
    said = text(describe(chat(n=1)))
    assert said.startswith("chat: 1 request\n") and "One request alone: nothing is batched." in said
    pair = Workload.from_columns([0.0, float("nan")], [9, 9], [9, 9], after=[-1, 0], think=[0.0, 1.0])
    assert "1 request waits for the end of another" in " ".join(text(describe(pair)).split())


def called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr(sys, "argv", ["batchwright", "workload", "describe", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    printed = capsys.readouterr()
    assert isinstance(end.value.code, int)
    return end.value.code, printed.out + printed.err


LOAD_FLAGS = {
    "--between": "0m:30s", "--sample": "0.5", "--tile": "2", "--time-scale": "2", "--prompt-scale": "2",
    "--output-scale": "0.5", "--rate": "9", "--requests": "50", "--max-tokens": "99", "--seed": "3",
    "--set": "requests=40",
}  # fmt: skip


@pytest.mark.parametrize("flag", LOAD_FLAGS)
def test_a_load_is_described_as_the_other_commands_serve_it(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.yaml").write_text("workload: chat(n=200)\ngpu: L4\npolicies: vllm\n", encoding="utf-8")
    key, value = LOAD_FLAGS[flag].split("=") if flag == "--set" else (flag[2:], LOAD_FLAGS[flag])
    load = load_of(read("chat(n=200)", sets=[f"{key}={json.dumps(value) if key == 'between' else value}"]))
    assert load != Workload.open("chat(n=200)")
    for source in ("chat(n=200)", str(tmp_path / "mine.yaml")):
        status, out = called(monkeypatch, capsys, source, flag, LOAD_FLAGS[flag], "--json")
        assert status == 0 and json.loads(out) == describe(load).to_json()


@pytest.mark.parametrize(
    "flag", ["--gpu", "--policies", "--policy-file", "--batch-size", "--repeat", "--slo"]
)
def test_flags_that_do_not_make_the_load_are_unknown_to_describe(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out = called(monkeypatch, capsys, "chat", flag, "1")
    assert status == 2 and flag in out


def test_the_command_prints_text_or_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "log.csv"
    trace.write_text("ts,in,out,who\n0,10,5,a\n2000,20,9,b\n", encoding="utf-8")
    columns = ("--columns", "arrival=ts,prompt=in,output=out,client=who", "--time-unit", "ms")
    status, out = called(monkeypatch, capsys, str(trace), *columns)
    assert status == 0 and out.startswith("log.csv: 2 requests\n  CSV: ts read as milliseconds, as given\n")
    status, out = called(monkeypatch, capsys, str(trace), *columns, "--max-tokens", "6", "--json")
    found = json.loads(out)
    assert found["arrivals"]["span_s"] == 2.0 and found["output_tokens"]["max"] == 6
    status, out = called(monkeypatch, capsys, str(trace), "--columns", "prompt")
    assert status == 2 and out.startswith("batchwright: columns has 'prompt'; give role=column pairs")
    status, out = called(monkeypatch, capsys, str(trace), *columns, "--max-tokens", "few")
    assert status == 2 and "--max-tokens is 'few'" in out


def every_number(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for inner in value.values() for number in every_number(inner)]
    if isinstance(value, list):
        return [number for inner in value for number in every_number(inner)]
    return [value] if isinstance(value, int | float) else []


@pytest.mark.parametrize(
    "load", [chat(), Workload.open(DATA / "mooncake_small.jsonl")], ids=["chat", "hashes"]
)
def test_json_is_plain_and_finite(load: Workload) -> None:
    found = describe(load).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert all(map(isfinite, every_number(found)))
    assert list(found["output_tokens"]["stretch"]) == list(map(str, BATCH_SIZES))


def paths(value: Any, before: str = "") -> Iterator[str]:
    """Every key as `a.b.c`, as the documentation writes it."""
    for key, inner in value.items():
        name = PLACEHOLDERS.get(before, key)
        name = "LENGTHS" if key in ("prompt_tokens", "output_tokens", "total_tokens") else name
        if name != "LENGTHS" and not (before and isinstance(inner, dict)):
            yield before + name
        if isinstance(inner, dict):
            yield from paths(inner, f"{before}{name}.")


PLACEHOLDERS = {"arrivals.dispersion.": "WINDOW", "LENGTHS.stretch.": "B", "reuse.blocks.": "SIZE"}


def test_every_key_and_every_flag_is_documented(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[1] / "docs" / "traces.md").read_text(encoding="utf-8")
    section = page.partition("## Describe")[2].partition("## ")[0]
    cells = set(re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE))
    found = describe(Workload.open("mix(chat(n=40), poisson(rate=1, n=40, shared_prefix=512, prefixes=2))"))
    _, printed = called(monkeypatch, capsys, "--help")
    flags = set(re.findall(r"--[a-z][a-z-]+", printed))
    assert "--time-unit" in flags
    assert cells == flags | set(paths({**found.to_json(), "clients": {"count": 1, "busiest_share": 1.0}}))


@pytest.mark.skipif(not TRACES.exists(), reason="the public traces are not beside this checkout")
def test_the_mooncake_trace_reuses_what_was_published() -> None:
    found = describe(Workload.open(TRACES / "mooncake" / "conversation_trace.jsonl.gz")).reuse
    assert found is not None
    assert round(found.entries, 3) == 0.366
    assert [(size, round(share or 0, 3)) for size, share in found.blocks] == [(512, 0.382), (16, 0.374)]
