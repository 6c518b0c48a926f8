"""A table means the same as CSV, JSONL and Parquet, under any names of its columns and in any unit."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload import Workload
from batchwright.workload.roles import checked, mapping

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

tokens = st.integers(1, LONGEST)
ROLES = ("arrival", "prompt", "output", "max_tokens", "priority", "client")


def opened(data: bytes | str, **options: object) -> Workload:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return Workload.open(path, **options)


def error_of(data: bytes | str, **options: object) -> str:
    """What opening such a file says, its folder left out."""
    with pytest.raises(InputError) as caught:
        opened(data, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 500
    return message.partition("trace: ")[2]


@st.composite
def tables(draw: st.DrawFn) -> dict[str, list]:
    """Columns of one load, its first arrival at 0."""
    times = sorted(draw(st.lists(st.floats(0, 1e6), min_size=1, max_size=8)))
    whole = st.integers(-(1 << 31) + 1, (1 << 31) - 1)
    kinds = {"prompt": tokens, "output": tokens, "max_tokens": tokens, "priority": whole}
    kinds["client"] = whole.map(abs)
    size = {"min_size": len(times), "max_size": len(times)}
    columns = {name: draw(st.lists(kind, **size)) for name, kind in kinds.items()}
    return {"arrival": [time - times[0] for time in times], **columns}


def as_csv(columns: dict[str, list]) -> str:
    rows = [",".join(columns), *(",".join(map(repr, row)) for row in zip(*columns.values(), strict=True))]
    return "\n".join(rows)


def as_jsonl(columns: dict[str, list]) -> str:
    rows = zip(*columns.values(), strict=True)
    return "\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows)


def as_parquet(columns: dict[str, list]) -> bytes:
    polars = pytest.importorskip("polars")
    out = io.BytesIO()
    polars.DataFrame(columns).write_parquet(out)
    return out.getvalue()


KINDS = {"CSV": as_csv, "JSONL": as_jsonl, "Parquet": as_parquet}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
@settings(derandomize=True, deadline=None, max_examples=40)
@given(columns=tables(), order=st.permutations(ROLES))
def test_any_table_reads_back_equal(kind: str, columns: dict[str, list], order: list[str]) -> None:
    load = opened(KINDS[kind]({name: columns[name] for name in order}))
    assert load == Workload.from_columns(**columns)
    assert load.notes[0].startswith(f"{kind}: arrival read as seconds")


names = st.lists(
    st.text("abcxyz _.-0189", min_size=1, max_size=6).filter(lambda name: name == name.strip()),
    min_size=len(ROLES),
    max_size=len(ROLES),
    unique=True,
)


@every_kind
@settings(derandomize=True, deadline=None, max_examples=40)
@given(columns=tables(), titles=names)
def test_a_mapping_reads_columns_of_any_name(kind: str, columns: dict[str, list], titles: list[str]) -> None:
    role_to_title = dict(zip(ROLES, titles, strict=True))
    text = ",".join(f"{role}={title}" for role, title in role_to_title.items())
    assert mapping(text) == role_to_title
    table = {role_to_title[role]: columns[role] for role in ROLES} | {"else": columns["prompt"]}
    load = opened(KINDS[kind](table), columns=mapping(text), time_unit="s")
    assert load == Workload.from_columns(**columns)
    ignored = "columns ignored: else" in load.notes
    assert ignored == (kind == "CSV")  # the others read only what was asked for


@every_kind
@settings(derandomize=True, deadline=None, max_examples=20)
@given(
    ticks=st.lists(st.integers(0, 10**15), min_size=1, max_size=6).map(sorted),
    unit=st.sampled_from([("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)]),
    is_suffix=st.booleans(),
)
def test_a_unit_is_exact_to_the_last_bit(
    kind: str, ticks: list[int], unit: tuple[str, int], is_suffix: bool
) -> None:
    name, per_second = unit
    if (ticks[-1] - ticks[0]) / per_second > 86400:
        ticks = [tick % (86400 * per_second) for tick in ticks]
        ticks.sort()
    base = 1_700_000_000 * per_second  # seconds since 1970, too many for a float of nanoseconds
    title = f"arrival_{name}" if is_suffix else "when"
    table = {title: [base + tick for tick in ticks], "prompt": [1] * len(ticks), "output": [1] * len(ticks)}
    options = {} if is_suffix else {"columns": {"arrival": "when", "prompt": "prompt", "output": "output"}}
    load = opened(KINDS[kind](table), **options, **({} if is_suffix else {"time_unit": name}))
    assert load.arrival.tolist() == [(tick - ticks[0]) / per_second for tick in ticks]
    words = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}[name]
    assert load.notes[0] == f"{kind}: {title} read as {words}{'' if is_suffix else ', as given'}"


@pytest.mark.parametrize(
    ("start", "step", "words"),
    [
        (1.7e9, 1, "seconds, as its name has no unit"),
        (1_700_000_000_000, 10**3, "milliseconds since 1970, by their size"),
        (1_700_000_000_000_000, 10**6, "microseconds since 1970, by their size"),
        (1_700_000_000_000_000_000, 10**9, "nanoseconds since 1970, by their size"),
    ],
)
def test_a_clock_since_1970_tells_its_unit_by_its_size(start: float, step: int, words: str) -> None:
    load = opened(f"timestamp,prompt,output\n{start},1,1\n{start + 2 * step},1,1\n")
    assert load.arrival.tolist() == [0.0, 2.0]
    assert load.notes[0].startswith(f"CSV: timestamp read as {words}")


def test_parquet_dates_and_names_are_read() -> None:
    polars = pytest.importorskip("polars")
    from datetime import UTC, datetime, timedelta

    start = datetime(2024, 1, 1, tzinfo=UTC)
    stamps = [start, start + timedelta(milliseconds=1500)]
    table = {"timestamp": stamps, "prompt": [1, 2], "output": [3, 4], "client": ["b", "a"], "tags": [[1], []]}
    out = io.BytesIO()
    polars.DataFrame(table).write_parquet(out)
    load = opened(out.getvalue())
    assert load.arrival.tolist() == [0.0, 1.5]
    assert load.client is not None and load.client.tolist() == [0, 1]
    assert "columns ignored: tags" in load.notes


def test_parquet_without_polars_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = as_parquet({"arrival": [0.0], "prompt": [1], "output": [1]})
    monkeypatch.setitem(sys.modules, "polars", None)
    assert error_of(raw).startswith(
        "is a Parquet file, which needs polars; pip install 'batchwright[data]', or give CSV or JSONL"
    )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.data())
def test_a_damaged_parquet_file_is_a_valid_load_or_an_input_error(data: st.DataObject) -> None:
    raw = bytearray(as_parquet({"arrival": [0.0, 1.0], "prompt": [1, 2], "output": [3, 4]}))
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        assert len(opened(bytes(raw))) == 2
    except InputError as error:
        assert "\n" not in str(error)


def test_lengths_alone_come_all_at_once_and_say_so() -> None:
    load = opened(
        "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n74,918,992,0.08\n5,6,11,0.8\n"
    )
    assert not load.columns.has_arrivals and not load.head(1).columns.has_arrivals
    assert load.arrival.tolist() == [0.0, 0.0]
    assert load.prompt.tolist() == [74, 5] and load.output.tolist() == [918, 6]
    assert load.notes[0] == "CSV: no arrivals in the file: all at once; give --rate for Poisson arrivals"
    assert load.notes[1] == "columns ignored: num_total_tokens, pd_ratio"


def test_a_mapping_without_arrivals_is_lengths_alone() -> None:
    columns = {"prompt": "in", "output": "out"}
    load = opened("time,in,out\n7,1,2\n", columns=columns)
    assert not load.columns.has_arrivals
    assert error_of("time,in,out\n7,1,2\n", columns=columns, time_unit="s").startswith(
        "time_unit is 's', but it has no arrivals; leave it out"
    )


def test_models_are_counted_in_a_note() -> None:
    columns = {"prompt": "p", "output": "o", "arrival": "t", "model": "m"}
    load = opened("t,p,o,m\n0,1,1,big\n0,1,1,small\n1,1,1,big\n", columns=columns)
    assert "requests by model: big 2, small 1; all are served as one load" in load.notes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("arrival", "columns has 'arrival'; give role=column pairs such as arrival=ts,prompt=in"),
        ("arrival=", "columns has 'arrival='; give role"),
        ("", "columns has ''; give role"),
        ("promt=a,output=b", "columns names the role 'promt'; did you mean 'prompt'?"),
        ("prompt=a", "columns has no output; give role"),
        ("prompt=a,output=b,prompt=c", "columns gives the prompt twice"),
        ("prompt=a,output=a", "columns uses the column 'a' for two roles"),
    ],
)
def test_a_mapping_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        mapping(text)
    assert str(caught.value).startswith(said)


def test_a_mapping_of_columns_that_are_not_there_names_the_nearest() -> None:
    columns = checked({"arrival": "tme", "prompt": "in", "output": "out"})
    message = error_of("time,in,out\n0,1,1\n", columns=columns)
    assert message == "row 1: no column 'tme', which was to be the arrival; did you mean 'time'?"


@pytest.mark.parametrize("unit", ["", "S", "seconds", "h"])
def test_a_unit_that_is_none_is_refused(unit: str) -> None:
    with pytest.raises(InputError, match=f"time_unit is '{unit}'; give one of s, ms, us, ns"):
        opened("arrival,prompt,output\n0,1,1\n", time_unit=unit)


@pytest.mark.parametrize("header", ["arrival,prompt,output", "TIMESTAMP,ContextTokens,GeneratedTokens"])
def test_dates_have_no_unit(header: str) -> None:
    message = error_of(f"{header}\n2024-01-01 00:00:00,1,1\n", time_unit="ms")
    assert message.startswith("time_unit is 'ms', but ") and message.endswith("no unit; leave it out")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (['{"arrival": 0, "prompt": 1, "output": 1}', '{"arrival": 1, "promt": 1, "output": 1}'],
         "row 2: no key 'prompt', which the first row has; did you mean 'promt'?"),
        (['{"arrival": 0, "prompt": 1, "output": 1}',
          '{"arrival": 1, "prompt": 1, "output": 1, "priority": 2}'],
         "row 2: has the key 'priority', unlike row 1; give every row the same keys"),
        (['{"arrival": 0, "prompt": null, "output": 1}'], "row 1: prompt is '', which is not a whole number"),
        (['{"arrival": 0, "prompt": true, "output": 1}'], "row 1: prompt is 'true', which is not a whole"),
        (['{"arrival": 0, "prompt": [1], "output": 1}'], "row 1: prompt is '[1]', which is not a whole"),
        (['{"arrival": 0, "prompt": 2.0, "output": 1}'], "row 1: prompt is '2.0', which is not a whole"),
        (['{"arrival": NaN, "prompt": 2, "output": 1}'], "row 1: arrival is 'nan', which is not a number"),
        (['{"arrival": 1, "prompt": 2, "output": 1}', "", '{"arrival": 0, "prompt": 2, "output": 1}'],
         "row 3: arrival is '0', before '1' in row 1; sort the rows by time"),
        (["[1, 2]"], "row 1: '[1, 2]' is no JSON object; write one object per line"),
        (["{}"], "row 1: no prompt column; the columns are ; name one prompt"),
    ],
)  # fmt: skip
def test_a_bad_row_of_jsonl_is_named(rows: list[str], said: str) -> None:
    assert error_of("\n".join(rows)).startswith(said)


@pytest.mark.parametrize("indent", [None, 2])
def test_conversations_without_counts_say_what_to_do(indent: int | None) -> None:
    chats = [{"id": "a", "conversations": [{"from": "human", "value": "hi"}]}]
    for text in (json.dumps(chats, indent=indent), json.dumps(chats[0])):
        assert error_of(text).startswith(
            "holds ShareGPT conversations, which are text without token counts; count them with your"
        )


def test_nanoseconds_beyond_a_float_do_not_run_backwards() -> None:
    start = 1_700_000_000_000_000_000
    text = f"arrival_ns,prompt,output\n{start + 1},1,1\n{start + 2},1,1\n"
    assert opened(text).arrival.tolist() == [0.0, 1e-9]
    assert error_of(text.replace(str(start + 2), str(start))).startswith("row 3: arrival_ns is")
    assert np.float64(start + 1) == np.float64(start)
