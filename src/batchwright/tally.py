"""Output tokens of each client, at the pace of the decode clock.

A decode gains one token a tick, so what a client has got needs no work in a quiet step:

    tokens(client) = known + decodes * clock + offset

    known     tokens of its requests that do not decode
    decodes   its requests that do
    offset    sum of shift - prompt + 1 of these: each has clock + shift - prompt + 1 tokens
"""

from __future__ import annotations

from batchwright.request import Request


class Tally:
    """Tokens of all requests that a batch has ever had, by `Request.client`."""

    def __init__(self) -> None:
        self.changes = 0  # so that a reader sees whether anything but the clock has moved
        self._known: dict[int, int] = {}
        self._decodes: dict[int, int] = {}
        self._offset: dict[int, int] = {}

    def tokens(self, client: int, clock: int) -> int:
        """What `client` has been given when the decode clock says `clock`."""
        known, decodes = self._known.get(client, 0), self._decodes.get(client, 0)
        return known + decodes * clock + self._offset.get(client, 0)

    def first(self, r: Request) -> None:
        """The prompt of `r` is complete, which yields a token."""
        self._add(r.client, 1, 0, 0)

    def start(self, r: Request) -> None:
        """`r` decodes from now on."""
        self._add(r.client, -r.generated, 1, r.shift - r.prompt + 1)

    def stop(self, r: Request) -> None:
        """`r` decodes no more; its `generated` is up to date."""
        self._add(r.client, r.generated, -1, r.prompt - r.shift - 1)

    def _add(self, client: int, known: int, decodes: int, offset: int) -> None:
        self.changes += 1
        self._known[client] = self._known.get(client, 0) + known
        self._decodes[client] = self._decodes.get(client, 0) + decodes
        self._offset[client] = self._offset.get(client, 0) + offset
