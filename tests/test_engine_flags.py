"""The flags that choose an engine: what it is loaded with, and what policies are told that a step takes."""

# ruff: noqa: E402  what reads a model's text may not be installed: then there is nothing to import
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

for module in ("tokenizers", "jinja2"):
    pytest.importorskip(module, reason="needs the extra live or llamacpp")

from batchwright import Limits, Linear, Request
from batchwright.checkpoint.folder import write_tokenizer
from batchwright.checkpoint.gguf import read_gguf
from batchwright.checkpoint.places import DEFAULT, DEFAULT_GGUF, IR
from batchwright.cli.engine import EngineFlags, ready
from batchwright.cli.model import cache_folder
from batchwright.cli.serve import driver, model_of, policy_of_flags
from batchwright.cli.serve_cost import LEAST, load_within
from batchwright.cli.serve_flags import ServeFlags
from batchwright.engines import choose
from batchwright.engines.choose import Loaded, Loading, load_engine
from batchwright.engines.libllama import open_library
from batchwright.engines.live import Live
from batchwright.engines.llamacpp import LlamaCpp
from batchwright.engines.mock import Mock
from batchwright.engines.openvino import OpenVino
from batchwright.engines.sequence import Sequence
from batchwright.errors import EngineError, InputError, PolicyError
from batchwright.step import Step
from small_checkpoint import byte_level_keys, weights, write_gguf
from strategies import for_every_seed

pytestmark = pytest.mark.pure

COST = Linear(base=0.004, prefill=2e-4, decode=1e-3, context=2e-6)
ASKS = str(Path(__file__).resolve().parent.parent / "examples" / "custom_policy.py")


def folder_of(place: Path, file_type: int = 1, name: str = "small.gguf") -> Path:
    """A model's folder with all that an engine may need; the IR is empty."""
    place.mkdir(parents=True, exist_ok=True)
    keys = byte_level_keys(context_length=4096, file_type=file_type)
    write_tokenizer(read_gguf(write_gguf(place / name, keys, weights())), place)
    (place / IR).touch()
    return place


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's own model."""
    return folder_of(tmp_path_factory.mktemp("own") / "small")


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody names a library."""
    monkeypatch.delenv("LLAMA_CPP_LIB", raising=False)


def flags_of(engine: str, path: Path | None, cache: Path, **given: Any) -> EngineFlags:
    unset: dict[str, Any] = {"threads": 1, "kv_cache_dtype": None, "weights": None, "mock_cost": None}
    return EngineFlags(engine=engine, path=path, cache=cache, **{**unset, "exact": False, **given})


# --- exact ------------------------------------------------------------------------------


class Stop(Exception):
    """The engine need not be loaded."""


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("name", "engine"), [("openvino", OpenVino), ("llamacpp", LlamaCpp)])
def test_exact_reaches_the_engine(
    name: str, engine: type, exact: bool, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def load(*_: object, **asked: Any) -> None:
        given.update(asked)
        raise Stop

    monkeypatch.setattr(engine, "load", load)
    loading = Loading(ir=own / IR, gguf=own / "small.gguf", max_num_seqs=2, max_model_len=64, exact=exact)
    with pytest.raises(Stop):
        load_engine(name, loading)
    assert given["exact"] is exact
    if name == "openvino":
        assert given["kv_cache_precision"] == ("f16" if exact else "u8")


def test_exact_with_another_kv_cache_is_the_engines_own_error(own: Path) -> None:
    loading = Loading(ir=own / IR, max_num_seqs=2, max_model_len=64, exact=True, kv_cache_dtype="u8")
    with pytest.raises(InputError, match="give 'f16'"):
        load_engine("openvino", loading)


@pytest.mark.parametrize("threads", [None, 1])
@pytest.mark.parametrize("cpus", [1, 2, 64])
def test_openvino_is_exact_with_one_thread(
    threads: int | None, cpus: int, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cpus)
    assert ready(flags_of("openvino", own, tmp_path, exact=True, threads=threads)).threads == 1
    most = max(cpus - 1, 1)
    assert ready(flags_of("openvino", own, tmp_path, threads=threads)).threads == (threads or most)


@pytest.mark.parametrize("threads", [2, 64])
def test_openvino_is_not_exact_with_more(threads: int, own: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"--threads is {threads}, .* give --threads 1"):
        ready(flags_of("openvino", own, tmp_path, exact=True, threads=threads))


def test_the_mock_engine_is_exact_anyway(tmp_path: Path) -> None:
    chosen = ready(flags_of("mock", None, tmp_path, exact=True))
    assert chosen.load(2, 64, None).words == "mock, virtual clock"


@pytest.mark.parametrize("file_type", [0, 1, 2, 3, 7, 32])
@pytest.mark.parametrize("asked", [None, "q4_0", "q8_0", "f16", "bf16"])
def test_llama_cpp_is_exact_with_quantised_weights_only(
    asked: str | None, file_type: int, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path / "m", file_type)
    flags = flags_of("llamacpp", folder, tmp_path / "cache", weights=asked, exact=True)
    is_quantised = asked in ("q4_0", "q8_0") if asked else file_type in (2, 3, 7)
    if is_quantised:
        assert ready(flags).weights == asked
        return
    with pytest.raises(InputError, match="give --weights q8_0"):
        ready(flags)


# --- weights and library ----------------------------------------------------------------


def test_the_default_model_gets_q4_0_and_the_users_own_is_taken_as_it_is(own: Path, tmp_path: Path) -> None:
    folder_of(tmp_path / DEFAULT, 3, DEFAULT_GGUF)
    found = {path: ready(flags_of("llamacpp", path, tmp_path)) for path in (None, own)}
    assert [chosen.weights for chosen in found.values()] == ["q4_0", None]
    assert ready(flags_of("llamacpp", None, tmp_path, weights="bf16")).weights == "bf16"


def test_other_weights_are_made_in_the_cache_where_no_model_is_looked_for(own: Path, tmp_path: Path) -> None:
    """Not beside the GGUF: a folder with two of them is no model's folder."""
    default = folder_of(tmp_path / DEFAULT, 3, DEFAULT_GGUF)
    for path in (None, own, default):
        made = ready(flags_of("llamacpp", path, tmp_path, weights="q8_0")).weights_dir
        assert made is not None and tmp_path in made.parents and made not in (default, own)


