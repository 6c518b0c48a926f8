"""Any valid table, written in any format, reads back equal; each format means what it says."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload import Workload

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

DATA = Path(__file__).parent / "data"
TRACES = Path(__file__).parents[2] / "shared" / "data" / "traces"

tokens = st.integers(1, LONGEST)
seconds = st.lists(st.floats(0, 1e6), min_size=1, max_size=12).map(sorted)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list]:
    """Columns of one load, its first arrival at 0."""
    times = draw(seconds)
    count = len(times)
    lists = {
        name: st.lists(tokens, min_size=count, max_size=count) for name in ("prompt", "output", "max_tokens")
    }
    columns = {"arrival": [time - times[0] for time in times], **{k: draw(v) for k, v in lists.items()}}
    whole = st.integers(-(1 << 31) + 1, (1 << 31) - 1)
    columns["priority"] = draw(st.lists(whole, min_size=count, max_size=count))
    columns["client"] = draw(st.lists(whole.map(abs), min_size=count, max_size=count))
    return columns


def opened(data: bytes | str, **options: object) -> Workload:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return Workload.open(path, **options)


def csv_text(columns: dict[str, list], end: str = "\n") -> str:
    rows = [",".join(columns), *(",".join(map(repr, row)) for row in zip(*columns.values(), strict=True))]
    return end.join(rows) + end


@settings(derandomize=True, deadline=None)
@given(tables(), st.permutations(["arrival", "prompt", "output", "max_tokens", "priority", "client"]))
def test_any_table_written_to_csv_reads_back_equal(columns: dict[str, list], order: list[str]) -> None:
    written = Workload.from_columns(**columns)
    assert opened(csv_text({name: columns[name] for name in order})) == written


@settings(derandomize=True, deadline=None)
@given(tables(), st.sampled_from(["\n", "\r\n"]), st.booleans(), st.booleans())
def test_packing_changes_nothing(columns: dict[str, list], end: str, has_mark: bool, is_packed: bool) -> None:
    data = csv_text(columns, end).encode("utf-8-sig" if has_mark else "utf-8")
    assert opened(gzip.compress(data) if is_packed else data) == Workload.from_columns(**columns)


@settings(derandomize=True, deadline=None)
@given(st.data(), st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.booleans())
def test_any_table_written_to_mooncake_jsonl_reads_back_equal(
    data: st.DataObject, prompts: list[int], has_hashes: bool
) -> None:
    count = len(prompts)
    times = sorted(data.draw(st.lists(st.integers(0, 10**9), min_size=count, max_size=count)))
    outputs = data.draw(st.lists(tokens, min_size=count, max_size=count))
    hashes = [
        data.draw(st.lists(st.integers(0, 2**50), min_size=k, max_size=k)) for k in map(pieces, prompts)
    ]
    lines = []
    for row in zip(times, prompts, outputs, hashes, strict=True):
        item = dict(zip(("timestamp", "input_length", "output_length", "hash_ids"), row, strict=True))
        lines.append(json.dumps(item if has_hashes else {k: v for k, v in item.items() if k != "hash_ids"}))
    arrival = [(time - times[0]) / 1000 for time in times]
    written = Workload.from_columns(arrival, prompts, outputs, hash_ids=hashes if has_hashes else None)
    assert opened("\n".join(lines)) == written


def pieces(prompt: int) -> int:
    return -(-prompt // 512)


@settings(derandomize=True, deadline=None)
@given(
    st.lists(st.integers(0, 10**15), min_size=1, max_size=9).map(sorted),
    st.sampled_from([" ", "T"]),
    st.sampled_from(["", "Z", "+00:00", "-0530", "+14:00"]),
)
def test_azure_dates_keep_their_100_nanoseconds(ticks: list[int], space: str, zone: str) -> None:
    base = np.datetime64("2023-11-16T18:17:03", "ns")
    stamps = [str(base + np.timedelta64(tick * 100, "ns"))[:-2].replace("T", space) for tick in ticks]
    rows = "".join(f"{stamp}{zone},5,7\n" for stamp in stamps)
    load = opened("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert load.arrival.tolist() == [(tick - ticks[0]) * 100 / 1e9 for tick in ticks]


def test_a_zone_moves_the_clock() -> None:
    rows = "2024-01-01 01:00:00+01:00,5,7\n2024-01-01 00:00:01Z,5,7\n2023-12-31 19:00:02-05:00,5,7\n"
    load = opened("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    assert load.arrival.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("title", "per_second", "unit"),
    [
        ("arrival", 1, "seconds, as its name has no unit"),
        ("arrival_s", 1, "seconds"),
        ("timestamp_ms", 1000, "milliseconds"),
        ("ARRIVED_AT_us", 10**6, "microseconds"),
        ("arrival_time_ns", 10**9, "nanoseconds"),
    ],
)
def test_the_suffix_of_the_arrival_is_its_unit_and_is_said(title: str, per_second: int, unit: str) -> None:
    load = opened(f"{title},input_tokens,num_decode_tokens\n0,1,2\n{3 * per_second},1,2\n")
    assert load.span == 3.0
    assert load.notes[0].startswith(f"CSV: {title} read as {unit}")


def test_plain_csv_takes_dates_too() -> None:
    load = opened("timestamp,prompt,output\n2024-01-01 00:00:00,1,2\n2024-01-01 00:00:00.25,1,2\n")
    assert load.arrival.tolist() == [0.0, 0.25]
    assert "dates" in load.notes[0]


def test_a_first_arrival_after_zero_is_said() -> None:
    load = opened("arrival,prompt,output\n5,1,2\n8,1,2\n")
    assert load.arrival.tolist() == [0.0, 3.0]
    assert "the first arrival, 5, is time 0" in load.notes


def test_the_small_azure_file_is_read() -> None:
    load = Workload.open(DATA / "azure_small.csv")
    assert load.arrival.tolist() == [0.0, 0.1000001, 0.1000001, 62.6]
    assert load.prompt.tolist() == [512, 1300, 40, 9000]
    assert load.output.tolist() == [64, 8, 300, 1]


def test_the_small_plain_file_is_read_with_all_its_columns() -> None:
    load = Workload.open(DATA / "plain_small.csv")
    assert load.arrival.tolist() == [0.0, 0.25, 1.0005]
    assert load.max_tokens.tolist() == [32, 16, 40]
    assert load.output.tolist() == [20, 16, 40]
    assert load.priority is not None and load.priority.tolist() == [0, -1, 2]
    assert load.client is not None and load.client.tolist() == [0, 1, 0]
    assert "columns ignored: note" in load.notes
    assert "2 client names are numbered from 0, in order of appearance" in load.notes
    assert "1 of 3 outputs are cut to max_tokens" in load.notes


def test_mooncake_hashes_become_keys_of_full_blocks() -> None:
    load = Workload.open(DATA / "mooncake_small.jsonl")
    first, second, third = (list(request.prefix) for request in load.requests(block_size=16))
    assert first == [*range(7 * 32, 9 * 32), 9 * 32]  # 1050 tokens: 65 full blocks, the last in hash 9
    assert second == first[:32]
    assert third == []  # 15 tokens fill no block
    assert load.arrival.tolist() == [0.0, 0.0, 1.5005]


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 5000), st.sampled_from([1, 2, 4, 8, 16, 32, 64, 128, 256, 512]), st.data())
def test_keys_follow_the_hash_of_their_block(prompt: int, block_size: int, data: st.DataObject) -> None:
    count = pieces(prompt)
    hashes = data.draw(st.lists(st.integers(0, 2**54 - 1), min_size=count, max_size=count))
    load = Workload.from_columns([0], [prompt], [1], hash_ids=[hashes])
    per_hash = 512 // block_size
    wanted = [hashes[i // per_hash] * per_hash + i % per_hash for i in range(prompt // block_size)]
    (request,) = load.requests(block_size)
    assert list(request.prefix) == wanted


@pytest.mark.parametrize("block_size", [0, -16, 3, 48, 1000])
def test_blocks_that_do_not_fill_a_hash_are_refused(block_size: int) -> None:
    load = Workload.open(DATA / "mooncake_small.jsonl")
    with pytest.raises(InputError, match=f"block_size {block_size} does not divide 512"):
        load.requests(block_size)
    assert all(not request.prefix for request in load.requests(block_size, prefix=False))


def test_unknown_keys_of_jsonl_are_named_once() -> None:
    lines = [f'{{"timestamp": {t}, "input_length": 1, "output_length": 1, "user": "x"}}' for t in (0, 1)]
    assert opened("\n".join(lines)).notes.count("keys ignored: user") == 1


def test_blank_lines_are_no_rows() -> None:
    load = opened("\narrival,prompt,output\n0,1,2\n\n1,3,4\n\n")
    assert load.prompt.tolist() == [1, 3]


def test_a_long_table_is_read_whole_and_its_last_row_named() -> None:
    count = 40_000  # more than two pieces
    rows = [f"{i},{i % 7 + 1},{i % 5 + 1}" for i in range(count)]
    load = opened("arrival,prompt,output\n" + "\n".join(rows))
    assert load.arrival.tolist() == list(range(count))
    assert load.prompt.tolist() == [i % 7 + 1 for i in range(count)]
    rows[-1] = "0,1,1"
    with pytest.raises(InputError, match=f"row {count + 1}: arrival is '0', before '39998' in row {count};"):
        opened("arrival,prompt,output\n" + "\n".join(rows))


@pytest.mark.skipif(not TRACES.exists(), reason="the public traces are not beside this checkout")
@pytest.mark.parametrize(
    ("file", "count", "rate", "prompt", "output"),
    [
        ("azure2023/AzureLLMInferenceTrace_code.csv", 8819, 2.57, (2048, 1469, 7436), (28, 13, 251)),
        ("azure2023/AzureLLMInferenceTrace_conv.csv", 19366, 5.53, (1155, 1020, 4142), (211, 129, 601)),
        ("mooncake/conversation_trace.jsonl.gz", 12031, 3.40, (12035, 6909, 85400), (343, 350, 1119)),
    ],
)
def test_the_public_traces_have_their_published_statistics(
    file: str, count: int, rate: float, prompt: tuple[int, ...], output: tuple[int, ...]
) -> None:
    load = Workload.open(TRACES / file)
    assert len(load) == count
    assert round(load.rate, 2) == rate
    assert tuple(map(round, load.prompt_spread)) == pytest.approx(prompt, abs=1)
    assert tuple(map(round, load.output_spread)) == pytest.approx(output, abs=1)
