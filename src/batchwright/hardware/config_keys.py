"""The keys of one config.json, read with errors that name file and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NoReturn

from batchwright.errors import InputError

MOST: Final = 10**9
MOST_LAYERS: Final = 10_000


class Keys:
    """The keys of one file.  Every error is an InputError that starts with the file."""

    def __init__(self, file: Path, keys: dict[str, Any]) -> None:
        self.file = file
        self.keys = keys

    def within(self, key: str) -> Keys:
        """The keys of an object within, and those around it that it does not have itself."""
        inner = self.keys.get(key)
        if not isinstance(inner, dict):
            self.refuse(key, "is missing" if inner is None else f"is {inner!r}, but must be an object")
        return Keys(self.file, {**self.keys, **inner})

    def with_defaults(self, defaults: dict[str, Any]) -> Keys:
        return Keys(self.file, {**defaults, **self.keys})

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 1, and not beyond any model."""
        value = self.keys.get(key)
        if value is None:
            value = default
        if value is None:
            self.refuse(key, "is missing")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            self.refuse(key, f"is {value!r}, but must be a whole number of at least 1")
        most = MOST_LAYERS if key == "num_hidden_layers" else MOST
        if value > most:
            self.refuse(key, f"is {value}, but must be at most {most}")
        return int(value)

    def size_or_none(self, key: str) -> int:
        """The same; 0 where the key is missing, null or 0."""
        return 0 if self.keys.get(key) in (None, 0) else self.size(key)

    def flag(self, key: str, default: bool) -> bool:
        value = self.keys.get(key, default)
        if not isinstance(value, bool):
            self.refuse(key, f"is {value!r}, but must be true or false")
        return bool(value)

    def items(self, key: str) -> list[Any]:
        """A list; empty where the key is missing or null."""
        value = self.keys.get(key) or []
        if not isinstance(value, list):
            self.refuse(key, f"is {value!r}, but must be a list of layers")
        return value

    def refuse(self, key: str, why: str) -> NoReturn:
        raise InputError(f"{self.file}: {key} {why}")


def read_keys(path: Path) -> Keys:
    """Those of a config.json, or of the one in a folder.  Raises InputError that names the file."""
    file = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); give a model's config.json") from None
    except ValueError as error:  # of JSON and of UTF-8 alike
        raise InputError(f"{file}: is not JSON ({error}); give a model's config.json") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}: is not a JSON object; give a model's config.json")
    return Keys(file, config)
