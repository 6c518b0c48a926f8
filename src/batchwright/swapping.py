"""Preemption by swap: a request's KV goes to host memory and comes back, and nothing is recomputed.

    DECODING --swap_out--> MOVING_OUT --land--> SWAPPED --swap_in--> MOVING_IN --land--> DECODING

`swap_out` and `swap_in` are moves of policies, `land` is the driver's: a transfer has ended, and
the policy is asked.  KV on its way holds blocks and no seat; a seat is kept for who comes back.
"""

from __future__ import annotations

from batchwright.batch import Batch
from batchwright.errors import PolicyError
from batchwright.log import IN, OUT
from batchwright.log import SWAPPED as BY_SWAP
from batchwright.refusals import refuse_seat
from batchwright.request import CANCELLED, DECODING, MOVING_IN, MOVING_OUT, SWAPPED, Request


def swap_out(b: Batch, r: Request) -> None:
    """Take the seat of the decode `r` and send its KV to host memory; its blocks are free once it is there.

    Raises PolicyError if `r` does not decode, or host memory is short or there is none.
    """
    host = b.host
    if host is None:
        raise PolicyError(f"request {r.id} is swapped out, but there is no host memory; set host to some")
    if r.state != DECODING:
        raise PolicyError(f"request {r.id} is swapped out, but does not decode; swap out decodes only")
    blocks = b.blocks.count(b.clock + r.shift)
    if blocks > host.free:
        raise PolicyError(
            f"request {r.id} is swapped out with {blocks} KV blocks, but {host.free} of host memory are "
            "free; preempt it, or raise the swap space"
        )
    b.stop(r)
    leave(b, r, BY_SWAP)
    r.preemptions += 1
    host.place(r, blocks)
    host.num_moving += 1
    host.leaving_blocks += blocks
    begin, end = host.out.send(b.now, blocks * b.blocks.block_size)
    start(b, r, OUT, begin, end)


def swap_in(b: Batch, r: Request) -> None:
    """Take blocks for `r`, which waits in host memory, keep it a seat, and send its KV back.

    It decodes on when that has come.  Raises PolicyError if `r` does not wait there, blocks are
    short, or as many run as may.
    """
    host = b.host
    if host is None or r.state != SWAPPED:
        raise PolicyError(
            f"request {r.id} is swapped in, but does not wait in host memory; swap it out first"
        )
    expect(b, r)
    b.num_swapped -= 1
    host.num_moving += 1
    del host.swapped[r]
    begin, end = host.back.send(b.now, b.movers.coming[r] * b.blocks.block_size)
    start(b, r, IN, begin, end)


def land(b: Batch) -> Request:
    """The first transfer has ended; whose it was.  If that is MOVING_IN still, it is to `decode` now.

    Or it is one whose KV is elsewhere (`handover`), and which comes to wait for it.
    """
    r = b.movers.pop()
    b.transfer_time = b.movers.time
    if r in b.movers.offered:
        del b.movers.offered[r]
        b.enqueue(r)
    elif r in b.movers.leaving:
        _gone(b, r)
    else:
        _come(b, r)
    return r


# --- KV that leaves and comes, wherever it goes ---------------------------------


def leave(b: Batch, r: Request, how: int) -> None:
    """Take the seat of `r`, which decodes no longer; its KV leaves with its blocks."""
    r.until = b.tick_count
    b.log.stay(r, how)
    r.stopped = 0
    r.filled = 0
    del b.running[r]
    r.state = MOVING_OUT
    b.movers.leaving[r] = max(b.blocks.count(r.computed), r.reserved)


def expect(b: Batch, r: Request) -> None:
    """Take blocks for the KV of `r`, which comes, and keep it a seat.  Raises PolicyError."""
    if len(b.running) + b.num_coming >= b.max_running:
        refuse_seat(r, len(b.running) + b.num_coming, b.max_running)
    blocks = b.blocks.count(r.computed)
    b.blocks.take(blocks)
    b.movers.coming[r] = blocks
    b.num_coming += 1
    r.state = MOVING_IN


def start(b: Batch, r: Request, way: int, begin: float, end: float) -> None:
    """The KV of `r` moves from second `begin` to `end`."""
    b.log.transfer(r, way, r.computed, begin, end)
    b.movers.end_at(r, end)
    b.transfer_time = b.movers.time
    b.edits += 1


def _gone(b: Batch, r: Request) -> None:
    """The KV of `r` has left; if it is in host memory now, it waits there."""
    del b.movers.leaving[r]
    _free(b, r)
    host = b.host
    if host is None or r not in host.places:
        return
    host.num_moving -= 1
    host.leaving_blocks -= host.places[r]
    if r.state == CANCELLED:
        host.drop(r)
    else:
        r.state = SWAPPED
        host.swapped[r] = None
        b.num_swapped += 1


def _come(b: Batch, r: Request) -> None:
    """The KV of `r` has come."""
    del b.movers.coming[r]
    b.num_coming -= 1
    if b.host is not None and r in b.host.places:
        b.host.num_moving -= 1
        b.host.drop(r)
    if r.state == CANCELLED:
        _free(b, r)
        return
    b.log.num_seats += 1
    r.seat = b.log.num_seats
    b.running[r] = None
    r.admitted = r.since = b.tick_count
    r.cached = 0
    r.brought = r.filled = r.computed


def _free(b: Batch, r: Request) -> None:
    b.blocks.release(r, r.computed, r.computed, False)
    r.reserved = 0
    b.log.settle(b.blocks.free)
