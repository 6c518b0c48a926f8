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
        "finish_reason", "is_plain", "length", "min_tokens", "prompt", "request", "sampling", "slot",
        "stop_ids", "table", "tokens", "watch",
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
        self.finish_reason = ""  # stop, length, abort or error, once it has ended

    @property
    def may_stop(self) -> bool:
        """May the next token be one of `stop_ids`?  If not, the engine must choose another."""
        return len(self.tokens) >= self.min_tokens