def test_the_library_is_the_one_that_the_environment_names(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = flags_of("llamacpp", own, tmp_path)
    assert ready(flags).loading(1, 64, None).library is None
    file = tmp_path / "libllama.so"
    monkeypatch.setenv("LLAMA_CPP_LIB", str(file))
    with pytest.raises(InputError, match=r"LLAMA_CPP_LIB is '.*libllama.so', which is no file"):
        ready(flags)
    file.write_text("no library")
    with pytest.raises(EngineError, match="cannot be opened as libllama"):
        ready(flags).load(1, 64, None)
    assert ready(replace(flags, engine="openvino")).library is None


@pytest.mark.parametrize(
    ("engine", "given", "told"),
    [
        ("openvino", {"weights": "q8_0"}, "only llamacpp"),
        ("mock", {"weights": "q8_0"}, "only llamacpp"),
        ("llamacpp", {"weights": "q4"}, "did you mean 'q4_0'"),
    ],
)
def test_weights_that_cannot_be_are_refused(
    engine: str, given: dict[str, Any], told: str, own: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=told):
        ready(flags_of(engine, None if engine == "mock" else own, tmp_path, **given))


# --- what a step takes ------------------------------------------------------------------

Serve = Callable[..., tuple[Live, list[str]]]


@pytest.fixture
def serve(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """The driver of `batchwright serve`, on an engine that takes `COST` on a virtual clock."""

    def load(loading: Loading) -> Loaded:
        blocks, longest = loading.blocks_of(16), loading.max_model_len
        return Loaded(Mock(COST, num_kv_blocks=blocks, max_model_len=longest, is_real=False), "an engine")

    def driven(**given: Any) -> tuple[Live, list[str]]:
        flags = ServeFlags(engine="openvino", path=own, cache=tmp_path, **given)
        said: list[str] = []
        return driver(flags, policy_of_flags(flags), model_of(flags), said.append), said

    monkeypatch.setitem(choose.ENGINES, "openvino", load)
    return driven


def served(live: Live) -> list[Sequence]:
    """Two requests, to their end."""
    for id in range(2):
        live.add(Sequence(Request(id, live.engine.now(), 20, 3), range(20)))
    live.drain()
    live.run()
    return live.ended


def test_a_calibrated_server_tells_policies_what_a_step_takes(serve: Serve) -> None:
    """Whatever the limits, it is the engine's own time, and nothing is left behind in the engine."""

    @for_every_seed(12)
    def check(seed: int) -> None:
        random = Random(seed)
        longest, seqs = random.choice([LEAST, 41, 300, 2048]), random.choice([1, 3, 8])
        live, said = serve(
            policy_file=Path(ASKS),
            calibrate=True,
            max_num_seqs=seqs,
            max_model_len=longest,
            max_num_batched_tokens=random.choice([16, 128]),
            num_gpu_blocks_override=random.choice([None, 1 + -(-longest // 16)]),
        )
        step, rows = Step(), min(seqs, live.blocks.size // 2)
        step.quiet(rows, 0, rows * 20)
        assert live.stretch(step, 1) == pytest.approx(COST.seconds(step), rel=1e-3)
        assert any("held out" in line for line in said)
        served(live)
        assert live.blocks.free == live.blocks.size

    check()


def test_a_policy_that_asks_an_uncalibrated_server_is_told_of_the_flag(serve: Serve) -> None:
    live, _ = serve(policy_file=Path(ASKS), max_num_seqs=4, max_model_len=64)
    with pytest.raises(PolicyError, match="start it with --calibrate"):
        served(live)


def test_an_error_of_the_users_own_policy_while_steps_are_measured_names_its_place(
    serve: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "bad.py"
    file.write_text("def policy(b):\n    b.nothing()\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad.py, line 2: AttributeError"):
        serve(policy_file=file, calibrate=True, max_num_seqs=4, max_model_len=64)


def test_no_request_of_a_calibration_is_longer_than_the_limits_allow() -> None:
    @for_every_seed(200)
    def check(seed: int) -> None:
        room = Random(seed).choice([*range(2, 60), 400, 100000])
        limits = Limits(max_num_seqs=1, max_num_batched_tokens=64, max_model_len=room)
        if room < LEAST:
            with pytest.raises(InputError, match=f"--max-model-len is {room}"):
                load_within(limits)
            return
        load = load_within(limits)
        assert max(load.prompt + load.output) <= room and min(load.prompt) >= 1 and min(load.output) >= 1

    check()


# --- a real model -----------------------------------------------------------------------


def test_the_default_model_answers_under_llama_cpp_with_q4_0_whoever_is_beside_it() -> None:
    """Its own Q4_1 gives nonsense here."""
    try:
        open_library()
        chosen = ready(flags_of("llamacpp", None, cache_folder(None), exact=True))
    except (EngineError, InputError) as error:
        pytest.skip(str(error))
    loaded = chosen.load(4, 128, None)
    assert ", weights q4_0, KV cache f16, exact" in loaded.words
    model = model_of(ServeFlags(engine="llamacpp"))
    chat = model.tokenizer.encode_chat([{"role": "user", "content": "What is the capital of France?"}])
    found = []
    for company in (0, 3):
        live = Live(policy_of_flags(ServeFlags()), loaded.engine, Limits(max_num_seqs=4, max_model_len=128))
        first = Sequence(Request(0, loaded.engine.now(), len(chat), 16), chat)
        live.add(first)
        for id in range(1, 1 + company):
            live.add(Sequence(Request(id, loaded.engine.now(), 9 * id, 16), range(100, 100 + 9 * id)))
        live.drain()
        live.run()
        found.append(first.tokens)
    pieces = model.tokenizer.pieces(skip_special_tokens=True)
    assert b"Paris" in b"".join(pieces[token] for token in found[0])
    assert found[0] == found[1]


def test_several_servers_are_not_served(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text("from batchwright import replicas\npolicy = replicas(n=2)\n", encoding="utf-8")
    for given in (ServeFlags(policy="distserve(decode=2)"), ServeFlags(policy_file=file)):
        with pytest.raises(InputError, match="has several replicas, but one engine is served"):
            policy_of_flags(given)
