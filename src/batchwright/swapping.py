"""Preemption by swap: a request's KV goes to host memory and comes back, and nothing is recomputed.

    DECODING --swap_out--> MOVING_OUT --land--> SWAPPED --swap_in--> MOVING_IN --land--> DECODING

`swap_out` and `swap_in` are moves of policies, `land` is the driver's: a transfer has ended, and
the policy is asked.  KV on its way holds blocks and no seat; a seat is kept for who comes back.
"""

from __future__ import annotations

from batchwright.batch import Batch
from batchwright.errors import PolicyError
from batchwright.host_memory import HostMemory
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
    r.until = b.tick_count
    b.log.stay(r, BY_SWAP)
    r.stopped = 0
    r.filled = 0
    del b.running[r]
    r.state = MOVING_OUT
    r.preemptions += 1
    begin, end = host.send(r, blocks, blocks * b.blocks.block_size, b.now)
    _sent(b, r, OUT, begin, end)


def swap_in(b: Batch, r: Request) -> None:
    """Take blocks for `r`, which waits in host memory, keep it a seat, and send its KV back.

    It decodes on when that has come.  Raises PolicyError if `r` does not wait there, blocks are
    short, or as many run as may.
    """
    host = b.host
    if host is None or r.state != SWAPPED:
        raise PolicyError(f"request {r.id} is swapped in, but does not wait in host memory; swap it out first")
    if len(b.running) + b.num_coming >= b.max_running:
        refuse_seat(r, len(b.running) + b.num_coming, b.max_running)
    blocks = b.blocks.count(r.computed)
    b.blocks.take(blocks)
    b.num_swapped -= 1
    b.num_coming += 1
    r.state = MOVING_IN
    begin, end = host.fetch(r, blocks * b.blocks.block_size, b.now)
    _sent(b, r, IN, begin, end)


def land(b: Batch) -> Request:
    """The first transfer has ended; whose it was.  If that is MOVING_IN still, it is to `decode` now."""
    host = b.host
    assert host is not None, "nothing moves without host memory"
    r = host.land()
    b.transfer_time = host.time
    if r in host.leaving:
        _gone(b, host, r)
    else:
        _come(b, host, r)
    return r


def _sent(b: Batch, r: Request, way: int, begin: float, end: float) -> None:
    b.log.transfer(r, way, r.computed, begin, end)
    if end < b.transfer_time:
        b.transfer_time = end
    b.edits += 1


def _gone(b: Batch, host: HostMemory, r: Request) -> None:
    """The KV of `r` is in host memory."""
    host.swapped[r] = host.leaving.pop(r)
    _free(b, r)
    if r.state == CANCELLED:
        host.drop(r)
    else:
        r.state = SWAPPED
        b.num_swapped += 1


def _come(b: Batch, host: HostMemory, r: Request) -> None:
    """The KV of `r` is back."""
    host.free += host.coming.pop(r)
    b.num_coming -= 1
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
