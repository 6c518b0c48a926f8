"""The run-length log of a run: what happened, in a few integers per event.

Recording must cost next to nothing, so the log is flat lists of numbers; everything else
(token times, steps, pictures) is a lazy expansion of it, made in `history`.

    steps, times         of every stretch, and the second at which it ended
    taken, freed         KV blocks taken in it, and freed when requests left at its end
    chunks               tick, seat, tokens; the chunk that completes a prompt is left out
    held                 tick, seat        a decode missed the step
    accepted             tick, seat, tokens   draft tokens that a decode gained beside its own
    paused               tick              no decode ran in the step
    jumps, jump_times    tick, and the second at which it began after an idle time
    transfers            id, way (OUT or IN), tokens   of KV that moved
    transfer_times       the seconds at which that began and ended
    stays                one row of `STAY` per way out: a stay in the batch, or a wait that ended
                         without one (DROPPED, or ABORTED with seat 0)
    first_token, finished   seconds of both, per stay that ended with its last token

Ticks count steps from 0.  A stay lasts from admission to a preemption or the end: it decodes
in the ticks `since` .. `stopped` - 1 (`since` is -1 if it never got so far), and leaves after
tick `until` - 1.  A stay whose request came with all its KV has nothing to prefill: `since` is
`admitted`.  Requests that are complete are kept as they are until the next packing.

A long log is packed into arrays, 8 bytes a number instead of up to 40.  The first packing is
late, so that a short run pays nothing; the others come often, so that the numbers at hand
stay in the processor's cache.
"""

from __future__ import annotations

from array import array
from struct import pack
from typing import Final

from batchwright.request import Request

STAY: Final = (
    "id", "seat", "queued", "admitted", "cached", "brought", "since", "stopped", "until", "context",
    "reserved", "how",
)  # fmt: skip
PREEMPTED: Final = 0  # how a stay ends
COMPLETE: Final = 1
DROPPED: Final = 2  # its end was seen after it had been preempted
ABORTED: Final = 3  # cancelled by the client
SWAPPED: Final = 4  # preempted, too, but its KV is kept in host memory
MOVED: Final = 5  # its prompt is complete, and it goes on elsewhere
OUT: Final = 0  # ways of a transfer: to host memory,
IN: Final = 1  # and from it
FIRST_PACKING: Final = 50_000  # stretches
NEXT_PACKING: Final = 4000


