"""Careless and hostile use of the command: one line and exit 2, nothing half-written, no traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from batchwright import columns_file
from batchwright.cli import main
from batchwright.errors import InputError
from batchwright.files import write_whole
from batchwright.run_folder import RunFolder, check_place
from batchwright.scenario.text import as_yaml, read
from batchwright.workload import Workload
from batchwright.yaml_text import GREATEST, parse, written

Refused = Callable[..., str]
SMALL = ("compare", "burst(n=20, prompt=30, output=6)", "--cost", "constant(0.02)")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs the command in an empty folder; its exit status."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Any:
        monkeypatch.setattr(sys, "argv", ["batchwright", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code

    return run


@pytest.fixture
def refused(command: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs what must be refused: exit 2 and one line of bounded length, which is returned."""

    def run(*arguments: str) -> str:
        capsys.readouterr()
        assert command(*arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == "" and printed.err.count("\n") == 1 and len(printed.err) < 1100
        assert printed.err.startswith("batchwright: ")
        return printed.err

    return run


# --- scenarios --------------------------------------------------------------------------------


BAD_YAML = {
    "a key twice": ("workload: chat\nrequests: 20\nrequests: 30\n", "the key 'requests' is there twice"),
    "a key twice inside": ("workload: chat\npolicies: {a: vllm, a: orca}\n", "the key 'a' is there twice"),
    "an octal number": ("workload: chat\nrequests: 010\n", "requests is '010'"),
    "a number in base 60": ("workload: chat\nrequests: 1:30\n", "requests is '1:30'"),
    "a number of 5000 digits": (f"workload: chat\nseed: {'9' * 5000}\n", "seed is '999"),
    "a tagged number of 5000 digits": (f"workload: chat\nseed: !!int {'9' * 5000}\n", "is not valid YAML"),
    "a limit of 5000 digits": (f"workload: chat\nmax_tokens: '{'9' * 5000}'\n", "--max-tokens is '999"),
    "lists in lists": (f"workload: {'[' * 3000}\n", "nested too deeply"),
    "a load in a load": (f"workload: {'poisson(' * 3000}\n", "cannot be read"),
    "mixes of mixes": (f"workload: {'mix(' * 400}chat{')' * 400}\n", "is not of the form"),
    "a long name": (f"workload: {'a' * 9000}\n", "File name too long"),
    "a list that holds itself": ("workload: &a [*a]\n", "expected str, got array"),
    "a mapping of numbers": ("workload: chat\ncolumns: {1: a}\n", "columns is {1: 'a'}"),
    "too much of it": ("# " + "x" * GREATEST, "characters"),
    "lists that multiply": (
        "workload: chat\nslo: 1s\nbetween: &a [1,1,1,1,1,1,1,1]\n"
        + "".join(f"{b}: &{b} [{','.join([f'*{a}'] * 8)}]\n" for a, b in pairwise("abcdefgh"))
        + "policies: [*h, *h]\n",
        "unknown key 'b'",
    ),
}


@pytest.mark.parametrize("what", BAD_YAML)
def test_a_scenario_of_odd_yaml_is_one_line(what: str, refused: Refused) -> None:
    text, said = BAD_YAML[what]
    Path("odd.yaml").write_text(text, encoding="utf-8")
    assert said in refused("compare", "odd.yaml")
    assert said in refused("config", "validate", "odd.yaml")


TEXTS = ["1e3", "010", "1:30", "2024-01-01", "0x10", "1_000", "+1", ".5", "-.inf", "7"]


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_written_as_yaml_is_read_as_it_was(text: str, tmp_path: Path) -> None:
    assert parse(written({text: [text, 1, 2.5, 1e-7, 1e22, None, True]}), "it") == {
        text: [text, 1, 2.5, 1e-7, 1e22, None, True]
    }
    (tmp_path / "a.yaml").write_text(as_yaml(read("chat", {"between": text})), encoding="utf-8")
    assert read(str(tmp_path / "a.yaml")).between == text


@pytest.mark.parametrize("number", ["1e3", "1E+3", "1000", "1000.0", "10.e2", "+1e3"])
def test_numbers_are_those_of_yaml_1_2(number: str) -> None:
    assert read("chat", sets=[f"rate={number}"]).rate == 1000.0


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\tb", " a", "\x1b[2J"])
def test_a_policy_has_a_name_that_can_be_printed(name: str, refused: Refused) -> None:
    said = refused(*SMALL, "--set", f"policies={json.dumps({name: 'vllm'})}")
    assert "a policy is called" in said


def test_an_error_cannot_steer_the_terminal(refused: Refused) -> None:
    assert "\\x1b[2J" in refused("compare", "a\x1b[2J")
    Path("own.py").write_text("def policy(b): raise ValueError('\\x1b[2J')", encoding="utf-8")
    assert "\\x1b[2J" in refused(*SMALL, "--policy-file", "own.py")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory"),
        (RecursionError(), "nested too deeply"),
        (OSError(13, "Permission denied", "a/b"), "a/b: cannot be used (Permission denied)"),
    ],
)
def test_what_the_machine_refuses_is_one_line(
    error: BaseException, said: str, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(arguments: list[str]) -> int:
        raise error

    monkeypatch.setattr("batchwright.cli.app.run", fails)
    assert said in refused("version")


# --- flags ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "chat", "--repeat", "abc"), "'abc'"),
        (("compare", "chat", "--rate", "fast"), "'fast'"),
        (("compare", "chat", "--time-unit", "s"), "is made, not read"),
        (("compare", "poisson(n=9)", "--columns", "prompt=in,output=out"), "is made, not read"),
        (("theory", "chat", "--cost", "constant(1e-300)"), "at least 1e-12"),
        (("theory", "chat", "--cost", "linear(base=1e-300)"), "at least 1e-12"),
        (("article", "--seeds", "100000000"), "give at most 10000"),
        (("export", "chat", "--format", "mooncake", "-o", "a", "--policy", "vllm"), "leave out --policy"),
        (
            ("export", "chat", "--format=vllm-bench", "-oa", "--goodput=ttft:1", "--goodput=ttft:2"),
            "ttft is given twice",
        ),
        (("timeline", "chat", "--first", "-1"), "--first is -1"),
        (("compare", "chat", "-o", "x" * 300), "File name too long"),
        (("config", "init", "x" * 300), "File name too long"),
        (("config", "validate", "x" * 300), "File name too long"),
        (("compare", "chat", "--policy-file", "x" * 300), "File name too long"),
        (("compare", "chat", "--model", "x" * 300), "File name too long"),
    ],
)
def test_a_flag_that_cannot_be_is_one_line_with_its_value(
    arguments: tuple[str, ...], said: str, refused: Refused
) -> None:
    assert said in refused(*arguments)


