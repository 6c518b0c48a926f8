"""Tables that a package with measurements is asked for: built, checked, kept, and refused in words.

The package of most tests is made up, and has the interface of the real ones; those of the real one are
skipped where it is not installed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchwright.cli import main
from batchwright.cost import Roofline, Table
from batchwright.cost.surface import Polyline
from batchwright.cost_text import cost
from batchwright.errors import InputError
from batchwright.operators import measured
from batchwright.operators.cache import cache_folder, load, place, save
from batchwright.operators.check import KV_TOKENS, STEPS, difference, draw
from batchwright.operators.engine import MeasuredEngine
from batchwright.operators.measured import asked_of, built, opened
from batchwright.operators.package import Package, installed
from batchwright.operators.tables import ROWS, TOKENS, octaves, operator_times, rising, tiles
from batchwright.step import Step
from measured_operators import Made

pytestmark = pytest.mark.pure

ENGINE = '''
from measured_operators import Made
MADE = Made(is_split={is_split})
LAYERS = 2
CONTEXT = ("embedding", "attention", "mlp", "logits_gemm")

class EngineHandle:
    @classmethod
    def compile(cls, model, gpu, engine, backend_version, tp_size, gemm_quant_mode=None,
                moe_quant_mode=None, kvcache_quant_mode=None, moe_tp_size=None, moe_ep_size=None):
        if 32 % tp_size:
            raise AssertionError(f"num_heads 32 should be divisible by tp_size {{tp_size}}")
        cls.last = (model, gpu, engine, backend_version, tp_size, gemm_quant_mode, kvcache_quant_mode,
                    moe_tp_size, moe_ep_size)
        return cls()

    def evaluate_context_ops(self, indices, batch_size, s, prefix=0):
        tokens = batch_size * s
        times = (1e-3, MADE.prefill(batch_size, s, prefix), MADE.shared(tokens) - 1e-3, MADE.head(batch_size))
        return self._told(indices, "context", times)

    def evaluate_generation_ops(self, indices, batch_size, s):
        times = (1e-3, MADE.decode(batch_size, s - 1), MADE.decodes(batch_size) - 1e-3, MADE.head(batch_size))
        return self._told(indices, "generation", times)

    def _told(self, indices, phase, times):
        if any(i >= len(CONTEXT) for i in indices):
            raise ValueError(f"invalid engine config: index {{indices}} out of range")
        kinds = ("empirical", "mixed", "silicon", "silicon")
        return [(f"{{phase}}_{{CONTEXT[i]}}", 1e3 * times[i], 0.0, kinds[i]) for i in indices]

    def predict_prefill_latency(self, chunks, isl, prefix=0):
        return 1e3 * MADE.prompts(chunks, isl - prefix, prefix)

    def predict_decode_latency(self, rows, context, osl=2):
        return 1e3 * MADE.rows(rows, context)
'''
DATABASE = """
def get_version_slots(gpu, engine):
    return {"current": "0.24.0", "next": "0.27.0"} if engine == "vllm" else None
