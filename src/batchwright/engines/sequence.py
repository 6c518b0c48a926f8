"""A request with its token ids, which only drivers and engines see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from batchwright.engines.sampling import Sampling
from batchwright.request import Request

NO_IDS: Final[frozenset[int]] = frozenset()


class Sequence:
    """A request and its tokens.  Policies see `request` alone, so they never know `length`.

    length     the sequence ends when it has so many tokens of output
    stop_ids   it also ends with any of these, which the engine must not choose for the first
               `min_tokens` tokens
    watch      called after each token; True ends the sequence (stop strings)
    sampling   None: greedy
    """

    __slots__ = (
        "error", "finish_reason", "is_closed", "is_plain", "length", "min_tokens", "prompt", "request",
        "sampling", "slot", "started", "stop_ids", "table", "tokens", "watch",
    )  # fmt: skip

    def __init__(
        self,
        request: Request,
        prompt: Iterable[int],
        length: int | None = None,
        stop_ids: frozenset[int] = NO_IDS,
        min_tokens: int = 0,
        watch: Callable[[list[int]], bool] | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.request = request
        self.prompt = list(prompt)
        self.tokens: list[int] = []  # sampled so far
        self.length = request.max_tokens if length is None else length
        self.stop_ids = stop_ids
        self.min_tokens = min_tokens
        self.watch = watch
        self.sampling = sampling
        self.is_plain = sampling is None and (min_tokens == 0 or not stop_ids)
        self.table: list[int] = []  # ids of its KV blocks
        self.slot = -1  # the engine's own, if it has slots
        self.started = -1.0  # seconds, of its first step
        self.finish_reason = ""  # stop, length, abort or error, once it has ended
        self.is_closed = False  # has its client seen its end?
        self.error: Exception | None = None

    def ids(self, start: int, end: int) -> list[int]:
        """Its tokens from `start` to before `end`, counted from the first one of the prompt."""
        prompt = len(self.prompt)
        if end <= prompt:
            return self.prompt[start:end]
        if start >= prompt:
            return self.tokens[start - prompt : end - prompt]
        return self.prompt[start:] + self.tokens[: end - prompt]

    def take(self, token: int) -> bool:
        """Add a sampled token; True if it is the last one."""
        self.tokens.append(token)
        if token in self.stop_ids or (self.watch is not None and self.watch(self.tokens)):
            self.finish_reason = "stop"
        elif len(self.tokens) >= self.length:
            self.finish_reason = "length"
        else:
            return False
        return True

    @property
    def may_stop(self) -> bool:
        """May the next token be one of `stop_ids`?  If not, the engine must choose another."""
        return len(self.tokens) >= self.min_tokens
