"""Values of flags as numbers and words.  A bad one is an InputError that names the flag."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

from batchwright.errors import InputError
from batchwright.server_command.flags import Given

Value = str | int | float | bool
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([kmgtKMGT])(?:i?[bB])?")
_POWERS: Final = {"k": 1, "m": 2, "g": 3, "t": 4}


def whole_number(text: str) -> int | None:
    """Of a text such as `8192`, `8k` (8000) or `8K` (8192), as vLLM reads its flags; None: it is none."""
    size = _SIZE.fullmatch(text)
    if size is not None:
        base = 1024 if size[2].isupper() else 1000
        whole = Decimal(size[1]) * base ** _POWERS[size[2].lower()]
        return int(whole) if whole == int(whole) else None
    try:
        return int(text)
    except ValueError:
        return None


def count(given: Given) -> int:
    """A whole number, as `whole_number` reads it."""
    found = whole_number(_text(given))
    if found is None:
        raise _bad(given, "a whole number")
    return found


def number(given: Given) -> float:
    try:
        found = Decimal(_text(given))
    except InvalidOperation:
        raise _bad(given, "a number") from None
    if not found.is_finite():
        raise _bad(given, "a finite number")
    return float(found)


def word(given: Given) -> str:
    return _text(given)


def switch(given: Given) -> bool:
    return given.is_on


def unswitch(given: Given) -> bool:
    """A flag that turns something off."""
    return not given.is_on


def _text(given: Given) -> str:
    if given.value is None or not given.value.strip():
        raise InputError(f"--like: {given.written} has no value; give one")
    if given.value.startswith("$"):
        raise InputError(
            f"--like: {given.written} is {given.value}, a variable of a shell; put its value there"
        )
    return given.value.strip()


def _bad(given: Given, kind: str) -> InputError:
    return InputError(f"--like: {given.written} is {given.value!r}, not {kind}; correct it")