"""
COMMON = 'DefaultHFModels = {"meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-8B"}\n'


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """A made-up package with measurements of two GPUs, which is found before any that is installed."""
    root = tmp_path / "site" / "aisimulate_core"
    for folder in ("a100_sxm/attention/vllm/0.14.0", "h100_sxm/gemm/vllm/0.24.0", "h100_sxm/sglang/0.5"):
        (root / "systems" / "data" / folder).mkdir(parents=True)
    (root / "sdk").mkdir()
    (root / "model_configs").mkdir()
    config = json.dumps({"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096})
    for name in ("meta-llama--Meta-Llama-3.1-8B", "Qwen--Qwen3-8B", "Other--Qwen3-8B", "m--Unlisted-1b"):
        (root / "model_configs" / f"{name}_config.json").write_text(config, encoding="utf-8")
    files = {"engine": ENGINE.format(is_split=False), "perf_database": DATABASE, "common": COMMON}
    for name, text in {**files, "__init__": ""}.items():
        (root / "sdk" / f"{name}.py").write_text(text, encoding="utf-8")
    (root / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(root.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    yield installed()
    for name in [name for name in sys.modules if name.partition(".")[0] == "aisimulate_core"]:
        del sys.modules[name]


def asked(package: Package, gpu: str = "h100_sxm", model: str = "llama-3.1-8b", tp: int = 1, **other: object):
    given = {"ep": False, "engine": "vllm", "version": None, "quantization": None, "kv_cache_dtype": "auto"}
    return asked_of(package, gpu, model, tp, **(given | other))


def rows_step(rows: int, context: int) -> Step:
    step = Step()
    step.quiet(rows, 0, rows * context)
    return step


# --- tables -------------------------------------------------------------------


@pytest.mark.parametrize("is_split", [False, True], ids=["one shared time", "decodes apart"])
def test_tables_are_within_half_a_percent_of_what_they_were_asked_of(is_split):
    source = Made(is_split=is_split)
    found = difference(Table(operator_times(source), ()), source)
    assert found.steps == STEPS and found.mean <= 0.005 and found.greatest < 0.1


def test_tables_that_are_wrong_are_found_out():
    source = Made()
    times = operator_times(source)
    wrong = Polyline("shared", times.shared.points, [1.1 * value for value in times.shared.values])
    found = difference(Table(replace(times, shared=wrong), ()), source, steps=300)
    assert 0.01 < found.mean < 0.1


def test_tables_ask_few_questions():
    source = Made()
    operator_times(source)
    assert source.asked < 25_000


def test_every_number_of_tokens_that_is_asked_is_told_exactly():
    source = Made()
    times = operator_times(source)
    for tokens in (1, 2, 255, 256, 257, 512, 513, 1024, 1025, 16_384):
        assert times.shared.at(tokens) == source.shared(tokens)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_noise_is_levelled_to_what_never_falls_and_lies_between(values):
    found = rising(values)
    assert found == sorted(found)
    assert all(min(values) - 1e-9 <= value <= max(values) + 1e-9 for value in found)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_what_never_falls_is_left_as_it_is(values):
    assert rising(sorted(values)) == sorted(values)


def test_grid_points_begin_and_end_where_tables_do():
    assert tiles(640)[:3] == [1, 2, 3] and tiles(640)[510:] == [511, 512, 513, 576, 577, 640]
    assert octaves(16, 2) == [0, 1, 2, 3, 4, 6, 8, 12, 16]
    assert octaves(10, 4) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 10]


@given(st.randoms(use_true_random=False), st.integers(0, 2))
def test_a_drawn_step_lies_within_the_tables(random, kind):
    found = draw(random, kind)
    step = found.step()
    assert (found.rows > 0, found.chunks > 0) == ((True, False), (False, True), (True, True))[kind]
    assert 1 <= found.rows + step.prefill_tokens <= TOKENS and found.rows <= ROWS
    assert step.context_tokens <= KV_TOKENS
    assert step.num_chunks == 0 or step.prefill_tokens // step.num_chunks == found.tokens


# --- a package ----------------------------------------------------------------


def test_a_package_is_asked_for_a_gpu_a_model_and_an_engine(made):
    table = measured("H100-SXM", "llama-3.1-8b")
    about = dict(table.about)
    assert about["package"] == "aisimulate of unknown version" and about["engine"] == "vllm 0.24.0"
    assert about["gpu"] == "1 x h100_sxm" and about["model"] == "meta-llama/Meta-Llama-3.1-8B"
    assert about["times"] == "73% measured, 21% estimated by the package, 7% measured in part"  # of 9.68 ms
    expected = Made()
    assert table.seconds(rows_step(32, 1000)) == pytest.approx(expected.rows(32, 1000), rel=1e-3)


@pytest.mark.parametrize("is_split", [False, True], ids=["one shared time", "decodes apart"])
def test_operators_are_told_apart_by_what_they_depend_on(made, is_split):
    (made.folder / "sdk" / "engine.py").write_text(ENGINE.format(is_split=is_split), encoding="utf-8")
    source, expected = opened(made, asked(made)), Made(is_split=is_split)
    assert source.is_split == is_split
    assert source.shared(700) == pytest.approx(expected.shared(700))
    assert source.decodes(700) == pytest.approx(expected.decodes(700))
    assert source.head(7) == pytest.approx(expected.head(7))
    assert source.prefill(3, 500, 900) == pytest.approx(expected.prefill(3, 500, 900))
    assert source.decode(9, 4000) == pytest.approx(expected.decode(9, 4000))
    assert difference(built(made, source), source, steps=300).mean <= 0.005


def test_what_is_asked_for_reaches_the_package_in_its_own_words(made):
    other = {"tp": 4, "ep": True, "version": "0.27.0", "quantization": "awq", "kv_cache_dtype": "fp8_e4m3"}
    source = opened(made, asked(made, **other))
    model = "meta-llama/Meta-Llama-3.1-8B"
    expected = (model, "h100_sxm", "vllm", "0.27.0", 4, "int4_wo", "fp8", 1, 4)
    assert type(source._handle).last == expected
    assert type(opened(made, asked(made))._handle).last[5:] == (None, "bfloat16", 1, None)


def test_a_folder_with_a_configuration_is_a_model(made, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}", encoding="utf-8")
    for path in ("mine", "mine/config.json"):
        assert asked(made, model=str(tmp_path / path)).model == str(tmp_path / "mine")


def test_a_model_that_the_package_has_a_file_of_but_not_in_its_list_is_opened_by_that_file(made):
    source = opened(made, asked(made, model="unlisted-1b"))
    assert Path(type(source._handle).last[0]).name != "m/Unlisted-1b"
    assert source.asked.model == "m/Unlisted-1b"


REFUSED = {
    "a GPU without measurements": ({"gpu": "L4"}, "vllm on GPU 'L4'; it has them of a100_sxm, h100_sxm"),
    "an engine that none was measured on": ({"engine": "tgi"}, "engine 'tgi'.*known: sglang, trtllm, vllm"),
    "an engine on another GPU": ({"gpu": "a100_sxm", "engine": "sglang"}, "sglang on GPU 'a100_sxm'; it has"),
    "an unknown model": ({"model": "llama-3.1-9b"}, "'llama-3.1-9b'; did you mean 'llama-3.1-8b'"),
    "a name of two models": ({"model": "qwen3-8b"}, "may be Other/Qwen3-8B or Qwen/Qwen3-8B; give the whole"),
    "no GPU": ({"tp": 0}, "tp of measured is 0, but must be at least 1"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_what_a_package_does_not_have_is_named_with_what_it_has(made, given, message):
    with pytest.raises(InputError, match=message):
        asked(made, **given)


def test_another_version_of_the_engine_is_named_with_those_there_are(made):
    with pytest.raises(InputError, match=r"vllm 0.19.0 on h100_sxm; it has version 0.24.0 and 0.27.0"):
        opened(made, asked(made, version="0.19.0"))


def test_what_the_package_refuses_is_one_line(made):
    with pytest.raises(InputError, match=r"cannot answer for .* on 3 x h100_sxm under vllm: num_heads 32"):
        opened(made, asked(made, tp=3))


def test_a_whole_name_of_a_model_is_enough(made):
    assert asked(made, model="qwen/qwen3-8b").model == "Qwen/Qwen3-8B"


def test_without_a_package_one_line_says_what_to_install():
    with pytest.raises(InputError, match=r"none is installed; pip install 'batchwright\[measured\]'"):
        installed((("no_such_module", ("no-such-package",)),))


def test_a_package_that_cannot_be_loaded_is_named(made):
    (made.folder / "sdk" / "engine.py").write_text("import no_such_library\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"cannot be loaded .*no_such_library.*install it again"):
        opened(made, asked(made))


def test_the_text_of_a_cost_names_measured_operators(made):
    found = cost("hosted(measured(gpu='h100_sxm', model='llama-3.1-8b', tp=2, engine='vllm'), base=0.001)")
    assert dict(found.cost.about)["gpu"] == "2 x h100_sxm"
    with pytest.raises(InputError, match="lacks model of measured"):
        cost("measured('h100_sxm')")


# --- the command, and notes ---------------------------------------------------


@pytest.fixture
def command(made: Package, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs `batchwright` with a made-up package; its status and what it printed."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["batchwright", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return end.value.code, printed.out, printed.err

    return run


def test_the_command_lists_what_was_measured(command):
    status, out, _ = command("operators")
    assert status == 0 and "measured by aisimulate of unknown version" in out
    assert "h100_sxm   vllm 0.24.0, 0.27.0" in out and "m/Unlisted-1b" in out
    found = json.loads(command("operators", "--json")[1])
    assert found["gpus"]["h100_sxm"] == {"sglang": [], "vllm": ["0.24.0", "0.27.0"]}
    assert found["package"] == "aisimulate of unknown version" and len(found["models"]) == 4


def test_the_command_checks_the_tables_and_shows_a_roofline_beside(command):
    flags = ("operators", "--gpu", "h100_sxm", "--model", "llama-3.1-8b")
    status, out, _ = command(*flags)
    assert status == 0 and "against direct questions for 3000 steps drawn at random: mean error 0.0" in out
    found = json.loads(command(*flags, "--json")[1])
    assert found["error"]["steps"] == STEPS and found["error"]["mean"] <= 0.005
    one = found["steps"][0]
    assert one["step"] == "1 decode" and one["measured_s"] == pytest.approx(Made().rows(1, 1000), rel=1e-3)
    assert one["roofline_s"] == Roofline("H100-SXM", "llama-3.1-8b").seconds(rows_step(1, 1000))
    assert found["range"]["tokens"] == [1.0, 16384.0]


def test_a_model_that_the_catalogue_has_not_has_no_roofline_beside(command):
    flags = ("operators", "--gpu", "h100_sxm", "--model", "unlisted-1b", "--json")
    assert json.loads(command(*flags)[1])["steps"][0]["roofline_s"] is None


def test_a_gpu_without_a_model_is_one_line(command):
    status, out, error = command("operators", "--gpu", "h100_sxm")
    assert (status, out) == (2, "") and error.count("\n") == 1
    assert "--gpu is given without --model; give both, or neither" in error


def test_the_bare_word_takes_gpu_model_and_split_from_the_flags(command):
    flags = ("compare", "chat", "--requests", "20", "--policies", "vllm", "--cost", "measured")
    status, out, _ = command(*flags, "--gpu", "H100-SXM", "--tp", "2")
    assert status == 0
    assert "cost is measured times of llama-3.1-8b on 2 x H100-SXM (default --model)" in out
    assert "gpu 2 x h100_sxm" in out and "the host takes 20 us" in out
    assert "--pp is given, but measured" in command(*flags, "--pp", "2")[2]
    assert "no measurements of vllm on GPU 'L4'" in command(*flags, "--gpu", "L4")[2]


def test_a_run_beyond_the_tables_says_how_many_of_its_steps_are(command):
    load = "poisson(rate=100, n=3, prompt=18000, output=4)"
    flags = ("--policies", "vllm,orca", "--cost", "measured", "--max-num-batched-tokens", "20000")
    status, out, _ = command("compare", load, *flags)
    assert status == 0
    assert "steps of over 16384 tokens were not measured, and are extrapolated" in out
    said = r"orca goes beyond the steps that its cost was measured on: of its steps, \d+\.\d% have more"
    assert re.search(said, out)
    inside = command("compare", "chat", "--requests", "20", "--policies", "vllm", "--cost", "measured")[1]
    assert "beyond" not in inside


def test_a_run_on_measured_times_is_repeated_from_its_folder(command, tmp_path):
    folder = str(tmp_path / "run")
    flags = ("chat", "--requests", "20", "--policies", "vllm", "--cost", "measured")
    assert command("compare", *flags, "-o", folder)[0] == 0
    again = command("compare", f"{folder}/config.yaml", "--json")
    assert again[0] == 0
    assert json.loads(again[1])["policies"] == json.loads(command("compare", *flags, "--json")[1])["policies"]


def test_package_engine_and_gpu_stand_with_every_result(command):
    cost_text = "measured(gpu='H100-SXM', model='llama-3.1-8b')"
    status, out, _ = command("compare", "chat", "--requests", "20", "--policies", "vllm", "--cost", cost_text)
    assert status == 0
    assert "measured: package aisimulate of unknown version, engine vllm 0.24.0, gpu 1 x h100_sxm" in out
    assert "memory is that of llama-3.1-8b on 1 x H100-SXM" in out
    assert "KV blocks of 16" in out and "max_num_seqs is 1024, vLLM's default on this GPU" in out


# --- the cache ----------------------------------------------------------------


def kept_files() -> list[Path]:
    return sorted(cache_folder().glob("*.json"))


def test_tables_are_built_once_and_kept_for_the_next_time(made):
    first = measured("h100_sxm", "llama-3.1-8b")
    (made.folder / "sdk" / "engine.py").write_text("raise RuntimeError\n", encoding="utf-8")
    sys.modules.pop("aisimulate_core.sdk.engine")
    again = measured("h100_sxm", "llama-3.1-8b")
    assert again == first and len(kept_files()) == 1
    for step in (rows_step(7, 333), rows_step(200, 40)):
        assert again.seconds(step) == first.seconds(step)
    assert again.range == first.range


@pytest.mark.parametrize("damage", ["cut", "edited", "emptied", "of another kind"])
def test_a_file_that_is_damaged_is_built_anew(made, damage):
    first = measured("h100_sxm", "llama-3.1-8b")
    file = kept_files()[0]
    text = file.read_text(encoding="utf-8")
    changed = {"cut": text[:-100], "edited": text.replace("0.00", "0.01", 1), "emptied": ""}
    file.write_text(changed.get(damage, "[1, 2]"), encoding="utf-8")
    assert load(file) is None
    assert measured("h100_sxm", "llama-3.1-8b").seconds(rows_step(8, 100)) == first.seconds(rows_step(8, 100))
    assert load(file) is not None


def test_other_arguments_and_another_version_have_files_of_their_own(made, tmp_path):
    first = place(made, asked(made), tmp_path)
    others = [asked(made, **given) for given in ({"tp": 2}, {"gpu": "a100_sxm"}, {"version": "0.27.0"})]
    places = {place(made, each, tmp_path) for each in others}
    places.add(place(replace(made, version="0.99"), asked(made), tmp_path))
    assert len(places) == 4 and first not in places


def test_a_model_of_ones_own_has_another_file_when_its_configuration_changes(made, tmp_path):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    before = place(made, asked(made, model=str(tmp_path)), tmp_path)
    (tmp_path / "config.json").write_text('{"hidden_size": 1}', encoding="utf-8")
    assert place(made, asked(made, model=str(tmp_path)), tmp_path) != before


def test_where_nothing_can_be_kept_tables_are_built_each_time(made, tmp_path):
    (tmp_path / "file").touch()
    table = measured("h100_sxm", "llama-3.1-8b", folder=tmp_path / "file" / "below")
    assert table.seconds(rows_step(1, 1)) > 0
    save(tmp_path / "file" / "below" / "x.json", table.times, {})
    assert not (tmp_path / "file" / "below").exists()


# --- the real package ---------------------------------------------------------

real = pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None and find_spec("aisimulate_core") is None,
    reason="no package with measurements is installed; pip install 'batchwright[measured]'",
)


@real
@pytest.mark.parametrize(
    ("gpu", "model", "other"),
    [
        ("h100_sxm", "llama-3.1-8b", {}),
        ("h200_sxm", "llama-3.1-70b", {"tp": 4}),
        ("a100_sxm", "llama-3.1-8b", {}),
        ("h100_sxm", "qwen3-30b-a3b", {"tp": 4, "ep": True}),
        ("h200_sxm", "deepseek-v3", {"tp": 8, "ep": True}),
        ("l40s", "qwen3-8b", {"engine": "sglang"}),
    ],
    ids=["8B on H100", "70B on H200s", "8B on A100", "experts", "latent attention", "sglang"],
)
def test_tables_of_real_measurements_are_within_half_a_percent_of_direct_questions(gpu, model, other):
    package = installed()
    source = opened(package, asked(package, gpu, model, **other))
    assert difference(built(package, source), source).mean <= 0.005


@real
@pytest.mark.bench
def test_tables_of_real_measurements_are_built_within_a_second():
    package = installed()
    source: MeasuredEngine = opened(package, asked(package))
    built(package, source)
    assert float(dict(built(package, source).about)["built"].split()[1]) < 1.0
