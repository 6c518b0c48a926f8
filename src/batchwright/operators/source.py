"""What has measured operators can answer: the time of each part of a step, one question at a time."""

from __future__ import annotations

from typing import Protocol


class Operators(Protocol):
    """Times in seconds, of all layers of one model on its GPUs.  Numbers are whole, from 1 but for KV tokens.

    shared   what works on every token alike, in a step with prompt tokens
    decodes  the same in a step without
    head     the output head, for so many rows that yield a token
    prefill  attention of so many chunks of `tokens` each, which start from `past` KV tokens each
    decode   attention of so many rows, each of which reads `context` KV tokens and its own

    `is_split`: do `shared` and `decodes` differ?  `context_tokens`: KV tokens of all rows of a step up to
    which `decode` was measured; inf: not known.
    Raises InputError where it has nothing to answer with.
    """

    @property
    def is_split(self) -> bool: ...
    @property
    def context_tokens(self) -> float: ...
    def shared(self, tokens: int) -> float: ...
    def decodes(self, tokens: int) -> float: ...
    def head(self, rows: int) -> float: ...
    def prefill(self, chunks: int, tokens: int, past: int) -> float: ...
    def decode(self, rows: int, context: int) -> float: ...


class Direct(Protocol):
    """Times in seconds of whole steps, as what has the measurements adds them up itself."""

    def prompts(self, chunks: int, tokens: int, past: int) -> float: ...
    def rows(self, rows: int, context: int) -> float: ...
