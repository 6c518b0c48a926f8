"""Who is preempted when the KV cache is short, where it is not the newest (`Batch.newest`)."""

from __future__ import annotations

from batchwright.batch import Batch
from batchwright.policies.order import by_priority
from batchwright.request import Request


def least_urgent(b: Batch) -> Request:
    """The request with the highest priority number; of these, the one that came last."""
    return max(b.running, key=by_priority)


def preempt_newest(b: Batch) -> None:
    """Preempt who was admitted last, until the decodes of the coming step have their blocks.

    The same ones as in a walk in admission order that preempts the last whenever a block is missing.
    """
    while b.decode_blocks() > b.blocks.free:
        b.preempt(b.newest())
