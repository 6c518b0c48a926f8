"""A file or a folder of measurements, as the readers of its forms see it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from batchwright.errors import InputError
from batchwright.workload.jsontable import parse_object
from batchwright.workload.source import PARQUET, read_bytes, text_of

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Source:
    """`path` is a folder where `is_folder`; then `text` is empty.

    `run`: which one of several runs in it the user wants, as `--run` says it; None: the only one.
    """

    path: Path
    text: str
    is_folder: bool
    run: str | None

    @classmethod
    def open(cls, path: Path, run: str | None) -> Source:
        """Raises InputError on what cannot be read as text."""
        if path.is_dir():
            return cls(path=path, text="", is_folder=True, run=run)
        raw = read_bytes(str(path))
        if raw.startswith(PARQUET):
            raise InputError(f"{path}: is Parquet alone; give the folder that import -o wrote")
        return cls(path=path, text=text_of(str(path), raw), is_folder=False, run=run)

    @property
    def name(self) -> str:
        return str(self.path)

    @cached_property
    def first_line(self) -> str:
        """The first line that is not blank."""
        return self.text.lstrip().partition("\n")[0].strip()

    @cached_property
    def whole(self) -> Any:
        """What the text is as one JSON value; None if it is none."""
        return _decoded(self.text) if self.first_line.startswith(("{", "[")) else None

    @cached_property
    def first(self) -> dict[str, Any]:
        """The JSON object of the whole text, else of its first line, else nothing."""
        found = self.whole
        if found is None and self.first_line.startswith("{"):
            found = _decoded(self.first_line)
        return found if isinstance(found, dict) else {}

    def objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The object of each line, with its row; of one object over many lines, that.  Raises InputError."""
        if isinstance(self.whole, dict):
            yield 1, self.whole
            return
        for row, line in enumerate(self.text.splitlines(), 1):
            if line.strip():
                found = _decoded(line)
                yield row, found if isinstance(found, dict) else parse_object(self.name, row, line)


def as_type(source: Source, value: object, kind: type[_T], form: str, row: int | None = None) -> _T:
    """`value` of the file as a `kind` of msgspec.  Raises InputError with the key that is wrong."""
    try:
        return msgspec.convert(value, kind, strict=True)
    except msgspec.ValidationError as error:
        place = source.name if row is None else f"{source.name}: row {row}"
        said = str(error).replace("`", "").replace("$.", "")
        raise InputError(f"{place}: is no whole {form}: {said}; let the tool write it again") from None


def _decoded(text: str) -> Any:
    """The JSON value of `text`; None if it is none.  NaN and Infinity are read, as Python writes them."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