def test_a_part_without_an_end_reaches_the_last_request() -> None:
    from batchwright.scenario.loads import load_of

    assert len(load_of(read("chat", {"between": ":"}))) == 1000
    parts = [len(load_of(read("chat", {"between": part}))) for part in ("100s:", ":100s")]
    assert sum(parts) == 1000 and min(parts) > 0


@pytest.mark.parametrize("start", ["", "0", "0m", "0.0s", "0h"])
def test_a_part_may_start_at_zero_in_any_unit(start: str) -> None:
    from batchwright.scenario.loads import load_of

    found = load_of(read("chat", {"between": f"{start}:1m"}))
    assert found == Workload.open("chat").between(0.0, 60.0) and 0 < len(found) < 1000


@pytest.mark.parametrize("part", ["0m:0m", ":0s", "-1s:1m", "0x:1m", "1m:30s"])
def test_a_part_that_holds_nothing_is_refused(part: str) -> None:
    from batchwright.scenario.loads import load_of

    with pytest.raises(InputError):
        load_of(read("chat", {"between": part}))


def test_a_slow_step_makes_a_formula_inapplicable_not_the_memory_full() -> None:
    from batchwright.theory.continuous import residents

    with pytest.raises(InputError, match="resident in the mean"):
        residents(5.0, 250.0, 1e6, 0.0)


def test_a_folder_of_very_many_files_is_not_searched_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    from batchwright.workload import clients

    monkeypatch.setattr(clients, "_MOST_SEEN", 10)
    for number in range(11):
        (tmp_path / f"file{number}").touch()
    assert "holds over 10 files" in refused("compare", str(tmp_path))


# --- what is written --------------------------------------------------------------------------


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="cannot be written"):
        write_whole(pipe, "text", force=True)
    assert pipe.is_fifo()


