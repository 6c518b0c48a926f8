"""What other tools measured: the frame.  Each form has its own file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from batchwright import columns_file
from batchwright.columns_file import write_columns
from batchwright.errors import InputError
from batchwright.imported import Finding, Imported, folder, read

pytestmark = pytest.mark.pure

FOUND = Imported(
    file="here.log",
    form="a log of some server",
    conventions=("TTFT: as ours",),
    findings=(Finding(text="TPOT is half", is_wrong=True), Finding(text="it is old", is_wrong=False)),
    about={"engine": "vllm", "tp": 2, "gpu_memory_utilization": 0.9, "enable_prefix_caching": True},
    requests={
        "arrival_s": np.array([0.0, 0.1, 0.3]),
        "output_tokens": np.array([3, 1, 2]),
        "ttft_s": np.array([0.25, np.nan, 1 / 3]),
    },
    gaps=(np.array([0.1, 0.2]), np.empty(0), np.array([1 / 7])),
    steps={"start_s": np.array([0.0, 0.5]), "num_decodes": np.array([0, 3])},
    series={"time_s": np.array([0.0]), "running": np.array([4])},
    totals={"preemptions": 12.0},
)


def same(a: Imported, b: Imported) -> None:
    for name in ("file", "form", "conventions", "findings", "about", "totals"):
        assert getattr(a, name) == getattr(b, name)
    for name in ("requests", "steps", "series"):
        one, other = getattr(a, name), getattr(b, name)
        assert (one is None) == (other is None)
        for title in one or {}:
            np.testing.assert_array_equal(one[title], other[title])
    assert (a.gaps is None) == (b.gaps is None)
    for one, other in zip(a.gaps or (), b.gaps or (), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("without", ["", "gaps", "requests gaps", "steps", "series"])
def test_what_is_written_as_a_folder_is_read_back(tmp_path: Path, without: str) -> None:
    found = replace(FOUND, **dict.fromkeys(without.split()))
    folder.write(tmp_path / "it", found)
    same(read(tmp_path / "it"), found)


@pytest.mark.parametrize("has_polars", [True, False])
def test_requests_of_one_token_have_no_gaps_and_are_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_polars: bool
) -> None:
    """A table of gaps without a row, as Parquet or as text."""
    if not has_polars:
        monkeypatch.setattr(columns_file, "find_spec", lambda name: None)
    found = replace(FOUND, gaps=(np.empty(0), np.empty(0), np.empty(0)))
    folder.write(tmp_path / "it", found)
    same(read(tmp_path / "it"), found)
    assert (tmp_path / "it" / "gaps.csv.gz").exists() != has_polars


def test_a_folder_that_is_there_is_kept_unless_it_may_go(tmp_path: Path) -> None:
    folder.write(tmp_path / "it", FOUND)
    with pytest.raises(InputError, match="--force"):
        folder.write(tmp_path / "it", FOUND)
    folder.write(tmp_path / "it", replace(FOUND, form="another"), force=True)
    assert read(tmp_path / "it").form == "another"


def test_another_folder_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    with pytest.raises(InputError, match="is no folder of imported measurements"):
        folder.write(tmp_path / "thesis", FOUND, force=True)


def test_a_folder_of_a_later_version_is_refused(tmp_path: Path) -> None:
    folder.write(tmp_path / "it", FOUND)
    file = tmp_path / "it" / "measured.json"
    file.write_text(file.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(InputError, match="schema_version"):
        read(tmp_path / "it")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hello\n", "of no form that is read; known: "),
        ('{"some": "thing"}', "of no form that is read; known: "),
        ("", "is empty"),
    ],
    ids=["text", "json", "empty"],
)
def test_a_file_of_no_known_form_is_refused_with_those_that_are(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "it").write_text(text)
    with pytest.raises(InputError, match=said):
        read(tmp_path / "it")


def test_a_folder_with_the_gaps_of_another_is_refused(tmp_path: Path) -> None:
    folder.write(tmp_path / "it", FOUND)
    write_columns(tmp_path / "it" / "gaps", {"request": np.array([0, 3]), "gap_s": np.array([0.1, 0.2])})
    with pytest.raises(InputError, match="gaps: is not in order of the 3 requests; import the file again"):
        read(tmp_path / "it")
    write_columns(tmp_path / "it" / "gaps", {"policy": np.array([0, 3])})
    with pytest.raises(InputError, match="gaps: has no request and gap_s"):
        read(tmp_path / "it")


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "nothing.json")
