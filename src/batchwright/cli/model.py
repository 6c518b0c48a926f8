"""`batchwright model`: a real model for `live` and `serve`, fetched once and kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Option

from batchwright.errors import InputError
from batchwright.files import user_cache

if TYPE_CHECKING:
    from batchwright.checkpoint.places import Source

model: Final = typer.Typer(help="Get a real model, for live runs.", rich_markup_mode=None)
CachePath = Annotated[
    Path | None,
    Option(
        "--cache", envvar="BATCHWRIGHT_CACHE", help="folder to keep models in; default: ~/.cache/batchwright"
    ),
]
ModelPath = Annotated[
    Path | None,
    Option(
        "--path", help="GGUF file, OpenVINO IR folder or Hugging Face folder; default: SmolLM2-135M-Instruct"
    ),
]
_Json = Annotated[bool, Option("--json", help="print JSON (docs/models.md) instead of text")]


@model.command("get")
def get(
    *,
    path: ModelPath = None,
    cache: CachePath = None,
    force: Annotated[bool, Option("--force", help="fetch and make all of it again")] = False,
    json: _Json = False,
) -> None:
    """Fetch a model, and make its OpenVINO IR and tokenizer folder."""
    from batchwright.checkpoint.get import get
    from batchwright.cli.progress import progress

    with progress(3) as report:
        source, made = get(path, cache_folder(cache), report or _silent, force=force)
    _show(source, {"made": made}, json)


@model.command("show")
def show(*, path: ModelPath = None, cache: CachePath = None, json: _Json = False) -> None:
    """Print where the parts of a model are."""
    from batchwright.checkpoint.places import locate

    source = locate(path, cache_folder(cache))
    if not source.has_tokenizer:
        raise InputError(f"{source.name} is not in {source.cached}; {source.command} gets it")
    _show(source, {}, json)


def cache_folder(given: Path | None) -> Path:
    """The folder of models: under what the user gave, or where the system keeps caches."""
    return (given or user_cache()) / "models"


def _silent(name: str, share: float) -> None:
    """Nobody looks."""


def _show(source: Source, facts: dict[str, Any], as_json: bool) -> None:
    from json import dumps

    from batchwright.checkpoint.places import checkpoint

    found = checkpoint(source)
    parts = {"gguf": found.gguf, "ir": found.ir, "tokenizer_dir": found.tokenizer_dir}
    if as_json:
        paths = {name: None if place is None else str(place) for name, place in parts.items()}
        lengths = {"max_model_len": found.max_model_len, "eos_ids": sorted(found.eos_ids)}
        print(dumps({"name": found.name, **facts, **paths, **lengths}, indent=2))
        return
    made = facts.get("made")
    news = "" if made is None else f": made {', '.join(made)}" if made else ": all is there already"
    print(f"{found.name}{news}")
    print(f"  tokenizer      {found.tokenizer_dir}")
    print(f"  GGUF           {found.gguf or 'none; --engine llamacpp needs one'}")
    print(f"  OpenVINO IR    {found.ir or _without_ir(source)}")
    print(f"  max_model_len  {found.max_model_len}; a sequence ends with {_ids(found.eos_ids)}")


def _without_ir(source: Source) -> str:
    return f"none; pip install 'batchwright[live]' and {source.command} make it, for --engine openvino"


def _ids(ids: frozenset[int]) -> str:
    return ", ".join(map(str, sorted(ids))) or "no token of its own"
