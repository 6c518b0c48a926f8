"""Whatever is wrong with a file is said in one line that names the file and the row."""

from __future__ import annotations

import gzip
import json
import shlex
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchwright.errors import InputError
from batchwright.scenario.loads import load_of
from batchwright.scenario.text import read
from batchwright.workload import Workload
from batchwright.workload.load_text import EXAMPLES, LOADS
from batchwright.workload.roles import mapping

pytestmark = pytest.mark.pure  # the layers above the core are pure Python

AZURE = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
AZURE += [f"2023-11-16 18:17:{second:02}.5000000,{100 + second},{second + 1}" for second in range(10, 20)]
PLAIN = ["arrival_ms,prompt,output,max_tokens,priority,client"]
PLAIN += [f"{ms},{ms + 1},7,9,0,3" for ms in range(10, 20)]
MOONCAKE = [
    {"timestamp": ms, "input_length": 600 + ms, "output_length": 5, "hash_ids": [1, ms]}
    for ms in range(10, 20)
]

bad_lengths = st.sampled_from(
    ["", " ", "-5", "0", "1.5", "1e3", "nan", "inf", "x", "1_0", "\u0663", "16777217", "9" * 5000]
)
bad_times = st.sampled_from(["", "nan", "inf", "-inf", "-1", "x", "1_0", "1e400", "9" * 5000, "0x1", "1 2"])
bad_dates = st.sampled_from(
    ["", "0", "NaT", "now", "2023-11-16", "2023-13-16 18:17:10", "2023-02-30 00:00:00",
     "2023-11-16 25:00:00", "2023-11-16 18:17:60", "2023-11-16 18:17:10.1234567890", "16/11/2023 18:17:10",
     "2023-11-16 18:17:10+99:00"]
)  # fmt: skip
bad_whole = st.sampled_from(["", "1.5", "x", "nan", "9" * 30])
rows = st.integers(1, 10)


