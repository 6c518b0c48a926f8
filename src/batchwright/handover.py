"""A request whose prompt is computed here, and which decodes elsewhere.

    source   `send_off`, by the driver: its stay ends with its first token.  A stand-in keeps its KV,
             and its blocks, until a transfer has ended
    target   the request waits as if it had just come, and its policy moves: `pull` takes blocks and a seat,
             and starts the transfer; when that has ended the request decodes

Who waits to be pulled holds no blocks at the target, so the target's memory bounds what comes.
"""

from __future__ import annotations

from batchwright.batch import Batch
from batchwright.errors import PolicyError
from batchwright.log import IN, MOVED
from batchwright.request import MOVING_OUT, NO_BLOCKS, WAITING, Request
from batchwright.swapping import expect, start


def send_off(b: Batch, r: Request) -> Request:
    """Let `r`, which has just got its first token, go on elsewhere; its stand-in, which leaves.

    The stand-in's blocks are free when a transfer of it has ended (`Batch.movers`).
    """
    assert r.generated > 0 and r.computed == r.tokens - 1, "its prompt is complete"
    stand_in = Request(r.id, r.arrival, r.prompt, 1, prefix=r.prefix)
    stand_in.state = MOVING_OUT
    stand_in.computed = r.computed
    stand_in.generated = r.generated
    stand_in.blocks = r.blocks
    stand_in.reserved = r.reserved
    stand_in.preemptions = r.preemptions
    r.until = b.tick_count
    b.log.stay(r, MOVED)
    del b.running[r]
    b.movers.leaving[stand_in] = max(b.blocks.count(r.computed), r.reserved)
    r.blocks = NO_BLOCKS
    r.reserved = r.computed = r.filled = r.seat = 0
    r.state = WAITING
    return stand_in


def pull(b: Batch, r: Request) -> None:
    """Take blocks for the waiting `r`, keep it a seat, and let its KV come; then it decodes.

    Raises PolicyError if its KV is not elsewhere, blocks are short, or as many run as may.
    """
    movers = b.movers
    if r.state != WAITING or r not in movers.elsewhere or movers.fetch is None:
        raise PolicyError(f"request {r.id} is pulled, but its KV is nowhere else; admit it")
    r.computed = movers.elsewhere.pop(r)
    expect(b, r)
    b.waiting.take(r)
    b.num_waiting -= 1
    begin, end = movers.fetch(r)
    start(b, r, IN, begin, end)
