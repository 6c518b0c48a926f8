"""The model that a user means, and the files that it is made of.

no path                              the default model, which `batchwright model get` fetches
a GGUF file                          its tokenizer and its IR are made once, in the cache
a folder with one GGUF file          the same; a tokenizer.json in it is used as it is
a folder with openvino_model.xml     an OpenVINO IR folder, as Optimum and OpenVINO GenAI write it
a folder with *.safetensors          a Hugging Face folder; its IR is made once, in the cache
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from batchwright.checkpoint.gguf import read_gguf
from batchwright.checkpoint.tokenizer import Tokenizer, read_json
from batchwright.errors import InputError, nearest

DEFAULT: Final = "SmolLM2-135M-Instruct"
DEFAULT_GGUF: Final = f"{DEFAULT}.Q4_1.gguf"
IR: Final = "openvino_model.xml"
TOKENIZER: Final = "tokenizer.json"
ENGINES: Final = ("openvino", "llamacpp")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model that is ready for an engine.

    name            what clients call it
    tokenizer_dir   a Hugging Face tokenizer folder
    ir              openvino_model.xml, if there is one
    gguf            the GGUF file, if there is one
    max_model_len   tokens of the longest sequence it was trained for
    eos_ids         ids that end a sequence
    """

    name: str
    tokenizer_dir: Path
    ir: Path | None
    gguf: Path | None
    max_model_len: int
    eos_ids: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where the parts of a model are, or will be once it was got.

    cached      the folder for what is made of it
    path        what the user gave; None: the default model
    gguf        the GGUF file, if it has one
    tokenizer   the folder with tokenizer.json
    ir          the folder with openvino_model.xml
    """

    name: str
    cached: Path
    path: Path | None
    gguf: Path | None
    tokenizer: Path
    ir: Path

    @property
    def has_tokenizer(self) -> bool:
        """Is there a tokenizer?"""
        return (self.tokenizer / TOKENIZER).is_file()

    @property
    def has_ir(self) -> bool:
        """Is there an OpenVINO IR?"""
        return (self.ir / IR).is_file()

    @property
    def has_gguf(self) -> bool:
        """Is there a GGUF file?"""
        return self.gguf is not None and self.gguf.is_file()

    @property
    def command(self) -> str:
        """What gets the parts that are missing."""
        given = "" if self.path is None else f" --path {shlex.quote(str(self.path))}"
        return f"batchwright model get{given}"


def find(path: Path | None, engine: str, cache: Path) -> Checkpoint:
    """The model at `path` (None: the default one), with what `engine` (openvino, llamacpp) needs.

    `cache`: the folder that `batchwright model get` fills.  Writes nothing.
    Raises InputError that says what is missing and how to get it.
    """
    if engine not in ENGINES:
        raise InputError(f"there is no engine {engine!r}{nearest(engine, ENGINES)}")
    source = locate(path, cache)
    if engine == "llamacpp" and source.gguf is None:
        raise InputError(f"{path}: has no GGUF file, which llama.cpp needs; give one, or --engine openvino")
    has_weights = source.has_ir if engine == "openvino" else source.has_gguf
    if not (has_weights and source.has_tokenizer):
        raise InputError(_missing(source, engine))
    return checkpoint(source)


def checkpoint(source: Source) -> Checkpoint:
    """What `source` has.  Raises InputError if its tokenizer or its longest sequence cannot be read."""
    return Checkpoint(
        name=source.name,
        tokenizer_dir=source.tokenizer,
        ir=source.ir / IR if source.has_ir else None,
        gguf=source.gguf if source.has_gguf else None,
        max_model_len=_max_model_len(source),
        eos_ids=Tokenizer(source.tokenizer).eos_ids,
    )


def locate(path: Path | None, cache: Path) -> Source:
    """Where the parts of the model are, whether they were got or not.  Raises InputError."""
    if path is None:
        folder = cache / DEFAULT
        return Source(
            name=DEFAULT, cached=folder, path=None, gguf=folder / DEFAULT_GGUF, tokenizer=folder, ir=folder
        )
    if not path.exists():
        raise InputError(f"{path}: there is no such file or folder; give a GGUF file or a model's folder")
    path = path.resolve()
    gguf = path if path.is_file() else _only_gguf(path)
    weights = [gguf] if gguf else sorted(path.glob("*.safetensors"))
    has_ir, has_tokenizer = (path / IR).is_file(), (path / TOKENIZER).is_file()
    if not (has_ir or weights):
        raise InputError(
            f"{path}: has neither {IR} nor *.safetensors nor one *.gguf; give a GGUF file or a model's folder"
        )
    if not (has_tokenizer or gguf):
        raise InputError(f"{path}: has no {TOKENIZER}; copy the model's into it, with tokenizer_config.json")
    name = path.stem if path.is_file() else path.name
    cached = cache / f"{name}-{_digest(weights)}"
    tokenizer, ir = path if has_tokenizer else cached, path if has_ir else cached
    return Source(name=name, cached=cached, path=path, gguf=gguf, tokenizer=tokenizer, ir=ir)


def _only_gguf(folder: Path) -> Path | None:
    """The GGUF file of a folder that has exactly one."""
    found = sorted(folder.glob("*.gguf"))
    return found[0] if len(found) == 1 else None


def _digest(files: Iterable[Path]) -> str:
    """Eight digits that change when a file does."""
    facts = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:8]


def _missing(source: Source, engine: str) -> str:
    if source.path is None and not source.has_gguf:
        return f"{source.name} is not in {source.cached}; {source.command} fetches it, or give a --path"
    if not source.has_tokenizer:
        return f"{source.name} has no tokenizer folder yet; {source.command} makes it"
    return f"{source.name} has no OpenVINO IR yet; {source.command} makes it, or give --engine llamacpp"


def _max_model_len(source: Source) -> int:
    """Source: config.json, else the GGUF's own context length."""
    given = read_json(source.tokenizer / "config.json").get("max_position_embeddings")
    if given is None and source.gguf is not None:
        keys = read_gguf(source.gguf).keys
        given = keys.get(f"{keys.get('general.architecture')}.context_length")
    if not isinstance(given, int) or given < 1:
        raise InputError(
            f"{source.tokenizer}/config.json: has no max_position_embeddings (the longest sequence); add it"
        )
    return given
