"""Every error that Batchwright raises on purpose.

    BatchwrightError
    ├── InputError      a file, a flag or a text that a user gave
    ├── RequestError    a request that cannot be served
    ├── LimitError      limits that contradict each other or the hardware
    ├── CostError       a cost model asked outside its range
    ├── PolicyError     a policy that broke its contract
    └── EngineError     an engine that cannot be loaded, or cannot run a step

A message says what, the value, the limit, and what to do, in one line.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class BatchwrightError(Exception):
    """Base of all errors that Batchwright raises on purpose."""


class InputError(BatchwrightError):
    """A file, a flag or a text that a user gave is wrong."""


class RequestError(BatchwrightError):
    """A request cannot be served."""


class LimitError(BatchwrightError):
    """Limits contradict each other or the hardware."""


class CostError(BatchwrightError):
    """A cost model was asked outside its range, or made of impossible values."""


class PolicyError(BatchwrightError):
    """A policy broke its contract."""


class EngineError(BatchwrightError):
    """An engine cannot be loaded, or cannot run a step."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` where a known word is near, else the list of known words."""
    words = sorted(known)
    close = get_close_matches(word, words, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(words)}"