def error_of(data: bytes | str, name: str = "trace") -> str:
    """What opening such a file says, its folder left out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        with pytest.raises(InputError) as caught:
            Workload.open(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert len(message) < len(str(path)) + 400
    return message.removeprefix(str(path) + ": ")


def with_cell(lines: list[str], row: int, place: int, cell: str) -> str:
    cells = lines[row].split(",")
    cells[place] = cell
    return "\n".join([*lines[:row], ",".join(cells), *lines[row + 1 :]])


@settings(derandomize=True, deadline=None)
@given(rows, st.sampled_from([1, 2]), bad_lengths)
def test_a_bad_length_in_an_azure_trace_names_its_row(row: int, place: int, cell: str) -> None:
    title = AZURE[0].split(",")[place]
    assert error_of(with_cell(AZURE, row, place, cell)).startswith(
        f"row {row + 1}: {title} is {cell[:40]!r}"[:50]
    )


@settings(derandomize=True, deadline=None)
@given(rows, bad_dates)
def test_a_bad_date_names_its_row(row: int, cell: str) -> None:
    assert error_of(with_cell(AZURE, row, 0, cell)).startswith(f"row {row + 1}: TIMESTAMP is {cell!r}")


@settings(derandomize=True, deadline=None)
@given(rows, st.one_of(
    st.tuples(st.just(0), bad_times), st.tuples(st.sampled_from([1, 2, 3]), bad_lengths),
    st.tuples(st.just(4), bad_whole), st.tuples(st.just(5), st.one_of(st.just("-1"), bad_whole)),
))  # fmt: skip
def test_a_bad_cell_in_a_plain_trace_names_its_row(row: int, corruption: tuple[int, str]) -> None:
    place, cell = corruption
    if place == 5 and row == 1 and cell:
        return  # a client's name, which is fine
    assert error_of(with_cell(PLAIN, row, place, cell)).startswith(f"row {row + 1}: ")


@settings(derandomize=True, deadline=None)
@given(
    st.integers(0, 9),
    st.one_of(
        st.tuples(
            st.sampled_from(["input_length", "output_length"]),
            st.sampled_from([None, True, 0, -1, 1.0, 2.5, "7", [], {}, 2**24 + 1, 10**400, float("nan")]),
        ),
        st.tuples(
            st.just("timestamp"),
            st.sampled_from([None, True, -1, "7", [], 10**400, float("nan"), float("inf"), 1e300]),
        ),
        st.tuples(
            st.just("hash_ids"),
            st.sampled_from(
                [None, 7, [], [1], [1, 2, 3], [1, -2], [1, "2"], [1, True], [1, 2.0], [1, 2**54]]
            ),
        ),
    ),
)
def test_a_bad_value_in_a_mooncake_trace_names_its_row(index: int, corruption: tuple[str, object]) -> None:
    items = [dict(item) for item in MOONCAKE]
    items[index][corruption[0]] = corruption[1]
    message = error_of("\n".join(map(json.dumps, items)))
    assert message.startswith(f"row {index + 1}: {corruption[0]} ")


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 9), st.sampled_from(["timestamp", "input_length", "output_length", "hash_ids"]))
def test_a_missing_key_names_its_row(index: int, key: str) -> None:
    items = [dict(item) for item in MOONCAKE]
    del items[index][key]
    row = 2 if (key, index) == ("hash_ids", 0) else index + 1  # the first row says whether there are hashes
    assert error_of("\n".join(map(json.dumps, items))).startswith(f"row {row}: ")


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 9), st.integers(1, 60))
def test_a_cut_json_line_names_its_row(index: int, length: int) -> None:
    lines = [json.dumps(item) for item in MOONCAKE]
    lines[index] = lines[index][:length]
    assert error_of("\n".join(lines)).startswith(f"row {index + 1}: ")


@settings(derandomize=True, deadline=None)
@given(
    rows,
    st.sampled_from(["1", "1,2", "1,2,3,4", '"', '1,"2,3', '1,"2"x,3', ",,,"]),
    st.sampled_from(["\n", "\r\n"]),
)
def test_a_malformed_row_is_named(row: int, line: str, end: str) -> None:
    lines = ["arrival,prompt,output", *(f"{i},1,1" for i in range(1, 11))]
    lines[row] = line
    assert error_of(end.join(lines)).startswith(f"row {row + 1}: ")


@pytest.mark.parametrize("row", range(2, 11))
def test_time_that_runs_backwards_names_both_rows(row: int) -> None:
    swapped = [*AZURE[: row - 1], AZURE[row], AZURE[row - 1], *AZURE[row + 1 :]]
    message = error_of("\n".join(swapped))
    assert message.startswith(f"row {row + 1}: TIMESTAMP is '2023") and f"in row {row}; sort" in message


@pytest.mark.parametrize("row", range(2, 11))
def test_a_time_beyond_ten_years_names_its_own_row(row: int) -> None:
    assert error_of(with_cell(PLAIN, row, 0, "1e300")).startswith(
        f"row {row + 1}: arrival_ms is '1e300', over"
    )
    assert error_of(with_cell(AZURE, row, 0, "2199-01-01 00:00:00")).startswith(f"row {row + 1}: TIMESTAMP")


def test_rows_are_lines_of_the_file_whatever_stands_between() -> None:
    text = 'arrival,prompt,output,text\n\n0,1,1,"two\nlines"\n\n1,1,1,x\n2,zero,1,y\n'
    assert error_of(text).startswith("row 7: prompt is 'zero'")
    assert error_of(text.replace("2,zero", "0.5,2")).startswith(
        "row 7: arrival is '0.5', before '1' in row 6"
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b" \n\r\n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"arrival,prompt,output\n", "has a header and no row"),
        (AZURE[0].encode(), "has a header and no row"),
        (b"arrival,prompt,output\n0,1,\x001\n", "row 2: byte 0x00 is no UTF-8"),
        (b"arrival,prompt,output\n0,1,1\n1,1,\xff\n", "row 3: byte 0xff is no UTF-8"),
        ("arrival,prompt,output\n".encode("utf-16"), "row 1: byte 0xff is no UTF-8"),
        (b"PAR1\x15\x04", "is a Parquet file that is damaged or cut short"),
        (b"PK\x03\x04\0", "is a zip file; unpack it"),
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer, not the data"),
        (gzip.compress(gzip.compress(b"x", mtime=0), mtime=0), "row 1: byte 0x8b is no UTF-8"),
        (b"\x1f\x8b", "the gzip data is cut short"),
        (b"[1, 2]", "row 1: '[1, 2]' is no JSON object"),
        (b"[" * 100_000, "row 1: '[[[["),
        (
            b'{"timestamp": 0, "input_len": 1}',
            "row 1: no prompt column; the columns are timestamp, input_len; is 'input_len' meant",
        ),
    ],
)
def test_what_is_no_trace_is_refused(data: bytes, said: str) -> None:
    assert error_of(data, "trace.gz").startswith(said)


def test_titles_of_many_lines_or_letters_still_make_one_short_line() -> None:
    titles = ['"two\nlines"', "x" * 5000, *(f"c{i}" for i in range(1000))]
    message = error_of(",".join(titles) + "\n" + ",".join("0" * len(titles)))
    assert message.startswith("row 1: no prompt column; the columns are two lines, xxxx")
    assert "and 982 more" in message


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (
            "arrival,promt_tokens,output",
            "no prompt column; the columns are arrival, promt_tokens, output; is 'promt_",
        ),
        (
            "arrival,a,output",
            "no prompt column; the columns are arrival, a, output; name one prompt, prompt_tokens",
        ),
        (
            "time,prompt,output",
            "no arrival column; the columns are time, prompt, output; if 'time' is the arrival, call it",
        ),
        ("arival,prompt,output", "no arrival column; the columns are arival, prompt, output; if 'arival' is"),
        ("req_ts,prompt,output", "no arrival column; the columns are req_ts, prompt, output; if 'req_ts' is"),
        (
            "arrival,prompt,prompt_tokens",
            "the columns 'prompt' and 'prompt_tokens' both give the prompt; keep one",
        ),
        ("arrival,prompt,prompt", "the column 'prompt' is there twice"),
        (
            "TIMESTAMP,ContextToken,GeneratedTokens",
            "no column 'ContextTokens', which an Azure trace has; did you mean",
        ),
        ("0,100,20", "no prompt column; the columns are 0, 100, 20"),
    ],
)
def test_a_missing_or_doubled_column_names_what_there_is(header: str, said: str) -> None:
    assert error_of(f"{header}\n0,1,1\n").startswith(f"row 1: {said}")


@pytest.mark.parametrize(
    ("header", "flag"),
    [
        ("in_tok,gen_tok", "prompt=in_tok,output=gen_tok"),
        ("user,outTokens,inTokens", "prompt=inTokens,output=outTokens"),
        ("ts,INPUT,generated", "arrival=ts,prompt=INPUT,output=generated"),
        ("arrival_ms,promt_tokens,output", "arrival=arrival_ms,prompt=promt_tokens,output=output"),
        ("client,prompt,gen", "prompt=prompt,output=gen,client=client"),
        ("when sent,in tok,gen tok", "'prompt=in tok,output=gen tok'"),
        ("time,prompt,output", "arrival=time,prompt=prompt,output=output"),
    ],
)
def test_the_mapping_that_an_error_suggests_reads_the_file(header: str, flag: str, tmp_path: Path) -> None:
    message = error_of(f"{header}\n1,2,3\n" if header.count(",") == 2 else f"{header}\n1,2\n")
    assert message.endswith(f" map it: --columns {flag}")
    trace = tmp_path / "trace.csv"
    trace.write_text(f"{header}\n" + ",".join("123"[: header.count(",") + 1]) + "\n", encoding="utf-8")
    columns = mapping(shlex.split(flag)[0])
    load = Workload.open(trace, columns=columns)
    titles = header.split(",")
    assert load.prompt.tolist() == [titles.index(columns["prompt"]) + 1]
    assert load.output.tolist() == [titles.index(columns["output"]) + 1]


def test_a_column_of_text_is_not_taken_for_its_length() -> None:
    message = error_of("prompt_text,n_in,n_out\nhello,5,6\n")
    assert message.endswith("is 'n_in' the prompt? rename it, or map it: --columns prompt=n_in,output=n_out")


@pytest.mark.parametrize("title", ["out,put", "a" * 60, "two lines"])
def test_what_cannot_be_guessed_or_mapped_is_left_to_the_reader(title: str) -> None:
    message = error_of(f'arrival,prompt,"{title}"\n0,1,1\n')
    assert message.endswith(" map it: --columns arrival=arrival,prompt=prompt,output=NAME")


@pytest.mark.parametrize(("separator", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
@pytest.mark.parametrize("lines", [PLAIN, AZURE], ids=["plain", "azure"])
def test_another_separator_is_told_from_the_header_and_noted(
    separator: str, word: str, lines: list[str], tmp_path: Path
) -> None:
    loads = []
    for name, text in (("comma", "\n".join(lines)), ("other", "\n".join(lines).replace(",", separator))):
        (tmp_path / name).write_text(text, encoding="utf-8")
        loads.append(Workload.open(tmp_path / name))
    assert loads[0] == loads[1]
    note = f"the columns are separated by {word}, as the header has it"
    assert [one for one in loads[1].notes if one not in loads[0].notes] == [note]
    assert error_of("\n".join([*lines, lines[-1] + ",9"]).replace(",", separator)).endswith(
        f"stray {separator!r}"
    )


def test_a_comma_in_the_header_is_the_separator_whatever_else_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("prompt,output,a;b;c;d\n1,2,3;4;5;6\n", encoding="utf-8")
    load = Workload.open(tmp_path / "log")
    assert load.prompt.tolist() == [1] and load.notes[1] == "columns ignored: a;b;c;d"


def test_a_comma_as_decimal_point_is_refused_with_its_row() -> None:
    assert error_of("arrival;prompt;output\n0;1;1\n0,5;1;1\n").startswith("row 3: arrival is '0,5', which is")


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_damaged_gzip_never_reads_as_a_trace(data: st.DataObject) -> None:
    packed = gzip.compress("\n".join(AZURE).encode(), mtime=0)
    assert "gzip data is" in error_of(packed[: data.draw(st.integers(2, len(packed) - 1))])
    place = data.draw(st.integers(10, len(packed) - 1))  # past the header, which has bytes of no meaning
    damaged = bytearray(packed)
    damaged[place] ^= data.draw(st.integers(1, 255))
    assert "gzip data is" in error_of(bytes(damaged))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.sampled_from([AZURE, PLAIN, [json.dumps(item) for item in MOONCAKE]]), st.data())
def test_a_changed_byte_gives_a_valid_load_or_an_input_error(lines: list[str], data: st.DataObject) -> None:
    text = bytearray("\n".join(lines).encode())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(text)
        try:
            load = Workload.open(path)
        except InputError:
            return
    requests = list(load.requests())  # which check themselves
    assert 0 < len(requests) == len(load) <= len(lines)


def test_the_name_does_not_make_it_gzip(tmp_path: Path) -> None:
    (tmp_path / "plain.csv.gz").write_text("\n".join(AZURE))
    (tmp_path / "packed.csv").write_bytes(gzip.compress("\n".join(AZURE).encode()))
    assert Workload.open(tmp_path / "plain.csv.gz") == Workload.open(tmp_path / "packed.csv")


def test_a_path_that_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        InputError, match=r"nope\.csv: no such file; give a trace file, or a load such as chat"
    ):
        Workload.open(tmp_path / "nope.csv")
    with pytest.raises(InputError, match="is a directory without client models"):
        Workload.open(tmp_path)
    with pytest.raises(InputError, match="cannot be read"):
        Workload.open("a\0b")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        Workload.open(tmp_path / "secret.csv")


# --- loads ------------------------------------------------------------------------------------


def said_of(workload: str, **keys: object) -> str:
    with pytest.raises(InputError) as caught:
        load_of(read(workload, keys))
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "example"),
    [("poisson", "poisson(rate=4, n=1000)"), ("poison", "poisson(rate=4, n=1000)"), ("Chats", "chat"),
     ("burst", "burst(100)"), ("session", "sessions(rate=0.5, turns=4, think=20)")],
)  # fmt: skip
def test_a_load_that_is_named_nearly_is_shown_as_it_is_written(text: str, example: str) -> None:
    said = said_of(text)
    assert f"; did you mean the load {example.partition('(')[0]!r}? write {example}; loads: " in said
    assert set(said.partition("; loads: ")[2].split(", ")) == {*LOADS, "mix"}


@pytest.mark.parametrize("text", ["trace.csv", "a/chat.csv", "burst.csv", "zzz"])
def test_the_name_of_a_file_is_not_taken_for_a_load(text: str) -> None:
    said = said_of(text)
    assert said.startswith(
        f"{text}: no such file; give a trace file, or a load such as chat or poisson(rate=4"
    )
    assert set(said.partition("; loads: ")[2].split(", ")) == {*LOADS, "mix"}


@pytest.mark.parametrize("example", [example for example in EXAMPLES if "servegen" not in example])
def test_the_example_of_every_load_is_a_load(example: str) -> None:
    assert len(Workload.open(example)) > 0


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("chat", "chat(n=1234)"),
        ("burst(5, prompt=uniform(1, 9))", "burst(prompt=uniform(1, 9), n=1234)"),
        ("poisson(rate=4, n=7, seed=2)", "poisson(rate=4, seed=2, n=1234)"),
    ],
)
def test_more_requests_than_a_made_load_has_point_to_its_n(text: str, more: str) -> None:
    said = said_of(text, requests=1234)
    assert said.endswith(f", or make more: {more}")
    assert len(load_of(read(more, {"requests": 1234}))) == 1234


@pytest.mark.parametrize(
    ("text", "keys"),
    [("mix(chat)", {}), ("chat", {"between": "0:1m"}), ("chat", {"sample": 0.5}), ("chat", {"tile": 2})],
)
def test_where_n_would_not_be_the_number_of_requests_it_is_not_named(
    text: str, keys: dict[str, object]
) -> None:
    assert "make more" not in said_of(text, requests=5000, **keys)
