"""Profile files: what is written is read back, and what is wrong, old or edited is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright import Linear
from batchwright.errors import InputError
from batchwright.profile import Profile, as_text, beyond, read

pytestmark = pytest.mark.pure

PROFILE = Profile(
    name="mine",
    cost="linear(base=0.005, decode=0.0001)",
    limits={"num_gpu_blocks_override": 2588, "block_size": 16},
    provenance={"made_by": "batchwright 0.1.0 fit", "sources": ["600 steps of a.csv"], "server": {"tp": 2}},
    range={"tokens": (1.0, 512.0), "num_decodes": (0.0, 32.0)},
    error={"held_out": {"mean of a step": 0.051, "total": -0.004}},
    kept=("past: no step has any, so it is left out",),
)


def put(folder: Path, text: str) -> Path:
    file = folder / "p.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    found = read(put(tmp_path, as_text(PROFILE)))
    assert found == PROFILE
    assert found.model() == Linear(0.005, decode=0.0001)


names = st.text("abc_", min_size=1, max_size=8)
numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(
    name=st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20),
    ends=st.dictionaries(names, st.tuples(numbers, numbers).map(sorted).map(tuple), max_size=4),
    error=st.dictionaries(names, st.dictionaries(names, numbers, max_size=3), max_size=3),
    kept=st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20), max_size=3),
)
def test_any_profile_is_read_back(tmp_path_factory: pytest.TempPathFactory, name, ends, error, kept) -> None:
    profile = replace(PROFILE, name=name, range=ends, error=error, kept=tuple(kept))
    assert read(put(tmp_path_factory.getbasetemp(), as_text(profile))) == profile


def test_its_notes_say_where_from_how_good_and_what_is_missing() -> None:
    assert list(PROFILE.notes()) == [
        "cost is that of profile mine, made by batchwright 0.1.0 fit from 600 steps of a.csv",
        "its error on measurements that it was not fitted to: mean of a step 5.1% and total -0.4%",
        "the measurements did not determine past: no step has any, so it is left out",
    ]


def test_an_edit_is_told(tmp_path: Path) -> None:
    found = read(put(tmp_path, as_text(PROFILE).replace("base=0.005", "base=0.004")))
    assert found.is_edited
    assert list(found.notes())[-1].startswith("the profile was edited since it was fitted")


def test_a_comment_is_no_edit(tmp_path: Path) -> None:
    assert not read(put(tmp_path, "# of Tuesday\n" + as_text(PROFILE))).is_edited


FIRST = "schema_version: 1\nname: a\ncost: linear(1)\n"
WRONG = {
    "other": ("workload: chat\n", "is no profile; give a file that batchwright fit -o wrote"),
    "list": ("- 1\n", "is no profile"),
    "empty": ("", "is no profile"),
    "no yaml": ("a: [\n", "is not valid YAML"),
    "old": ("schema_version: 0\ncost: linear(1)\n", "is a profile of schema_version 0, but 1 is read"),
    "unknown key": (f"{FIRST}limit: {{}}\n", "unknown key 'limit'; did you mean 'limits'"),
    "no name": ("schema_version: 1\ncost: linear(1)\n", "is no whole profile: .*name"),
    "limits": (f"{FIRST}limits: {{max_num_seq: 3}}\n", "unknown key 'max_num_seq'; did you mean"),
    "limit of text": (f"{FIRST}limits: {{max_num_seqs: many}}\n", "is no whole profile"),
    "limit of 0": (f"{FIRST}limits: {{max_num_seqs: 0}}\n", "max_num_seqs of limits is 0, but must be at"),
    "range": (f"{FIRST}range: {{tokens: [5, 3]}}\n", "range of tokens is from 5.0 to 3.0"),
    "range nan": (f"{FIRST}range: {{tokens: [1, .nan]}}\n", "range of tokens is from 1.0 to nan"),
    "range of one": (f"{FIRST}range: {{tokens: [1]}}\n", "is no whole profile"),
    "cost": (FIRST.replace("linear", "linaer"), "unknown model 'linaer'; did you mean 'linear'"),
    "cost value": (FIRST.replace("(1)", "(-1)"), "base of linear is -1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_refused_in_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    text, why = WRONG[name]
    file = put(tmp_path, text)
    with pytest.raises(InputError, match=why) as told:
        read(file)
    assert str(told.value).startswith(str(file)) and "\n" not in str(told.value)


def test_a_file_that_is_not_there_is_told_with_what_makes_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file; batchwright fit -o"):
        read(tmp_path / "none.yaml")


FOREIGN = {"utf16": b"\xff\xfe\x00", "nul": b"\x00" * 100, "big": b"a: 1\n" * 400_000}


@pytest.mark.parametrize("raw", FOREIGN.values(), ids=FOREIGN)
def test_foreign_bytes_are_refused(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "p.yaml"
    file.write_bytes(raw)
    with pytest.raises(InputError, match=r"p\.yaml"):
        read(file)


# --- where it holds ----------------------------------------------------------------------


def steps(prefill: list[int], decodes: list[int]) -> dict[str, np.ndarray]:
    return {"prefill_tokens": np.array(prefill), "num_decodes": np.array(decodes)}


def test_what_lies_outside_the_range_is_told_with_its_share() -> None:
    run = steps([0, 0, 600, 0], [1, 40, 8, 32])
    assert beyond(run, PROFILE.range) == (
        "of its steps, 25.0% have more than 512 tokens and 25.0% have more than 32 requests that decode"
    )


def test_steps_that_compute_nothing_do_not_count() -> None:
    run = steps([0, 0], [0, 40])
    assert beyond(run, {"num_decodes": (1.0, 32.0)}) == (
        "of its steps, 100.0% have more than 32 requests that decode"
    )


def test_fewer_than_the_least_are_told_too() -> None:
    assert beyond(steps([0], [2]), {"num_decodes": (4.0, 32.0)}) == (
        "of its steps, 100.0% have fewer than 4 requests that decode"
    )


def test_a_run_inside_the_range_has_nothing_to_tell() -> None:
    assert beyond(steps([0, 500], [32, 12]), PROFILE.range) == ""
    assert beyond(steps([], []), PROFILE.range) == ""
    assert beyond(steps([9_999], [999]), {}) == ""


def test_a_share_that_rounds_to_nothing_is_not_written_as_nothing() -> None:
    run = steps([0] * 9999 + [600], [1] * 10_000)
    assert beyond(run, PROFILE.range) == "of its steps, under 0.1% have more than 512 tokens"
