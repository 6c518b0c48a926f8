"""A machine that is uneven is calibrated during the run, and the run is none the wiser."""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace
from math import sin

import numpy as np
import pytest

from batchwright import Limits, Linear
from batchwright.cli.app import run
from batchwright.engines.mock import Mock
from batchwright.engines.work import Work
from batchwright.errors import InputError
from batchwright.measured.bench import Bench
from batchwright.measured.calibration import calibrate
from batchwright.measured.pace import Pace
from batchwright.measured.samples import Samples
from batchwright.measured.side_by_side import METRICS, SideBySide, Study
from batchwright.measured.step_time import StepTime, tokens_of
from batchwright.measured.tape import Replay, Tape
from batchwright.policies import Static, Vllm, policies
from batchwright.request import Request
from batchwright.step import Step
from batchwright.workload import Workload
from strategies import for_every_seed

pytestmark = pytest.mark.pure

COST = Linear(0.006, 4e-4, 1e-3, 3e-6, 1e-7)
LOAD = "poisson(rate=8, n=60, prompt=uniform(8,90), output=uniform(2,40), seed=5)"
POLICIES = "static(padded=False),dynamic(window=0.2),vllm,orca"
BLOCKS = 80  # of a run


def prompt(r: Request) -> list[int]:
    return [1 + (r.id + i) % 97 for i in range(r.prompt)]


class Uneven:
    """A mock engine that is `swing` slower and faster, by turns of some seconds.

    Steps take `switch` more after one of another number of tokens.  `blocks`: all that were ever written.
    """

    def __init__(self, swing: float, switch: float = 0.004) -> None:
        self.engine = Mock(COST, num_kv_blocks=2 * BLOCKS, max_model_len=160, is_real=False)
        self.capacity = self.engine.capacity
        self.swing = swing
        self.switch = switch
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
            factor = 1 + self.swing * sin(begin / 3) + self.swing * sin(begin / 29)
            self.sleep(begin + (self.now() - begin + extra) * factor)
        return tokens


def bench_of(engine: Uneven) -> Bench:
    own = replace(engine.capacity, num_kv_blocks=BLOCKS)
    asked = Limits(max_num_seqs=8, max_num_batched_tokens=128, max_model_len=160)
    return Bench(engine, own.settle(asked), prompt)


def studied(engine: Uneven, meanwhile: bool, names: str = POLICIES) -> SideBySide:
    study = Study(bench_of(engine), policies(names), None, lambda name: nullcontext(), 1, meanwhile)
    study.run(Workload.open(LOAD), 2, lambda text, share: None)
    found = study.result()
    assert found is not None
    return found


def taped(engine: Uneven) -> Tape:
    tape = Tape()
    calibrate(bench_of(engine), Workload.open(LOAD), [Vllm(), Static()], lambda text, share: None, tape)
    return tape


def test_an_uneven_machine_is_predicted_from_what_it_was_meanwhile() -> None:
    found = studied(Uneven(0.3), meanwhile=True)
    errors, before = defaultdict(list), defaultdict(list)
    for name in found.cells:
        for metric in ("duration_s", "e2e_s.mean", "ttft_s.mean", "e2e_s.p99"):
            errors[metric] += np.abs(found.errors(name, metric)).tolist()
            before[metric] += np.abs(found.errors_before(name, metric)).tolist()
        for cell in found.cells[name]:
            assert cell.pace is not None
            low, high = cell.pace.range()
            assert 0.3 < low < high < 1.7 and abs(cell.step_error) < 0.06
            assert not cell.has_drifted and cell.attempts == 1
    assert max(errors["duration_s"]) < 0.03
    assert sum(map(sum, errors.values())) < sum(map(sum, before.values())) / 2


def test_an_even_machine_is_predicted_as_well_as_before() -> None:
    found = studied(Uneven(0.0), meanwhile=True)
    assert found.is_meanwhile and not studied(Uneven(0.0), meanwhile=False, names="vllm").is_meanwhile
    for name in found.cells:
        for metric in METRICS:
            errors = np.array(found.errors(name, metric))
            assert np.isnan(errors).all() or np.abs(errors).max() < 1e-6, (name, metric)


def test_a_run_is_what_it_would_have_been() -> None:
    """On an even machine: the same instants, and the same tokens, which hang on all KV that was written."""
    load, found = Workload.open(LOAD), []
    for is_replayed in (False, True):
        engine = Uneven(0.0)
        replay = Replay(engine, taped(engine)) if is_replayed else None
        for policy in policies(POLICIES).values():
            live, samples = bench_of(engine).serve(policy, load.requests(16), between=replay)
            found.append((live.log.seconds("times").tolist(), samples.seconds))
        assert replay is None or len(replay.found) > 200
    half = len(found) // 2
    for (times, seconds), (other_times, other_seconds) in zip(found[:half], found[half:], strict=True):
        assert times == pytest.approx(other_times, abs=1e-9)
        assert seconds == pytest.approx(other_seconds, abs=1e-9)


