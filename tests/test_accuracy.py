"""The accuracy page: what it shows of a study, and what it says of data that are not there."""

from __future__ import annotations

import json
import os
from importlib import import_module
from math import inf
from pathlib import Path
from pkgutil import iter_modules
from types import SimpleNamespace

import pytest

from batchwright import accuracy
from batchwright.accuracy import studies
from batchwright.accuracy.claims import CLAIMS
from batchwright.accuracy.page import GENERATED, anchor, kept, page
from batchwright.accuracy.sarathi import chunked, prompt, roofline, study
from batchwright.accuracy.studies import STUDIES, Entry, Found, run_all
from batchwright.accuracy.study import Row, Study
from batchwright.errors import InputError
from test_cli import Command, command, good, refusal

pytestmark = pytest.mark.pure
__all__ = ["command"]  # a fixture

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "accuracy.md"


def row(predicted: float, measured: float, bound: float = inf, **others: float) -> Row:
    return Row(
        what="TPOT mean", unit="ms", predicted=predicted, measured=measured, bound=bound, others=others
    )


def found(*rows: Row, missing: tuple[Entry, ...] = ()) -> Found:
    one = Study(title="One: a run", source="us", calibration="none", rows=rows, wrong=("too slow",))
    return Found(studies=(one,), missing=missing)


