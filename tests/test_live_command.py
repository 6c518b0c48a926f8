"""`batchwright live` on the mock engine, whose clock is virtual: what is predicted is what is measured."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from batchwright import Limits, Linear
from batchwright.cli.app import run
from batchwright.engines.mock import Mock
from batchwright.engines.work import Work
from batchwright.errors import BatchwrightError, InputError, LimitError
from batchwright.measured.bench import Bench
from batchwright.measured.calibration import calibrate, drift, most_tokens
from batchwright.measured.shapes import shapes
from batchwright.measured.side_by_side import METRICS, Study
from batchwright.measured.words import gain
from batchwright.policies import Static, Vllm, policies
from batchwright.request import Request
from batchwright.workload import Workload
from strategies import for_every_seed

pytestmark = pytest.mark.pure

COST = Linear(0.006, 4e-4, 1e-3, 3e-6, 1e-7)
LOAD = "poisson(rate=8, n=24, prompt=uniform(8,90), output=uniform(2,40), seed=5)"
CLOSED = "closed(clients=5, n=20, think=0.1, prompt=uniform(8,90), output=uniform(2,40))"
SESSIONS = "sessions(rate=3, turns=3, think=0.3, n=8, prompt=uniform(8,30), output=uniform(2,20))"
POLICIES = "static,static(padded=False),dynamic(window=0.2),vllm,orca"


def prompt(r: Request) -> list[int]:
    return [1 + (r.id + i) % 97 for i in range(r.prompt)]


class Machine:
    """A mock engine whose steps take `factor` times as long, and `switch` more after another shape."""

    def __init__(self, engine: Mock) -> None:
        self.engine = engine
        self.capacity = engine.capacity
        self.factor = 1.0
        self.switch = 0.0
        self.tokens = 0  # of the step before

    def now(self) -> float:
        return self.engine.now()

    def sleep(self, until: float) -> None:
        self.engine.sleep(until)

    def run(self, work: Work) -> list[int]:
        begin = self.now()
        tokens = self.engine.run(work)
        if work.rows:
            extra = self.switch if len(work.tokens) != self.tokens else 0.0
            self.tokens = len(work.tokens)
            self.sleep(begin + (self.now() - begin + extra) * self.factor)
        return tokens


def machine_of(cost: Any = COST, blocks: int = 400) -> Machine:
    return Machine(Mock(cost, num_kv_blocks=blocks, max_model_len=160, is_real=False))


def bench_of(machine: Machine, seqs: int = 8, tokens: int = 128) -> Bench:
    asked = Limits(max_num_seqs=seqs, max_num_batched_tokens=tokens, max_model_len=160)
    return Bench(machine, machine.capacity.settle(asked), prompt)


def study_of(bench: Bench, names: str = POLICIES) -> Study:
    return Study(bench, policies(names), None, lambda name: nullcontext())


def silent(text: str, share: float) -> None:
    """Nobody looks."""


# --- calibration ------------------------------------------------------------------------


@pytest.mark.parametrize("seqs", [3, 8, 16])
@pytest.mark.parametrize("tokens", [16, 100, 512])
def test_a_calibrated_machine_is_the_machine(seqs: int, tokens: int) -> None:
    """A burst that the small loads have not seen, and every step of it, is as they say."""

    @for_every_seed(2)
    def check(seed: int) -> None:
        random = Random(seed)
        cost = Linear(random.uniform(1e-3, 1e-2), 3e-4, random.uniform(3e-4, 2e-3), random.uniform(0, 1e-5))
        bench = bench_of(machine_of(cost), seqs, tokens)
        found = calibrate(bench, Workload.open(LOAD), [Vllm(), Static()], silent)
        assert found.fit_error < 1e-6 and found.burst_error < 1e-6 and abs(found.burst_total) < 1e-6
        assert found.step_time.context == pytest.approx(cost.context, abs=1e-12)
        assert drift(bench, found) == pytest.approx(0.0, abs=1e-9)

    check()


def test_steps_as_large_as_those_of_the_policies_are_calibrated() -> None:
    bench, load = bench_of(machine_of(), 8, 128), Workload.open(LOAD)
    greatest = most_tokens(bench.limits, load, [Static(8)])
    assert greatest > 128
    assert calibrate(bench, load, [Static(8)], silent).step_time.most_tokens == greatest


def test_shapes_fit_the_engine() -> None:
    """Whatever its limits, no shape asks for more, and some are left."""

    @for_every_seed(60)
    def check(seed: int) -> None:
        random = Random(seed)
        seqs = random.choice([1, 2, 7, 16])
        longest = random.choice([24, 100, 300])
        blocks = -(-longest // 16) * random.randrange(1, seqs + 1)
        limits = Limits(
            max_num_seqs=seqs, max_num_batched_tokens=64, max_model_len=longest, num_kv_blocks=blocks
        )
        found = list(shapes(limits, random.choice([1, 64, 700])))
        assert found
        for shape in found:
            assert max(p + o for p, o in shape.lengths) <= longest
            assert sum(-(-(p + o) // 16) for p, o in shape.lengths) <= blocks
            assert shape.limits.max_num_seqs == seqs

    check()


def test_drift_is_how_much_slower_the_machine_became() -> None:
    machine = machine_of()
    bench = bench_of(machine)
    found = calibrate(bench, Workload.open(LOAD), [Vllm()], silent)
    for factor in (1.25, 3.0, 1.0):
        machine.factor = factor
        assert drift(bench, found) == pytest.approx(factor - 1, abs=1e-6)


# --- side by side -----------------------------------------------------------------------


@pytest.mark.parametrize("load", [LOAD, CLOSED, SESSIONS])
def test_what_is_predicted_is_what_is_measured(load: str) -> None:
    """Every metric, of every policy, on every load; also where requests follow others, or start alike."""
    machine = machine_of()
    machine.switch = 0.004
    study = study_of(bench_of(machine))
    study.run(Workload.open(load), 2, silent)
    found = study.result()
    assert found is not None
    for name, cells in found.cells.items():
        assert [cell.attempts for cell in cells] == [1, 1]
        for metric in METRICS:
            errors = np.array(found.errors(name, metric))
            assert np.isnan(errors).all() or np.abs(errors).max() < 1e-6, (name, metric)
    steps = [
        (run.steps(), other.steps())
        for run, other in zip(found.predicted.values(), found.measured.values(), strict=True)
    ]
    for predicted, measured in steps:
        for column in ("prefill_tokens", "num_decodes", "running", "waiting", "free_blocks"):
            assert predicted[column].tolist() == measured[column].tolist()


def test_a_run_on_a_machine_that_drifted_is_repeated_with_a_new_calibration() -> None:
    machine = machine_of()
    study = study_of(bench_of(machine), "vllm")
    told: list[str] = []

    def report(text: str, share: float) -> None:
        told.append(text)
        if text.startswith("vllm: 24") and machine.factor == 1.0:
            machine.factor = 1.1

    study.run(Workload.open(LOAD), 1, report)
    found = study.result()
    assert found is not None
    (cell,) = found.cells["vllm"]
    assert cell.attempts == 2 and not cell.has_drifted and len(found.calibrations) == 2
    assert abs(found.error("vllm", "e2e_s.mean")) < 1e-6


def test_a_run_on_a_machine_that_was_slow_only_meanwhile_is_repeated() -> None:
    machine = machine_of()
    study = study_of(bench_of(machine), "vllm")
    was_slow = False

    def report(text: str, share: float) -> None:
        nonlocal was_slow
        if text.startswith("vllm: ") and not was_slow:
            machine.factor = 1.3 if 0.2 < share < 0.9 else 1.0
            was_slow = share >= 0.9

    study.run(Workload.open(LOAD), 1, report)
    found = study.result()
    assert found is not None
    (cell,) = found.cells["vllm"]
    assert cell.attempts == 2 and not cell.has_drifted and len(found.calibrations) == 2
    assert abs(found.error("vllm", "e2e_s.mean")) < 1e-6


def test_pulses_leave_a_run_as_it_is() -> None:
    """The same tokens at the same times, though the engine has computed more."""
    machine = machine_of()
    machine.switch = 0.004
    load, ends = Workload.open(LOAD), []
    for blocks in (machine.capacity.num_kv_blocks, None):
        bench = bench_of(machine)
        machine.capacity = replace(machine.capacity, num_kv_blocks=blocks)
        live, samples = bench.serve(Vllm(), load.requests(16))
        assert bool(samples.pulses) == (blocks is not None)
        ends.append([live.log.seconds("times")[i] for i in range(9)])
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_machine_that_never_rests_is_told_of(attempts: int) -> None:
    machine = machine_of()
    study = study_of(bench_of(machine), "vllm")
    study.attempts = attempts

    def report(text: str, share: float) -> None:
        if text.startswith("vllm: 24"):
            machine.factor *= 1.1

    study.run(Workload.open(LOAD), 1, report)
    found = study.result()
    assert found is not None
    (cell,) = found.cells["vllm"]
    assert cell.attempts == attempts and cell.has_drifted


def test_what_is_complete_stays_when_a_run_is_interrupted() -> None:
    study = study_of(bench_of(machine_of()), "dynamic(window=0.2),vllm")

    def report(text: str, share: float) -> None:
        if text.startswith("vllm: 3 "):
            raise KeyboardInterrupt

    assert study.result() is None
    with pytest.raises(KeyboardInterrupt):
        study.run(Workload.open(LOAD), 3, report)
    found = study.result()
    assert found is not None and list(found.cells) == ["dynamic(window=0.2)"]


def test_an_empty_slot_costs_most_where_rows_are_free() -> None:
    limits = Limits(max_num_seqs=8, max_num_batched_tokens=512, max_model_len=160)
    load = Workload.open(LOAD)
    flat, steep = gain(Linear(0.02), load, limits), gain(Linear(1e-6, 1e-3, 1e-2), load, limits)
    assert flat.dearer == pytest.approx(1.0) and steep.dearer == pytest.approx(8.0, rel=0.01)
    assert flat.gain > steep.gain and steep.gain == pytest.approx(1.0, abs=0.01)


# --- the command ------------------------------------------------------------------------

FLAGS = ["live", LOAD, "--engine", "mock", "--policies", "static,vllm", "--max-num-seqs", "8"]


def printed(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert run([*FLAGS, *flags]) == 0
    return capsys.readouterr().out


def test_both_sides_and_their_error_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys)
    for words in (
        "engine: mock",
        "load average",
        "calibrated on",
        "held out",
        "drifted by +0.0%",
        "threads: ",
    ):
        assert words in text
    rows = dict(re.findall(r"^ ?(E2E mean|TTFT P99|wall) .* ([+-][\d.]+%)", text, flags=re.MULTILINE))
    assert set(rows) == {"E2E mean", "TTFT P99", "wall"}
    assert {cell.lstrip("+-") for cell in rows.values()} == {"0.0%"}


def test_json_says_all_that_the_tables_say(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, "--json", "--repeat", "2"))
    assert set(found["policies"]) == {"static", "vllm"} == set(found["predicted"]["policies"])
    assert found["policies"]["vllm"]["drift"] == pytest.approx([0.0, 0.0], abs=1e-9)
    assert len(found["policies"]["vllm"]["errors_per_load"]["e2e_s.mean"]) == 2
    assert found["machine"]["engine"].startswith("mock")
    assert found["measured"]["num_loads"] == 2


@pytest.mark.parametrize(("slo", "attainment"), [("e2e=1ms", 0.0), ("e2e=900s", 1.0)])
def test_an_slo_that_nobody_or_everybody_meets_is_predicted(
    slo: str, attainment: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "SLO attainment" in printed(capsys, "--slo", slo)
    found = json.loads(printed(capsys, "--slo", slo, "--json"))
    assert found["measured"]["policies"]["vllm"]["attainment"] == attainment
    assert found["policies"]["vllm"]["errors"]["attainment"] == 0.0


def test_a_batch_size_that_is_found_for_the_load_is_told_and_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, "--policies", "static(batch_size=auto)")
    assert "batch_size is" in text and "lowest mean E2E" in text
    assert "drifted by +0.0% (during the run +0.0%)" in text


def test_the_folder_has_a_run_folder_of_each_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "out"
    printed(capsys, "-o", str(folder))
    assert run(["runs", "diff", str(folder / "predicted"), str(folder / "measured"), "--json"]) == 0
    difference = json.loads(capsys.readouterr().out)
    assert difference["settings"] == {}
    assert abs(difference["policies"]["vllm"]["e2e_s.mean"]["difference"]) < 1e-6
    with pytest.raises(InputError, match="is there already"):
        run([*FLAGS, "-o", str(folder)])
    printed(capsys, "-o", str(folder), "--force")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--set", "gpu=H100-SXM"], "gpu is given"),
        (["--set", "cost=constant(0.1)"], "cost is given"),
        (["--engine", "mok"], "did you mean 'mock'"),
        (["--threads", "0"], "at least 1"),
        (["--path", "x"], "no model"),
        (["--kv-cache-dtype", "u8"], "no KV"),
        (["--mock-cost", "linear"], "not of the form"),
        (["--set", "block_size=64"], "blocks of 16"),
        (["--engine", "openvino", "--mock-cost", "constant(1)"], "times of its own"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(flags: list[str], told: str) -> None:
    with pytest.raises(BatchwrightError, match=re.escape(told)) as error:
        run([*FLAGS, *flags])
    assert "\n" not in str(error.value)


def test_every_flag_and_every_key_is_documented(capsys: pytest.CaptureFixture[str]) -> None:
    docs = Path(__file__).resolve().parent.parent / "docs"
    page, of_compare = ((docs / name).read_text(encoding="utf-8") for name in ("live.md", "compare.md"))
    run(["live", "--help"])
    flags = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    assert {"--engine", "--threads", "--max-num-seqs"} <= flags
    assert flags <= set(re.findall(r"`(--[a-z][a-z-]+)`", page + of_compare))
    assert not flags & {"--gpu", "--model", "--tp", "--cost", "--block-size", "--gpu-memory-utilization"}
    found = json.loads(printed(capsys, "--json"))
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page.partition("## JSON")[2], flags=re.MULTILINE)
    assert set(found) == {key for row in rows for key in re.findall(r"\w+", row)}
    for key in (*found["calibrations"][0], *found["policies"]["vllm"], *found["machine"]):
        assert f"`{key}`" in page, key


def test_a_kv_cache_that_holds_no_request_is_refused() -> None:
    with pytest.raises(LimitError, match="cannot fit"):
        run([*FLAGS, "--num-gpu-blocks-override", "3"])


def test_ctrl_c_prints_what_is_complete_and_exits_130(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from batchwright.measured import side_by_side as module\n"
        "told = module.Study._told\n"
        "def interrupted(self, name, predicted):\n"
        "    if name == 'vllm':\n"
        "        raise KeyboardInterrupt\n"
        "    return told(self, name, predicted)\n"
        "module.Study._told = interrupted\n"
        "from batchwright.cli import main\n"
        f"sys.argv = ['batchwright', *{FLAGS!r}, '-o', {str(tmp_path / 'out')!r}]\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 130
    assert " static " in done.stdout and " vllm " not in done.stdout
    assert not list(tmp_path.iterdir())
