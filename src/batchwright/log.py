"""The run-length log of a run: what happened, in a few integers per event.

Recording must cost next to nothing, so the log is flat lists of numbers; everything else
(token times, steps, pictures) is a lazy expansion of it, made in `history`.

    ticks, free, times   of the end of every stretch: the tick after it, the free blocks
                         before requests leave, and the second
    releases             tick, blocks      that were freed at the end of a stretch
    chunks               tick, seat, tokens; the chunk that completes a prompt is left out
    held                 tick, seat        a decode missed the step
    paused               tick              no decode ran in the step
    jumps, jump_times    tick, and the second at which it began after an idle time
    stays                one row of `STAY` per stay of a request in the batch
    served               seconds of the first token and of the end, per complete stay

Ticks count steps from 0.  A stay lasts from admission to a preemption or the end: it decodes
in the ticks `since` .. `stopped` - 1 (`since` is -1 if it never got so far), and leaves after
tick `until` - 1.  Requests that are complete are kept as they are until the next packing.

A long log is packed into arrays, 8 bytes a number instead of up to 40.  The first packing is
late, so that a short run pays nothing; the others come often, so that the numbers at hand
stay in the processor's cache.
"""

from __future__ import annotations

from array import array
from typing import Final

from batchwright.request import Request

STAY: Final = (
    "id", "seat", "queued", "admitted", "cached", "since", "stopped", "until", "context", "reserved", "how",
)  # fmt: skip
PREEMPTED: Final = 0  # how a stay ends
COMPLETE: Final = 1
DROPPED: Final = 2  # its end was seen after it had been preempted
ABORTED: Final = 3  # cancelled by the client
FIRST_PACKING: Final = 100_000  # stretches
NEXT_PACKING: Final = 2_000


class Log:
    """What happened on one replica.  `column` and `seconds` read it."""

    def __init__(self) -> None:
        self.ticks: list[int] = []
        self.free: list[int] = []
        self.times: list[float] = []
        self.releases: list[int] = []
        self.chunks: list[int] = []
        self.held: list[int] = []
        self.paused: list[int] = []
        self.jumps: list[int] = []
        self.jump_times: list[float] = []
        self.served: list[float] = []
        self._stays: list[int] = []  # flat rows
        self._ended: list[Request] = []  # complete stays, which are not in `_stays` yet
        self._limit = FIRST_PACKING
        self._packed: dict[str, array[int]] = {}
        self._seconds: dict[str, array[float]] = {}

    # --- writing --------------------------------------------------------------

    def stretch(self, tick: int, seconds: float, free: int, freed: int) -> None:
        """A stretch has ended, and requests that left have freed blocks."""
        self.ticks.append(tick)
        self.free.append(free)
        self.times.append(seconds)
        if freed > 0:
            self.releases += (tick, freed)
        if len(self.ticks) > self._limit:
            self._limit = NEXT_PACKING
            self.pack()

    def complete(self, r: Request) -> None:
        """A stay of `r` has ended with its last token."""
        self._ended.append(r)

    def stay(self, r: Request, how: int) -> None:
        """A stay of `r` in the batch has ended in another way."""
        self._stays += (
            r.id, r.seat, r.queued, r.admitted, r.cached, r.since, _stopped(r), r.until, r.computed,
            r.reserved, how,
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
        """All seconds recorded under `name`: times or served."""
        self.pack()
        return self._seconds[name]

    # --- packing --------------------------------------------------------------

    def pack(self) -> None:
        """Move the lists into arrays."""
        self._pack("ticks", self.ticks)
        self._pack("free", self.free)
        self._pack("releases", self.releases)
        self._pack("chunks", self.chunks)
        self._pack("held", self.held)
        self._pack("paused", self.paused)
        self._pack_seconds("times", self.times)
        self._pack_seconds("served", self.served)
        for i, name in enumerate(STAY):
            self._pack(name, self._stays[i :: len(STAY)])
        self._stays.clear()
        self._pack_ended()

    def _pack_ended(self) -> None:
        ended = self._ended
        self._pack("id", [r.id for r in ended])
        self._pack("seat", [r.seat for r in ended])
        self._pack("queued", [r.queued for r in ended])
        self._pack("admitted", [r.admitted for r in ended])
        self._pack("cached", [r.cached for r in ended])
        self._pack("since", [r.since for r in ended])
        self._pack("stopped", [_stopped(r) for r in ended])
        self._pack("until", [r.until for r in ended])
        self._pack("context", [r.computed for r in ended])
        self._pack("reserved", [r.reserved for r in ended])
        self._pack("how", [COMPLETE] * len(ended))
        seconds: list[float] = []
        for r in ended:
            seconds += (r.first_token, r.finished)
        self._pack_seconds("served", seconds)
        ended.clear()

    def _pack(self, name: str, numbers: list[int]) -> None:
        packed = self._packed.get(name)
        if packed is None:
            self._packed[name] = array("q", numbers)
        elif numbers:
            packed += array("q", numbers)  # twice as fast as to extend by the list
        numbers.clear()

    def _pack_seconds(self, name: str, numbers: list[float]) -> None:
        packed = self._seconds.get(name)
        if packed is None:
            self._seconds[name] = array("d", numbers)
        elif numbers:
            packed += array("d", numbers)
        numbers.clear()


def _stopped(r: Request) -> int:
    return r.until if r.stopped == 0 or r.stopped > r.until else r.stopped