def sarathi(data: Path) -> Path:
    """Files of the published form, with few rows and times of our own."""
    folder = data / "measured" / "sarathi_osdi24"
    folder.mkdir(parents=True)
    files = {
        "figure-2_prefill.csv": "batch_num_prefill_tokens,batch_execution_time\n1024,0.2\n",
        "figure-2_decode.csv": "batch_num_decode_tokens,batch_execution_time\n1,0.04\n11,0.05\n",
        "figure-9_chunking-overhead.csv": "prefill_length,chunk_size,prefill_execution_time_relative\n"
        "1024,512,1.1\n1024,16384,1.0\n",
        "table-2_results.csv": "batch_size,batch_execution_time,linear,attention\n4,60,20,5\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return data


# --- the page ----------------------------------------------------------------------------


def test_a_promise_that_is_kept_and_one_that_is_missed_look_different() -> None:
    text = page(found(row(10.4, 10.0, 0.05), row(8.0, 10.0, 0.05), row(1.0, 1.0)))
    assert "| TPOT mean | ms | 10.4 | 10.0 | +4.0% | 5% |" in text
    assert "| TPOT mean | ms | 8.00 | 10.0 | -20.0% | 5% **missed** |" in text
    assert "| TPOT mean | ms | 1.00 | 1.00 | +0.0% |  |" in text
    assert "| [One: a run](#one-a-run) | 3 | 4.0% | -20.0% | **1 of 2** |" in text
    assert kept(found(row(1.0, 1.0)).studies[0]) == "none given"


def test_what_other_simulators_predicted_of_the_same_run_stands_beside_it() -> None:
    text = page(found(row(10.0, 10.0, other=11.0), row(1.0, 1.0)))
    assert "| error | other |" in text
    assert "| +0.0% | 11.0 (+10.0%) |" in text and "| +0.0% |  |" in text


def test_where_it_is_wrong_and_what_was_not_run_are_said() -> None:
    text = page(found(row(1.0, 1.0), missing=(Entry("later", "files"),)))
    assert "Where it is wrong:\n\n- too slow" in text
    assert "## Not run\n\n- `later`: the data have no `files`" in text
    assert GENERATED in text and all(claim.simulator in text and claim.source in text for claim in CLAIMS)


def test_an_anchor_is_what_markdown_makes_of_the_title() -> None:
    assert anchor("Sarathi-Serve: steps of Yi-34B, two A100") == "sarathi-serve-steps-of-yi-34b-two-a100"
    assert anchor("vLLM 0.19 - a run") == "vllm-019-a-run"


def test_every_claim_says_where_it_stands_and_whether_it_compares() -> None:
    for claim in CLAIMS:
        assert claim.source and claim.of and claim.says
        assert claim.compared.split()[0].rstrip(":") in ("directly", "no", "in", "with")


# --- the studies -------------------------------------------------------------------------


def test_every_study_is_in_the_table_once() -> None:
    names = [module.name for module in iter_modules(accuracy.__path__)]
    modules = {name: import_module(f"batchwright.accuracy.{name}") for name in names}
    assert sorted(entry.module for entry in STUDIES) == sorted(
        name for name, module in modules.items() if callable(getattr(module, "study", None))
    )


def test_measurements_that_are_missing_are_named_and_refused_if_all_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Entry("other", "elsewhere")
    mine = (Entry("kv_blocks", ""), Entry("sarathi", "sarathi_osdi24"), other)
    twice = (*mine, Entry("another", "elsewhere"))
    monkeypatch.setattr(studies, "STUDIES", mine)
    data = sarathi(tmp_path)
    assert run_all(data).missing == (other,)
    assert run_all(data / "measured").studies == run_all(data).studies
    with pytest.raises(InputError, match="has no elsewhere"):
        run_all(data, strict=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no sarathi_osdi24, elsewhere"):
        run_all(tmp_path / "empty")
    monkeypatch.setattr(studies, "STUDIES", twice)
    with pytest.raises(InputError, match="has no sarathi_osdi24, elsewhere; give"):
        run_all(tmp_path / "empty")
    with pytest.raises(InputError, match="is no folder"):
        run_all(tmp_path / "nowhere")


def test_sarathi_is_the_roofline_beside_what_was_measured(tmp_path: Path) -> None:
    rows = {one.what: one for one in study(sarathi(tmp_path) / "measured").rows}
    cost = roofline()
    one = rows["prompt of 1,024 tokens"]
    assert (one.predicted, one.measured) == (1e3 * cost.seconds(prompt(1024)), 200.0)
    # 34.39e9 parameters but the embedding's 0.46e9, less the head's for all tokens but one, over both GPUs
    matrices = 2 * 1024 * 33.47e9 / (2 * 312e12 * 0.6)
    assert cost.seconds(prompt(1024)) == pytest.approx(matrices, rel=0.1)
    assert set(rows) == {
        "prompt of 1,024 tokens",
        "1 decode",
        "11 decodes",
        "prompt of 1,024 tokens in chunks of 512, over the same at once",
    }
    wrong = study(tmp_path / "measured").wrong
    assert "60.0 ms, the engine's own timers put 25.0 ms in matrices" in wrong[0] and "35.0 ms" in wrong[0]
    assert "Each further decode takes 1.00 ms there" in wrong[1]


def test_chunks_add_up_to_the_prompt() -> None:
    cost = roofline()
    parts = [prompt(512), prompt(512, past=512), prompt(76, past=1024)]
    assert chunked(cost, 1100, 512) == sum(cost.seconds(part) for part in parts)
    assert sum(part.prefill_attention for part in parts) == prompt(1100).prefill_attention


def test_a_file_that_is_broken_is_one_line(tmp_path: Path, command: Command) -> None:
    folder = sarathi(tmp_path / "data") / "measured" / "sarathi_osdi24"
    (folder / "figure-2_decode.csv").write_text("", encoding="utf-8")
    assert "figure-2_decode.csv: has no row" in refusal(command("accuracy", "data"))
    (folder / "figure-2_decode.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    assert "figure-2_decode.csv: has no" in refusal(command("accuracy", "data"))


# --- the command -------------------------------------------------------------------------


def test_the_page_is_written_whole_and_kept_unless_forced(tmp_path: Path, command: Command) -> None:
    sarathi(tmp_path / "data")
    printed = good(command("accuracy", "data"))
    assert printed.startswith("# Accuracy\n")
    assert "page.md: " in good(command("accuracy", "data", "-o", "page.md"))
    assert Path("page.md").read_text(encoding="utf-8") == printed
    assert "is there already" in refusal(command("accuracy", "data", "-o", "page.md"))
    good(command("accuracy", "data", "-o", "page.md", "--force"))


def test_an_interrupted_page_is_not_there(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    sarathi(tmp_path / "data")

    def interrupt(data: Path) -> Study:
        raise KeyboardInterrupt

    monkeypatch.setattr(studies, "import_module", lambda name: SimpleNamespace(study=interrupt))
    assert command("accuracy", "data", "-o", "page.md").status == 130
    assert not Path("page.md").exists()


def test_json_has_every_number(tmp_path: Path, command: Command) -> None:
    sarathi(tmp_path / "data")
    printed = json.loads(good(command("accuracy", "data", "--json")))
    assert printed["studies"][0]["title"] == "KV blocks of vLLM"
    rows = printed["studies"][-1]["rows"]
    assert len(rows) == 4 and rows[0]["bound"] is None and rows[0]["holds"] is True
    assert rows[0]["error"] == pytest.approx(rows[0]["predicted"] / rows[0]["measured"] - 1)


def test_the_page_of_the_documentation_is_a_made_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert GENERATED in text and "## What other simulators report" in text


@pytest.mark.skipif("BATCHWRIGHT_DATA" not in os.environ, reason="BATCHWRIGHT_DATA names no folder of data")
def test_the_page_of_the_documentation_is_what_the_data_give() -> None:
    assert page(run_all(Path(os.environ["BATCHWRIGHT_DATA"]), strict=True)) == PAGE.read_text(
        encoding="utf-8"
    )
