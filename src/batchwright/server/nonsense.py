"""Text for the mock engine, which has no model and so no tokenizer.

    0 .. 255     a byte each: what a prompt is made of
    256 .. 4351  made-up words: what the mock's outputs are mostly made of
    4352         the end of a sequence

No text is special, and a conversation is its messages, one line each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

from batchwright.errors import InputError

_SYLLABLES: Final = [c + v for c in ("b", "d", "f", "g", "k", "l", "m", "n") for v in "aeiouwxy"]
WORDS: Final = [f" {first}{second}" for first, second in product(_SYLLABLES, repeat=2)]
EOS: Final = 256 + len(WORDS)
VOCABULARY: Final = EOS + 1


class Nonsense:
    """A tokenizer of bytes, for a mock."""

    vocab_size = VOCABULARY
    eos_ids = frozenset({EOS})
    strips_space = False

    def __init__(self) -> None:
        ids = [bytes([byte]) for byte in range(256)] + [word.encode() for word in WORDS]
        self._pieces = dict(enumerate([*ids, b""]))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """A token per byte."""
        return list(text.encode())

    def encode_chat(
        self, messages: Iterable[Mapping[str, Any]], *, add_generation_prompt: bool = True
    ) -> list[int]:
        """Role and text of every message, and who speaks next.  Raises InputError."""
        lines = [_line(index, message) for index, message in enumerate(messages)]
        if not lines:
            raise InputError("messages is empty; give at least one message")
        return self.encode("".join(lines) + ("assistant:" if add_generation_prompt else ""))

    def pieces(self, skip_special_tokens: bool = True) -> Mapping[int, bytes]:
        """The bytes that each id stands for."""
        return self._pieces


def _line(index: int, message: Mapping[str, Any]) -> str:
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not isinstance(content, str):
        raise InputError(f"messages[{index}] has no role, or no content that is a text; give both")
    return f"{role}: {content}\n"
