"""The bytes that a token stands for.

A character may be spread over tokens, so text is made of bytes, not of the tokens' own texts.  Two ways
to write bytes in a vocabulary are read: byte-level (GPT-2, Llama 3, Qwen: one printable character per
byte) and byte fallback (Llama 2, Gemma: plain text with U+2581 for the space, and `<0xE2>` for a byte).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from batchwright.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE: Final = "\u2581"
_BYTE: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_NOTHING: Final[frozenset[str]] = frozenset()


class Pieces(dict[int, bytes]):
    """Bytes by id, made when they are first asked for.  Ids that are no token are no bytes.

    skip           tokens, by their text, that are no bytes either
    strips_space   does a text lose the space that it begins with?

    Raises InputError if the tokenizer writes bytes in another way.
    """

    def __init__(self, tokenizer: Tokenizer, skip: frozenset[str] = _NOTHING) -> None:
        steps = list(_steps(json.loads(tokenizer.decoder.__getstate__())) if tokenizer.decoder else [])
        kinds = {step["type"] for step in steps}
        unknown = kinds - {"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip"}
        if unknown or not kinds & {"ByteLevel", "ByteFallback"}:
            named = ", ".join(sorted(unknown or kinds)) or "none"
            raise InputError(f"tokenizer.json: its decoder ({named}) is not known; take another model")
        self._text = tokenizer.id_to_token
        self._skip = skip
        self._bytes = _of_byte_level if "ByteLevel" in kinds else _of_byte_fallback
        self.strips_space = "Strip" in kinds

    def __missing__(self, id: int) -> bytes:
        text = self._text(id)
        piece = b"" if text is None or text in self._skip else self._bytes(text)
        self[id] = piece
        return piece


def _steps(decoder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The steps of a decoder, which may be nested."""
    if decoder["type"] != "Sequence":
        yield decoder
        return
    for inner in decoder["decoders"]:
        yield from _steps(inner)


def _byte_letters() -> dict[str, int]:
    """The printable character that stands for each byte.  Source: GPT-2's byte-level BPE."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(own)]
    return {chr(byte): byte for byte in own} | {chr(256 + i): byte for i, byte in enumerate(others)}


_BYTE_LETTERS: Final = _byte_letters()


def _of_byte_level(text: str) -> bytes:
    try:
        return bytes([_BYTE_LETTERS[letter] for letter in text])
    except KeyError:  # an added token, which is written as it is
        return text.encode()


def _of_byte_fallback(text: str) -> bytes:
    byte = _BYTE.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace(SPACE, " ").encode()
