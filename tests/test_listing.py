"""The Python interface is as it was designed, and importing it is cheap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import batchwright as bw

HEAVY = ("numpy", "rich", "typer", "yaml")
ROWS = [f"2023-11-16 18:{second // 60:02}:{second % 60:02}.{second % 10}000000,{90 + 37 * second % 800},"
        f"{1 + 13 * second % 90}" for second in range(120)]  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "conv.csv"
    path.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *ROWS]) + "\n", encoding="utf-8")
    return path


def my_policy(b: bw.Batch) -> None:
    """One request at a time."""
    if b.edits == 0 and b.num_running == 0 and b.num_waiting > 0:
        b.admit(b.waiting.first(), b.waiting.first().prompt)


def test_the_listing_of_the_design_runs_and_prints(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load = bw.Workload.open(trace, max_tokens=2048)
    cost = bw.Roofline(gpu="H100-SXM", model="llama-3.1-8b", tp=1)
    limits = bw.Limits(max_num_seqs=256, max_num_batched_tokens=2048)
    runs = bw.compare(load, cost, limits, {"static": bw.static(32), "vllm": bw.vllm(), "mine": my_policy})
    print(runs.table())
    print(runs["vllm"] - runs["static"])
    printed = capsys.readouterr().out
    assert printed.split()[:3] == ["static", "vllm", "mine"] and "TTFT P99" in printed
    assert "vllm - static, mean of paired differences with 95 % interval" in printed
    assert (runs["vllm"] - runs["static"]).metric("ttft_s").high < 0  # nobody waits for a batch to fill

    requests, steps = runs["vllm"].requests(), runs["vllm"].steps()
    assert len(requests["ttft_s"]) == 120 and (requests["ttft_s"] > 0).all()
    assert len(steps["step"]) == runs["vllm"].summary.num_steps > 120
    assert np.array_equal(requests["output_tokens"], load.output)
    assert runs["mine"].summary.mean_batch == pytest.approx(1.0)

    sim = bw.Simulator(bw.vllm(), cost, limits)
    request = bw.Request(id=0, arrival=1.0, prompt=100, output=10_000)
    sim.submit(request)
    sim.advance(until=3.0)
    assert 1.0 < request.first_token < sim.now <= 3.0 and request.finished == 0.0
    sim.advance()
    assert request.finished == sim.now or request.finished < sim.now
    assert request.finished > 10.0


@pytest.mark.parametrize("name", bw.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(bw, name) is not None


def test_public_names_are_listed_once_and_complete() -> None:
    assert sorted(set(bw.__all__)) == sorted(bw.__all__) == sorted(bw._PLACES)
    assert bw.continuous is bw.vllm
    namespace: dict[str, object] = {}
    exec("from batchwright import *", namespace)
    assert set(bw.__all__) <= set(namespace)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'statik'"):
        _ = bw.statik
    assert not hasattr(bw, "Simulater")


def loaded_after(code: str) -> set[str]:
    """Top-level modules that are loaded after `code` has run in a fresh interpreter."""
    script = f"{code}\nimport sys\nprint('LOADED', *sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.rpartition("LOADED ")[2].split()}


def test_importing_the_package_imports_nothing_heavy() -> None:
    loaded = loaded_after("import batchwright; batchwright.__version__")
    assert "batchwright" in loaded and not loaded & set(HEAVY)


def test_the_core_imports_the_standard_library_alone() -> None:
    loaded = loaded_after("from batchwright import Batch, Constant, Limits, Request, Simulator, static, vllm")
    assert "batchwright" in loaded and not loaded & set(HEAVY)


def test_a_name_that_needs_numpy_brings_it() -> None:
    assert "numpy" in loaded_after("from batchwright import compare")


@pytest.mark.parametrize("arguments", [["--help"], ["compare", "--help"], ["version"]])
def test_help_does_not_wait_for_numpy(arguments: list[str]) -> None:
    loaded = loaded_after(
        f"import sys\nsys.argv = ['batchwright', *{arguments}]\nfrom batchwright.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0"
    )
    assert "typer" in loaded and not loaded & {"numpy", "yaml"}
