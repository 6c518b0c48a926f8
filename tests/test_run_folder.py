"""Run folders: whole or not there, the same bytes again, and a difference between two."""

from __future__ import annotations

import csv
import gzip
import json
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from batchwright import columns_file
from batchwright.cli.app import run
from batchwright.cli.compare import Output, compare
from batchwright.columns_file import read_columns, write_columns
from batchwright.errors import BatchwrightError, InputError
from batchwright.folder_difference import FolderDifference
from batchwright.run_folder import RunFolder, check_place
from batchwright.scenario.keys import Scenario
from test_cli import heed_interrupts

LOAD = "poisson(n=200, rate=8, prompt=uniform(10, 200), output=uniform(5, 40))"


def scenario(**keys: object) -> Scenario:
    given = {"workload": LOAD, "policies": "static(4),vllm", "cost": "constant(0.02)", "max_num_seqs": 8}
    return Scenario(**given | keys)  # type: ignore[arg-type]


def run_into(folder: Path, force: bool = False, **keys: object) -> RunFolder:
    compare(scenario(**keys), Output(as_json=True, folder=folder, force=force, window=None))
    return RunFolder.open(folder)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def numbers(folder: dict[str, bytes]) -> dict[str, object]:
    """The summary without its notes."""
    found: dict[str, object] = json.loads(folder["summary.json"])
    return {key: value for key, value in found.items() if key != "notes"}


def test_a_run_folder_holds_what_was_run_and_what_came_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_into(tmp_path / "a")
    assert json.loads(capsys.readouterr().out) == found.summary
    assert {name.partition(".")[0] for name in files(tmp_path / "a")} == {
        "config", "summary", "requests", "steps",
    }  # fmt: skip
    rows = found.requests("vllm")
    assert len(rows["id"]) == 200
    assert rows["e2e_s"].mean() == pytest.approx(found.summary["policies"]["vllm"]["e2e_s"]["mean"])
    assert np.isnan(found.requests("static(4)")["tpot_s"]).all()
    with pytest.raises(InputError, match=r"no policy 'vlm'; did you mean 'vllm'"):
        found.requests("vlm")


@pytest.fixture(params=[True, False], ids=["polars", "no polars"])
def with_and_without_polars(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(columns_file, "find_spec", lambda name: None)
    elif find_spec("polars") is None:
        pytest.skip("polars is not installed")


@pytest.mark.usefixtures("with_and_without_polars")
def test_the_configuration_of_a_folder_repeats_it(tmp_path: Path) -> None:
    run_into(tmp_path / "a", repeat=3, seed=5, slo="ttft=300ms")
    assert run(["compare", str(tmp_path / "a" / "config.yaml"), "-o", str(tmp_path / "b")]) == 0
    first, again = files(tmp_path / "a"), files(tmp_path / "b")
    assert numbers(first) == numbers(again)  # what was chosen for the user then is given now
    for name in first.keys() - {"summary.json"}:
        assert first[name] == again[name], name
    assert first.keys() == again.keys() and any(name.startswith("requests") for name in first)


def test_the_same_scenario_gives_the_same_bytes(tmp_path: Path) -> None:
    run_into(tmp_path / "a", repeat=2)
    run_into(tmp_path / "b", repeat=2)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_a_trace_beside_the_folder_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "load.csv").write_text("arrival,prompt,output\n0,10,3\n1,20,5\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    run_into(Path("out/a"), workload="in/load.csv")
    monkeypatch.chdir(tmp_path / "out")
    assert run(["compare", "a/config.yaml", "-o", "b"]) == 0
    assert numbers(files(tmp_path / "out" / "a")) == numbers(files(tmp_path / "out" / "b"))


def test_a_folder_that_is_there_is_kept_unless_forced(tmp_path: Path) -> None:
    run_into(tmp_path / "a")
    before = files(tmp_path / "a")
    with pytest.raises(InputError, match="is there already"):
        run_into(tmp_path / "a", seed=3)
    assert files(tmp_path / "a") == before
    run_into(tmp_path / "a", force=True, seed=3)
    assert files(tmp_path / "a") != before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_that_is_no_run_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="is no run folder"):
        check_place(tmp_path / "photos", force=True)
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError):
        run_into(tmp_path / "file", force=True)


def test_a_run_that_fails_leaves_the_earlier_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_into(tmp_path / "a")
    before = files(tmp_path / "a")

    def fail(*given: object) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr("batchwright.run_folder.write_columns", fail)
    with pytest.raises(KeyboardInterrupt):
        run_into(tmp_path / "a", force=True)
    assert files(tmp_path / "a") == before
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_interrupted_comparison_exits_130_and_leaves_no_folder(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "batchwright", "compare", "chat(n=200000)", "-o", "a", "--repeat", "50"]
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        command, cwd=tmp_path, stderr=pipe, stdout=pipe, text=True, preexec_fn=heed_interrupts
    )
    time.sleep(2)
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=60)
    assert started.returncode == 130, err
    assert out == "" and err == "batchwright: interrupted; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["no/such/../../a", "deep/er/a"])
def test_folders_on_the_way_are_made(place: str, tmp_path: Path) -> None:
    run_into(tmp_path / place)
    assert (tmp_path / place / "summary.json").is_file()


# --- columns -----------------------------------------------------------------------------