def test_what_is_computed_beside_a_run_leaves_its_kv_alone() -> None:
    load, found = Workload.open(LOAD), []
    for is_replayed in (False, True):
        engine = Uneven(0.0)
        replay = Replay(engine, taped(engine)) if is_replayed else None
        tokens: dict[int, list[int]] = {}

        def keep(live, tokens=tokens):
            for s in live.ended:
                tokens[s.request.id] = list(s.tokens)

        live_of(engine, load, replay, keep)
        assert len(tokens) == len(load)
        found.append(tokens)
    assert found[0] == found[1]


def live_of(engine, load, replay, keep) -> None:
    from batchwright.engines.live import Live
    from batchwright.engines.sequence import Sequence
    from batchwright.measured.recorder import Recorder

    bench = bench_of(engine)
    recorder = Recorder(engine, replay)
    live = Live(Vllm(), recorder, bench.limits, COST, lambda r: Sequence(r, prompt(r), r.true_output))
    live.feed(load.requests(16))
    while live.step() or live.wait():
        keep(live)
        live.ended.clear()


def test_a_tape_has_the_steps_of_the_calibration_in_blocks_of_its_own() -> None:
    engine = Uneven(0.0)
    tape = taped(engine)
    for works, samples in zip((tape.small, tape.burst), tape.measured, strict=True):
        assert 0 < len(works) <= len(samples)
        for work, step, seconds in zip(works, samples.steps, samples.seconds, strict=False):
            again = Step()
            work.measure(again)
            for name in Step.__slots__:
                assert getattr(again, name) == getattr(step, name), name
            assert seconds > 0 and tokens_of(again) == len(work.tokens)
            blocks = [block for s in work.rows for block in s.table]
            assert len(blocks) == len(set(blocks))
            assert all(BLOCKS <= block < 2 * BLOCKS for block in blocks)


def line(base: float) -> StepTime:
    from batchwright.cost.line import Line

    flat = Line((0.0, 1.0), (0.0, 0.0))
    shared = Line((1.0, 2.0), (base, base))
    nothing = dict.fromkeys(("chunk", "decode", "context", "pair", "switch", "chunk_switch"), 0.0)
    return StepTime(shared=shared, head=flat, most_tokens=9, **nothing)


@for_every_seed(50)
def test_the_pace_is_that_of_the_steps_around(seed: int) -> None:
    """Twice as slow in the second half; between the values always."""
    random = np.random.default_rng(seed)
    half = random.uniform(5, 40)
    beside = Samples()
    for end in np.sort(random.uniform(0, 2 * half, 400)).tolist():
        step = Step()
        step.quiet(1, 0, 5)
        beside.steps.append(step)
        beside.switches.append(False)
        beside.ends.append(end)
        beside.seconds.append(0.02 if end < half else 0.04)
    pace = Pace.of(beside, line(0.02))
    assert pace is not None
    assert pace.at(0.0) == pytest.approx(1.0, abs=0.05) and pace.at(3 * half) == pytest.approx(2.0, abs=0.05)
    assert all(1 - 1e-9 <= pace.at(at) <= 2 + 1e-9 for at in random.uniform(0, 2 * half, 50))
    assert pace.at(half - 4.5) < 1.1 and pace.at(half + 4.5) > 1.9
    assert 1 <= pace.range()[0] < 1.15 and 1.85 < pace.range()[1] <= 2


def test_no_steps_beside_a_run_tell_no_pace() -> None:
    assert Pace.of(Samples(), line(0.01)) is None


def test_a_pause_counts_so_much_and_no_more() -> None:
    beside = Samples()
    for i in range(100):
        step = Step()
        step.quiet(1, 0, 5)
        beside.steps.append(step)
        beside.switches.append(False)
        beside.ends.append(i / 10)
        beside.seconds.append(5.0 if i == 50 else 0.01)
    pace = Pace.of(beside, line(0.01))
    assert pace is not None and max(pace.at(at / 4) for at in range(40)) < 1.2


def test_engines_with_slots_are_refused() -> None:
    from pathlib import Path

    from batchwright.engines.choose import Loading, load_engine

    with pytest.raises(InputError, match="has slots"):
        loading = Loading(max_num_seqs=4, max_model_len=64, copies=2, gguf=Path("model.gguf"))
        load_engine("llamacpp", loading)


def test_the_command_says_what_was_calibrated_when(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["live", LOAD, "--engine", "mock", "--policies", "vllm", "--max-num-seqs", "8"]
    assert run([*flags, "--calibration", "meanwhile"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "all steps together" in text and "took 1.00 to 1.00 times as long" in text
    assert "predicted before the run, the errors were wall +0.0%" in text
    assert run([*flags, "--calibration", "meanwhile", "--policies", "static(batch_size=auto)"]) == 0
    assert "batch_size is" in capsys.readouterr().out
    assert run(flags) == 0
    assert "meanwhile" not in capsys.readouterr().out
    with pytest.raises(InputError, match="--calibration is 'never', but must be before or meanwhile"):
        run([*flags, "--calibration", "never"])
