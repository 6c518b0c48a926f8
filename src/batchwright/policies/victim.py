"""Who is preempted when the KV cache is short, where it is not the newest (`Batch.newest`)."""

from __future__ import annotations

from batchwright.batch import Batch
from batchwright.policies.kv import sampled
from batchwright.policies.order import by_priority
from batchwright.request import PREFILLING, Request


def least_urgent(b: Batch) -> Request:
    """The request with the highest priority number; of these, the one that came last."""
    return max(b.running, key=by_priority)


def preempt_newest(b: Batch) -> None:
    """Preempt who was admitted last, until the decodes of the coming step have their blocks.

    The same ones as in a walk in admission order that preempts the last whenever a block is missing.
    """
    while b.decode_blocks() > b.blocks.free:
        b.preempt(b.newest())


def by_outputs(b: Batch) -> list[Request]:
    """Those that run and have sampled: most tokens first, then shortest prompt, then who came first.

    The last ones have the least to lose.
    """
    rows = [r for r in b.running if r.state != PREFILLING]
    return sorted(rows, key=lambda r: (-sampled(b, r), r.prompt))
