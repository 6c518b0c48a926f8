"""Who is preempted when the KV cache is short."""

from __future__ import annotations

from batchwright.batch import Batch
from batchwright.policies.order import by_priority
from batchwright.request import Request


def newest(b: Batch) -> Request:
    """The request that was admitted last."""
    return b.newest()


def least_urgent(b: Batch) -> Request:
    """The request with the highest priority number; of these, the one that came last."""
    return max(b.running, key=by_priority)
