"""What a GGUF file says of itself before the weights: its keys, and the names of its tensors.

    "GGUF", version (2 or 3), number of tensors, number of keys
    per key      name, type, value
    per tensor   name, number of dimensions, dimensions, type, offset

Numbers are little-endian; a text is its length in bytes and its bytes; an array is the type of its
entries, their number, and they.  Source: the GGUF specification of ggml.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from batchwright.errors import InputError

_MAGIC: Final = b"GGUF"
_TEXT: Final = 8
_ARRAY: Final = 9
_NUMBERS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip


@dataclass(frozen=True)
class Gguf:
    """The keys and the names of the tensors of one file."""

    keys: dict[str, Any]
    tensors: frozenset[str]


def read_gguf(file: Path) -> Gguf:
    """Raises InputError if `file` is no whole GGUF of version 2 or 3."""
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reader(data).gguf()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); give a GGUF file") from None
    except (ValueError, KeyError, struct.error, MemoryError, RecursionError):
        raise InputError(f"{file}: is no whole GGUF file of version 2 or 3; fetch it again") from None


class _Reader:
    """Reads one value after the other.  Raises ValueError, KeyError or struct.error on nonsense."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def gguf(self) -> Gguf:
        if self._bytes(len(_MAGIC)) != _MAGIC or self._number("I") not in (2, 3):
            raise ValueError
        num_tensors, num_keys = self._number("Q"), self._number("Q")
        keys = {self._text(): self._value(self._number("I")) for _ in range(num_keys)}
        return Gguf(keys, frozenset(self._tensor() for _ in range(num_tensors)))

    def _tensor(self) -> str:
        name = self._text()
        self._numbers(f"{self._number('I')}QIQ")
        return name

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind != _ARRAY:
            return self._number(_NUMBERS[kind])
        inner, count = self._number("I"), self._number("Q")
        if inner in _NUMBERS:
            return self._numbers(f"{count}{_NUMBERS[inner]}")
        return [self._value(inner) for _ in range(count)]

    def _text(self) -> str:
        return self._bytes(self._number("Q")).decode()

    def _number(self, form: str) -> Any:
        return self._numbers(form)[0]

    def _numbers(self, form: str) -> list[Any]:
        found = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return list(found)

    def _bytes(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise ValueError
        return self._data[start : self._at]
