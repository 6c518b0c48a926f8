"""The study of AccelMark: its loads, its rows, and what it promises."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pytest

from batchwright.accuracy import accelmark
from batchwright.accuracy.accelmark import ENGINES, output_at, prompt_at, requests, study, tpot
from batchwright.errors import InputError

HEAD = "suite,chip,chips,framework,fw_version,precision,target_qps,tpot_ms_p50"
ROWS = (
    "suite_A,NVIDIA H100 80GB HBM3,1,vLLM,0.7.3,BF16,5,8.0",
    "suite_A,NVIDIA GeForce RTX 3090,1,vLLM,0.7.3,BF16,5,20.0",
    "suite_A,NVIDIA H100 80GB HBM3,1,vLLM,0.7.3,BF16,25,8.0",  # another rate
    "suite_A,NVIDIA H100 80GB HBM3,1,vLLM,0.7.3,FP16,5,8.0",  # another precision
    "suite_F,NVIDIA H100 80GB HBM3,1,vLLM,0.7.3,BF16,5,8.0",  # another model
    "suite_A,NVIDIA H100 80GB HBM3,8,vLLM,0.7.3,BF16,5,8.0",  # several GPUs
    "suite_A,Tesla V100S-PCIE-32GB,1,vLLM,0.7.3,BF16,5,8.0",  # a GPU that is not known
    "suite_A,NVIDIA H100 80GB HBM3,1,vllm-ascend,0.18,BF16,5,8.0",  # an engine that is not
)
DATA = os.environ.get("BATCHWRIGHT_DATA")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in the same format, and shorter runs."""
    monkeypatch.setattr(accelmark, "ONLINE", 40)
    monkeypatch.setattr(accelmark, "ALONE", 5)
    monkeypatch.setattr(accelmark, "SEEDS", 1)
    folder = tmp_path / "accelmark"
    folder.mkdir()
    for name in ("interactive_bs1.csv", "online_poisson_qps.csv"):
        (folder / name).write_text("\n".join([HEAD, *ROWS]), encoding="utf-8")
    return tmp_path


def test_lengths_have_the_quantiles_and_means_that_are_published():
    places = [(i + 0.5) / 2000 for i in range(2000)]
    prompts, outputs = [prompt_at(p) for p in places], [output_at(p) for p in places]
    assert fmean(prompts) == pytest.approx(256, rel=0.01) and fmean(outputs) == pytest.approx(349, rel=0.01)
    for place, tokens in ((0.25, 120), (0.5, 280), (0.75, 580), (0.99, 2100)):
        assert prompt_at(place) == pytest.approx(0.54 * tokens, abs=1)
    assert max(outputs) == 512 and median(outputs) == pytest.approx(1.13 * 310, rel=0.01)


def test_loads_of_other_seeds_hold_the_same_lengths_in_another_order():
    a, b = (requests(60, np.arange(60.0), seed) for seed in (1, 2))
    assert sorted(a.prompt) == sorted(b.prompt) and list(a.prompt) != list(b.prompt)


def test_only_rows_of_the_suite_that_can_be_predicted_are(small):
    found = study(small)
    whats = [row.what for row in found.rows]
    assert whats[:2] == ["H100-SXM, vLLM 0.7.3, batch 1", "RTX-3090, vLLM 0.7.3, batch 1"]
    assert whats[-2:] == ["H100-SXM, vLLM 0.7.3, 5 requests/s", "RTX-3090, vLLM 0.7.3, 5 requests/s"]
    assert [row.bound for row in found.rows if "RTX-3090" in row.what] == [float("inf")] * 2
    assert all(row.bound == 0.25 for row in found.rows if "H100" in row.what)
    assert found.calibration.startswith("none")


def test_a_host_that_does_not_overlap_adds_its_time_to_every_step():
    load = requests(3, np.arange(3) * 100.0, seed=0)
    slow = tpot("H100-SXM", ENGINES["vLLM", "0.7"], load)
    fast = tpot("H100-SXM", ENGINES["vLLM", "0.20"], load)
    assert slow - fast == pytest.approx(1.27e-3 + 5.6e-5, rel=0.01)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InputError, match=r"interactive_bs1\.csv: cannot be read"):
        study(tmp_path)


@pytest.mark.skipif(DATA is None, reason="BATCHWRIGHT_DATA names no folder of measurements")
def test_what_is_promised_of_the_measurements_holds():
    rows = study(Path(DATA or "") / "measured").rows
    promised = [row for row in rows if row.bound < 1]
    assert len(promised) == 13 and all(row.holds for row in promised)