@pytest.mark.usefixtures("with_and_without_polars")
def test_columns_are_read_as_they_were_written(tmp_path: Path) -> None:
    columns = {
        "policy": np.array(["a,b", 'say "c"', "d"]),
        "id": np.array([1, -2, 3]),
        "seconds": np.array([0.1, np.nan, 1e-300]),
        "whole": np.array([1.0, 2.0, 3.0]),
    }
    write_columns(tmp_path / "t", columns)
    found = read_columns(tmp_path / "t")
    assert list(found) == list(columns)
    for name in ("id", "seconds", "whole"):
        assert found[name].dtype == columns[name].dtype
        np.testing.assert_array_equal(found[name], columns[name])
    assert found["policy"].tolist() == columns["policy"].tolist()


def test_csv_is_the_same_in_whatever_pieces_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns_file, "find_spec", lambda name: None)
    columns = {
        "policy": np.array(["a,b", 'say "c"', "", "a,b", "d"]),
        "value": np.array([0.1, np.nan, 2, 1e22, 0]),
    }
    whole = write_columns(tmp_path / "whole", columns).read_bytes()
    monkeypatch.setattr(columns_file, "PIECE", 2)
    assert write_columns(tmp_path / "parts", columns).read_bytes() == whole
    rows = [["policy", "value"], ["a,b", "0.1"], ['say "c"', ""], ["", "2.0"], ["a,b", "1e+22"], ["d", "0.0"]]
    assert list(csv.reader(gzip.decompress(whole).decode().splitlines())) == rows


@pytest.mark.parametrize("ending", [".csv.gz", ".parquet"])
def test_columns_that_are_cut_short_are_one_line(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"t{ending}").write_bytes(b"\x1f\x8bnot whole")
    with pytest.raises(InputError, match=r"polars|is no whole"):
        read_columns(tmp_path / "t")
    with pytest.raises(InputError, match="neither"):
        read_columns(tmp_path / "gone")


# --- differences -------------------------------------------------------------------------


def test_runs_of_the_same_requests_are_paired_request_by_request(tmp_path: Path) -> None:
    a, b = run_into(tmp_path / "a"), run_into(tmp_path / "b", cost="constant(0.03)")
    found = FolderDifference(a, b)
    assert found.pairing == "paired by request"
    assert found.settings == {"cost": ("constant(0.02)", "constant(0.03)")}
    gap = found.difference(("vllm", "vllm"), "e2e_s.mean")
    expected = b.requests("vllm")["e2e_s"] - a.requests("vllm")["e2e_s"]
    skip = max(a.summary["num_warm_up_requests"], b.summary["num_warm_up_requests"])
    assert gap.value == pytest.approx(expected[skip:].mean()) and gap.low > 0
    assert gap.half < a.requests("vllm")["e2e_s"].std()  # surer than the values


def test_runs_of_the_same_loads_are_paired_load_by_load(tmp_path: Path) -> None:
    a, b = (run_into(tmp_path / str(size), repeat=4, max_num_seqs=size) for size in (4, 8))
    found = FolderDifference(a, b)
    assert found.pairing == "paired by load"
    values = [
        y - x
        for x, y in zip(
            a.summary["policies"]["vllm"]["per_load"]["ttft_s.mean"],
            b.summary["policies"]["vllm"]["per_load"]["ttft_s.mean"],
            strict=True,
        )
    ]
    assert found.difference(("vllm", "vllm"), "ttft_s.mean").value == pytest.approx(np.mean(values))


def test_runs_of_other_requests_are_not_paired_and_say_so(tmp_path: Path) -> None:
    a, b = run_into(tmp_path / "a"), run_into(tmp_path / "b", seed=9)
    found = FolderDifference(a, b)
    assert found.pairing == "not paired"
    gap = found.difference(("vllm", "vllm"), "e2e_s.mean")
    low, high = a.summary["policies"]["vllm"]["intervals"]["e2e_s.mean"]
    assert gap.half > (high - low) / 2


def test_a_run_differs_from_itself_by_nothing(tmp_path: Path) -> None:
    a = run_into(tmp_path / "a")
    found = FolderDifference(a, a)
    assert found.settings == {}
    for rows in found.to_json()["policies"].values():
        assert rows and all(row["difference"] == 0 for row in rows.values())


def test_the_only_policy_of_each_is_compared_whatever_its_name(tmp_path: Path) -> None:
    a, b = run_into(tmp_path / "a", policies="static(4)"), run_into(tmp_path / "b", policies="vllm")
    assert FolderDifference(a, b).policies == [("static(4)", "vllm")]
    c = run_into(tmp_path / "c", policies="orca(4),dynamic(4)")
    with pytest.raises(InputError, match="no policy is in both"):
        _ = FolderDifference(a, c).policies


def test_the_command_prints_settings_values_and_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_into(tmp_path / "a")
    run_into(tmp_path / "b", max_num_seqs=4)
    capsys.readouterr()
    assert run(["runs", "diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert "max_num_seqs: 8 in A, 4 in B" in printed and "TTFT mean" in printed and "B - A" in printed
    assert run(["runs", "diff", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pairing"] == "paired by request"


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"policies": 3}'])
def test_a_folder_that_is_no_run_is_one_line(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "summary.json").write_text(content, encoding="utf-8")
    with pytest.raises(BatchwrightError, match="run") as error:
        RunFolder.open(tmp_path)
    assert "\n" not in str(error.value)
