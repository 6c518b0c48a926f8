"""Tokens that the client and the server both counted: the server's are right.

A client counts the text again, which gives another number where tokens do not part as they were
made, and leaves out what a chat template adds to a prompt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from batchwright.figures import count
from batchwright.imported.arrays import wholes
from batchwright.imported.inside import times
from batchwright.imported.result import Finding
from batchwright.metrics import Numbers

Counts = Sequence[int | None]


def tokens(by_client: Counts, by_server: Counts) -> Numbers:
    """Of each request the server's count, else the client's, else 0."""
    pairs = zip(by_client, by_server, strict=True)
    return wholes(client if server is None else server for client, server in pairs)


def differences(what: str, by_client: Counts, by_server: Counts) -> tuple[Finding, ...]:
    """A note where both counted and disagree."""
    pairs = zip(by_client, by_server, strict=True)
    both = [(client, server) for client, server in pairs if client is not None and server is not None]
    apart = sum(client != server for client, server in both)
    if not apart:
        return ()
    client, server = np.array(both).sum(axis=0).tolist()
    factor = "" if server == 0 else f" ({times(client / server)})"
    text = (
        f"the client counts {count(client)} {what} tokens, the server {count(server)}{factor}; they differ "
        f"in {apart:,} of {len(both):,} requests: the server's are used"
    )
    return (Finding(text=text, is_wrong=False),)
