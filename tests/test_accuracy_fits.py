"""The studies that rest on fits: on the measurements where they are, and on files made by a known law."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="needs the extra fit")

from batchwright import Fitted
from batchwright.accuracy import argonne, cpu_steps, splitwise
from batchwright.accuracy.study import Study
from batchwright.errors import InputError

pytestmark = pytest.mark.pure

DATA = os.environ.get("BATCHWRIGHT_DATA")
with_data = pytest.mark.skipif(DATA is None, reason="BATCHWRIGHT_DATA names no folder of measurements")
STUDIES = {"cpu_steps": cpu_steps, "splitwise": splitwise, "argonne": argonne}


@with_data
@pytest.mark.parametrize("name", STUDIES)
def test_every_promise_is_kept_on_the_measurements(name: str) -> None:
    study: Study = STUDIES[name].study(Path(DATA or "") / "measured")
    promised = [row for row in study.rows if row.bound < 1]
    assert promised and [row.what for row in promised if not row.holds] == []
    assert study.wrong


@pytest.mark.parametrize("name", STUDIES)
def test_a_folder_without_the_file_is_told(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=str(tmp_path)):
        STUDIES[name].study(tmp_path)


# --- made by a known law -----------------------------------------------------------------

LAW = Fitted([(0, 0.01), (64, 0.016)], context=5e-8)
HEADER = "Hardware,Num of Hardware,Framework,Model,Input Output Length,Batch Size,Latency,Throughput\n"


def argonne_file(folder: Path, slow: float = 1.0) -> Path:
    """Runs that take what `LAW` says, but those of one batch that does not fit, `slow` times as long."""
    rows = []
    for size in (1, 16, 32, 64):
        for length in (128, 2048):
            run = argonne._run(size, length, LAW)
            seconds = float(run.requests()["finished_s"].max())
            seconds *= slow if size == 64 and length == 2048 else 1.0
            rows.append(f"Nvidia A100 GPU,1,vLLM,meta-llama/Meta-Llama-3-8B,{length},{size},{seconds!r},0\n")
    rows.append("Nvidia A100 GPU,1,llama.cpp,meta-llama/Meta-Llama-3-8B,128,1,99,0\n")
    file = folder / argonne.FILE
    file.parent.mkdir()
    file.write_bytes(gzip.compress((HEADER + "".join(rows)).encode()))
    return folder


def test_batches_that_follow_a_law_are_predicted_by_it(tmp_path: Path) -> None:
    study = argonne.study(argonne_file(tmp_path))
    assert len(study.rows) == 2
    assert all(abs(row.error) < 1e-6 for row in study.rows)


def test_a_batch_that_does_not_fit_the_memory_is_left_out_and_told(tmp_path: Path) -> None:
    study = argonne.study(argonne_file(tmp_path, slow=3.0))
    assert all(abs(row.error) < 1e-6 for row in study.rows)
    assert any("64 requests of 4,096 tokens on 1 x A100" in line for line in study.wrong)


def splitwise_file(folder: Path) -> Path:
    titles = "model,hardware,prompt_size,batch_size,token_size,token_time,e2e_time,tensor_parallel\n"
    rows = []
    for gpu in (*splitwise.GPUS, splitwise.CAPPED):
        for batch in (1, 2, 4, 8, 16, 32, 64):
            for prompt in (128, 256, 512, 1024, 2048, 4096, 8192, 8192, 8192):
                token = 40 + 0.3 * batch + 2e-4 * batch * (prompt + 64)
                rows.append(f"llama2-70b,{gpu},{prompt},{batch},128,{token!r},{token * 128!r},8\n")
    file = folder / splitwise.FILE
    file.parent.mkdir()
    file.write_text(titles + "".join(rows), encoding="utf-8")
    return folder


def test_decode_times_that_follow_a_law_are_fitted_by_it(tmp_path: Path) -> None:
    study = splitwise.study(splitwise_file(tmp_path))
    assert len(study.rows) == 2 * 8
    assert all(abs(row.error) < 1e-6 for row in study.rows)
    assert any("0 of 63 runs were over before" in line for line in study.wrong)
    assert any("number for number" in line for line in study.wrong)
