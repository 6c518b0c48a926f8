"""A link that KV moves over: between the KV cache and host memory, or between two replicas.

    seconds of a transfer = latency + tokens * bytes_per_token / bandwidth

Each direction is a channel of its own, which serves one transfer after the other: what is sent
while it is busy starts when it is free.  Whole blocks move, so `tokens` is a multiple of a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from batchwright.config import ordinary
from batchwright.errors import LimitError


@ordinary
@dataclass(frozen=True, kw_only=True)
class Link:
    """`bandwidth`: bytes/s in each direction, may be infinite; `bytes_per_token`: of KV;
    `latency`: seconds of every transfer beside.

    Raises LimitError on a value that no link can have.
    """

    bandwidth: float
    bytes_per_token: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("bandwidth", self.bandwidth), ("bytes_per_token", self.bytes_per_token)):
            if not _is_number(value) or not value > 0:
                raise LimitError(f"{name} of a link is {value!r}, but must be a number greater than 0")
        if self.bytes_per_token == inf:
            raise LimitError("bytes_per_token of a link is inf, but must be finite; give the model's")
        if not _is_number(self.latency) or not 0 <= self.latency < inf:
            raise LimitError(f"latency of a link is {self.latency!r}, but must be seconds of at least 0")

    def seconds(self, tokens: int) -> float:
        """Of one transfer of the KV of `tokens` tokens, once it has the channel."""
        return self.latency + tokens * self.bytes_per_token / self.bandwidth


class Channel:
    """One direction of a link.  `free_at`: the second from which on it has nothing to do."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.free_at = 0.0

    def send(self, now: float, tokens: int) -> tuple[float, float]:
        """Send the KV of `tokens` tokens, at `now` or when those before have come: its begin and end."""
        begin = max(now, self.free_at)
        self.free_at = begin + self.link.seconds(tokens)
        return begin, self.free_at


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