@pytest.mark.skipif(find_spec("polars") is None, reason="writes Parquet")
def test_a_full_disk_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    def full(file: Path, content: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert "No space left on device" in refused(*SMALL, "-o", "run")
    assert not any(tmp_path.iterdir())


def test_a_place_that_cannot_be_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_place(tmp_path / "new" / "run", force=False)
    with pytest.raises(InputError, match="cannot be written"):
        check_place(tmp_path / "file" / "run", force=False)


FOREIGN = {
    "mooncake": ["--draw=5", "--goodput=ttft:1", "--until=1", "--serve-model=x", "--no-detailed"],
    "vllm-bench": ["--private-hashes", "--draw=5", "--since=1", "--until=1"],
    "perfetto": ["--private-hashes", "--goodput=ttft:1", "--serve-model=x", "--no-detailed"],
    "command": ["--private-hashes", "--draw=5", "--goodput=ttft:1", "--since=1", "--no-detailed"],
}


@pytest.mark.parametrize("format", FOREIGN)
def test_a_flag_that_is_for_another_format_is_refused(format: str, refused: Refused) -> None:
    for flag in FOREIGN[format]:
        said = refused("export", "burst(3)", "--format", format, "-o", "out.sh", flag)
        assert flag.partition("=")[0].replace("no-detailed", "detailed").strip("-") in said and format in said
    assert not Path("out.sh").exists()


@pytest.mark.parametrize("place", [".", "/", ".."])
def test_a_folder_is_no_place_for_an_export(place: str, refused: Refused) -> None:
    for format in FOREIGN:
        refused("export", "burst(3)", "--format", format, "-o", place)
        refused("export", "burst(3)", "--format", format, "-o", place, "--force")


# --- run folders ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder in gzipped CSV."""
    from batchwright.cli.app import run

    place = tmp_path_factory.mktemp("run") / "a"
    patch = pytest.MonkeyPatch()
    patch.setattr(columns_file, "find_spec", lambda name: None)
    assert run([*SMALL, "--policies", "static(4),vllm", "-o", str(place)]) == 0
    patch.undo()
    return place


def broken(value: Any) -> list[Any]:
    """Other kinds of the same value."""
    return [other for other in (None, "text", {"a": "b"}) if type(other) is not type(value)]


def test_an_edited_summary_is_compared_or_is_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from batchwright.cli.app import run

    whole = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    other, num_refused = tmp_path / "b", 0
    shutil.copytree(folder, other)
    for inside in (False, True):
        for key in whole["policies"]["vllm"] if inside else whole:
            for value in [KeyError, *broken((whole["policies"]["vllm"] if inside else whole)[key])]:
                edited = json.loads(json.dumps(whole))
                place = edited["policies"]["vllm"] if inside else edited
                place[key] = value
                if value is KeyError:
                    del place[key]
                (other / "summary.json").write_text(json.dumps(edited), encoding="utf-8")
                capsys.readouterr()
                try:
                    assert run(["runs", "diff", str(folder), str(other), "--json"]) == 0
                except InputError as error:
                    num_refused += 1
                    assert str(other) in str(error) and "\n" not in str(error)
    assert num_refused > 30


@pytest.mark.parametrize("version", [0, 2, None, "1"])
def test_a_summary_of_another_schema_is_named(version: object, folder: Path, tmp_path: Path) -> None:
    whole = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    (tmp_path / "summary.json").write_text(json.dumps(whole | {"schema_version": version}), encoding="utf-8")
    with pytest.raises(InputError, match=rf"schema_version {version!r}, but 1 is read"):
        RunFolder.open(tmp_path)


def rows(count: int) -> Callable[[Path], None]:
    def cut(file: Path) -> None:
        import gzip

        kept = gzip.decompress(file.read_bytes()).splitlines(keepends=True)[:count]
        file.write_bytes(gzip.compress(b"".join(kept)))

    return cut


def replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    def replace(file: Path) -> None:
        import gzip

        file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()).replace(old, new, 1)))

    return replace


def flipped(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    file.write_bytes(content)


TABLES: dict[str, Callable[[Path], object]] = {
    "gone": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:200]),
    "overwritten": flipped,
    "only titles": rows(1),
    "fewer rows": rows(9),
    "no policies": replaced(b"policy", b"other"),
    "no times": replaced(b"e2e_s", b"other"),
    "a ragged row": replaced(b"static(4),0,", b"static(4),"),
    "text for a time": replaced(b"static(4),0,0.0,", b"static(4),0,soon,"),
}


@pytest.mark.parametrize("what", TABLES)
def test_a_table_that_is_not_whole_is_one_line_and_nothing_is_printed_before_it(
    what: str, folder: Path, tmp_path: Path, refused: Refused
) -> None:
    other = tmp_path / "b"
    shutil.copytree(folder, other)
    TABLES[what](other / "requests.csv.gz")
    if what == "text for a time":
        with pytest.raises(AssertionError):  # arrivals are not compared
            refused("runs", "diff", str(folder), str(other))
        return
    assert "requests" in refused("runs", "diff", str(folder), str(other))


@pytest.mark.parametrize("text", [None, "{{{", "- 1", "", "a: 1\na: 2\n"])
def test_a_configuration_that_is_not_whole_is_one_line(
    text: str | None, folder: Path, tmp_path: Path, refused: Refused
) -> None:
    other = tmp_path / "b"
    shutil.copytree(folder, other)
    (other / "config.yaml").unlink()
    if text is not None:
        (other / "config.yaml").write_text(text, encoding="utf-8")
    assert "config.yaml" in refused("runs", "diff", str(folder), str(other))


def test_an_interrupted_text_of_code_is_told_as_an_interruption() -> None:
    """Dataclasses run such texts; Python notes the interruption and ends by the signal."""
    script = """
        import batchwright.cli.app
        from batchwright.cli import main
        batchwright.cli.app.run = lambda arguments: exec("raise KeyboardInterrupt")
        main()
    """
    command = [sys.executable, "-c", dedent(script)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 130
    assert found.stderr == "batchwright: interrupted; nothing was written\n"


def test_a_folder_has_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    load = "mix(sessions(rate=4, turns=3, think=2, n=40), poisson(n=40, rate=8, shared_prefix=96))"
    for seed in ("1", "2"):
        arguments = ["compare", load, "--repeat", "2", "--seed", "5", "--slo", "ttft=1s", "-o", f"at{seed}"]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-m", "batchwright", *arguments],
            cwd=tmp_path, env=environment, check=True, capture_output=True,
        )  # fmt: skip
    one, other = (sorted((tmp_path / f"at{seed}").iterdir()) for seed in ("1", "2"))
    assert [file.name for file in one] == [file.name for file in other]
    assert all(a.read_bytes() == b.read_bytes() for a, b in zip(one, other, strict=True))
