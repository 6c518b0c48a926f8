"""ShareGPT conversations: text, which has no tokens until a tokenizer has read it.

Such a file is told apart only to say what to do with it.
"""

from __future__ import annotations

from typing import Final, NoReturn

from batchwright.errors import InputError

_ENOUGH: Final = 1 << 16  # characters in which the first conversation shows its keys


def matches(text: str) -> bool:
    """Is it JSON whose objects hold conversations?"""
    start = text[:_ENOUGH]
    return start.startswith(("[", "{")) and '"conversations"' in start


def refuse(name: str) -> NoReturn:
    """Raises InputError that says what to do."""
    raise InputError(
        f"{name}: holds ShareGPT conversations, which are text without token counts; count them with your "
        "model's tokenizer into a CSV of prompt_tokens,output_tokens (add arrival_s if you know it)"
    )