class Log:
    """What happened on one replica.  `column` and `seconds` read it; jumps are read as they are."""

    def __init__(self, free: int = 0) -> None:
        self._free = free  # blocks
        self.steps: list[int] = []  # small numbers, like the next two: they cost no memory of their own
        self.taken: list[int] = []
        self.freed: list[int] = []
        self.times: list[float] = []
        self.chunks: list[int] = []
        self.held: list[int] = []
        self.accepted: list[int] = []
        self.paused: list[int] = []
        self.num_seats = 0  # given to requests so far
        self.jumps: list[int] = []
        self.jump_times: list[float] = []
        self.transfers: list[int] = []
        self.transfer_times: list[float] = []
        self.first_token: list[float] = []
        self.finished: list[float] = []
        self._stays: list[int] = []  # flat rows
        self._ended: list[Request] = []  # complete stays, which are not in `_stays` yet
        self._limit = FIRST_PACKING
        self._packed: dict[str, array[int]] = {}
        self._seconds: dict[str, array[float]] = {}

    # --- writing --------------------------------------------------------------

    def stretch(self, steps: int, seconds: float, free: int, after: int) -> None:
        """A stretch ended with `free` blocks, and `after` once requests had left."""
        self.steps.append(steps)
        self.taken.append(self._free - free)
        self.freed.append(after - free)
        self.times.append(seconds)
        self._free = after

    def lengthen(self, steps: int, seconds: float, free: int, after: int) -> None:
        """The last stretch went on: the log is the same in whatever pieces it ran."""
        if not self.steps:
            self._unpack_last()
        self.steps[-1] += steps
        self.taken[-1] += self._free - free
        self.freed[-1] += after - free
        self.times[-1] = seconds
        self._free = after

    def freed_late(self, blocks: int) -> None:
        """Requests that stayed past the end of the last stretch have freed `blocks`."""
        self._free += blocks
        if not self.steps and self._packed.get("steps"):
            self._unpack_last()
        if self.steps:
            self.freed[-1] += blocks

    def settle(self, free: int) -> None:
        """Since the last stretch ended KV has come or gone, and `free` blocks are free."""
        if self.num_stretches > 0:
            self.freed_late(free - self._free)

    @property
    def num_stretches(self) -> int:
        """Stretches so far."""
        return len(self.steps) + len(self._packed.get("steps", ()))

    def transfer(self, r: Request, way: int, tokens: int, begin: float, end: float) -> None:
        """The KV of `r` moves from second `begin` to `end`."""
        self.transfers += (r.id, way, tokens)
        self.transfer_times += (begin, end)

    def complete(self, r: Request) -> None:
        """A stay of `r` has ended with its last token."""
        self._ended.append(r)
        if len(self.steps) > self._limit:
            self._limit = NEXT_PACKING
            self.pack()

    def stay(self, r: Request, how: int) -> None:
        """A stay of `r` in the batch has ended in another way."""
        if how == DROPPED:
            self.first_token.append(r.first_token)
            self.finished.append(r.finished)
        self._stays += (
            r.id, r.seat, r.queued, r.admitted, r.cached, r.brought, r.since, _stopped(r), r.until,
            r.computed, r.reserved, how,
        )  # fmt: skip

    def jump(self, tick: int, seconds: float) -> None:
        """Nothing ran before `seconds`, when step `tick` begins."""
        if self.jumps and self.jumps[-1] == tick:
            self.jumps.pop()
            self.jump_times.pop()
        self.jumps.append(tick)
        self.jump_times.append(seconds)

    # --- reading --------------------------------------------------------------

    def column(self, name: str) -> array[int]:
        """All integers recorded under `name`, or those of one field of the stays, in order."""
        self.pack()
        return self._packed[name]

    def seconds(self, name: str) -> array[float]:
        """All seconds recorded under `name`: times, first_token or finished."""
        self.pack()
        return self._seconds[name]

    # --- packing --------------------------------------------------------------

    def pack(self) -> None:
        """Move the lists into arrays."""
        self._pack("steps", self.steps)
        self._pack("taken", self.taken)
        self._pack("freed", self.freed)
        self._pack("chunks", self.chunks)
        self._pack("held", self.held)
        self._pack("accepted", self.accepted)
        self._pack("paused", self.paused)
        self._pack("transfers", self.transfers)
        self._pack_seconds("transfer_times", self.transfer_times)
        self._pack_seconds("times", self.times)
        self._pack_seconds("first_token", self.first_token)
        self._pack_seconds("finished", self.finished)
        for i, name in enumerate(STAY):
            self._pack(name, self._stays[i :: len(STAY)])
        self._stays.clear()
        self._pack_ended()

    def _unpack_last(self) -> None:
        self.steps.append(self._packed["steps"].pop())
        self.taken.append(self._packed["taken"].pop())
        self.freed.append(self._packed["freed"].pop())
        self.times.append(self._seconds["times"].pop())

    def _pack_ended(self) -> None:
        ended = self._ended
        self._pack("id", [r.id for r in ended])
        self._pack("seat", [r.seat for r in ended])
        self._pack("queued", [r.queued for r in ended])
        self._pack("admitted", [r.admitted for r in ended])
        self._pack("cached", [r.cached for r in ended])
        self._pack("brought", [r.brought for r in ended])
        self._pack("since", [r.since for r in ended])
        self._pack("stopped", [_stopped(r) for r in ended])
        self._pack("until", [r.until for r in ended])
        self._pack("context", [r.computed for r in ended])
        self._pack("reserved", [r.reserved for r in ended])
        self._packed["how"] += array("q", (COMPLETE,)) * len(ended)
        self._pack_seconds("first_token", [r.first_token for r in ended])
        self._pack_seconds("finished", [r.finished for r in ended])
        ended.clear()

    def _pack(self, name: str, numbers: list[int]) -> None:
        if name not in self._packed:
            self._packed[name] = array("q")
        if numbers:  # by way of bytes: three times as fast as to extend by the list
            self._packed[name].frombytes(pack(f"{len(numbers)}q", *numbers))
            numbers.clear()

    def _pack_seconds(self, name: str, numbers: list[float]) -> None:
        if name not in self._seconds:
            self._seconds[name] = array("d")
        if numbers:
            self._seconds[name].frombytes(pack(f"{len(numbers)}d", *numbers))
            numbers.clear()


def _stopped(r: Request) -> int:
    return r.until if r.stopped == 0 else r.stopped
