"""All parts of a model: those that are missing are fetched or made."""

from __future__ import annotations

from pathlib import Path

from batchwright.checkpoint.cache import Report, locked, part
from batchwright.checkpoint.convert import gguf_to_ir, hugging_face_to_ir
from batchwright.checkpoint.fetch import fetch
from batchwright.checkpoint.folder import write_tokenizer
from batchwright.checkpoint.gguf import read_gguf
from batchwright.checkpoint.needs import has, need
from batchwright.checkpoint.places import IR, TOKENIZER, Source, locate


def get(path: Path | None, cache: Path, report: Report, *, force: bool = False) -> tuple[Source, list[str]]:
    """The model at `path` (None: the default one), and the parts that had to be made.

    `force`: all that lies in the cache is made anew.  Without openvino-genai no IR is made of a GGUF.
    Raises InputError.
    """
    source = locate(path, cache)
    need("tokenizers")
    need("jinja2")
    if not force and not _missing(source):
        return source, []
    with locked(source.cached, report):
        missing = _parts(source) if force else _missing(source)  # another run may have made them
        for name in missing:
            report(name, 0.0)
            _make(name, source, report)
            report(name, 1.0)
    return source, missing


def _parts(source: Source) -> list[str]:
    """What is made in the cache, in order."""
    has_maker = source.gguf is None or has("openvino_genai")
    made = {
        "GGUF": source.path is None,
        "tokenizer": source.tokenizer == source.cached,
        "IR": source.ir == source.cached and has_maker,
    }
    return [name for name, is_ours in made.items() if is_ours]


def _missing(source: Source) -> list[str]:
    there = {"GGUF": source.has_gguf, "tokenizer": source.has_tokenizer, "IR": source.has_ir}
    return [name for name in _parts(source) if not there[name]]


def _make(name: str, source: Source, report: Report) -> None:
    gguf = source.gguf
    if name == "GGUF":
        assert gguf is not None
        with part(source.cached, last=gguf.name) as folder:
            fetch(folder, report)
    elif name == "tokenizer":
        assert gguf is not None
        with part(source.cached, last=TOKENIZER) as folder:
            write_tokenizer(read_gguf(gguf), folder)
    else:
        with part(source.cached, last=IR) as folder:
            if gguf is not None:
                gguf_to_ir(gguf, folder)
            else:
                assert source.path is not None
                hugging_face_to_ir(source.path, folder)
