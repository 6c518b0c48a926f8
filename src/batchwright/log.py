"""The run-length log of a run: what happened, in a few integers per event.

Recording must cost next to nothing, so the log is flat lists of numbers, packed into
arrays when they grow long; everything else (token times, steps, pictures) is a lazy
expansion of it, made in `history`.

    stretches  tick at the end, free blocks before and after releases     3 per stretch
    times      seconds at its end                                         1 per stretch
    stays      id, seat, queued, admitted, cached, since, stopped, until, context, reserved, how
    served     seconds of the first token and of the end                  2 per finished stay
    chunks     tick, seat, tokens
    held       tick, seat            a decode missed the step
    paused     tick                  no decode ran in the step
    jumps      tick, and in `jump_times` the second at which it began, after an idle time

Requests that are complete are kept as they are until the next packing.
Ticks count steps from 0.  A stay lasts from admission to a preemption or the end: it decodes
in the ticks `since` .. `stopped` - 1, and leaves after tick `until` - 1.
"""

from __future__ import annotations

from array import array
from typing import Final

from batchwright.request import Request

STAY_FIELDS: Final = 11
PREEMPTED: Final = 0  # how a stay ends
COMPLETE: Final = 1
DROPPED: Final = 2  # its end was seen after it had been preempted
ABORTED: Final = 3  # cancelled by the client
SHORT: Final = 1 << 18  # numbers in `stretches` that are kept unpacked


def _row(r: Request, how: int) -> tuple[int, ...]:
    stopped = r.until if r.stopped == 0 or r.stopped > r.until else r.stopped
    return (
        r.id, r.seat, r.queued, r.admitted, r.cached, r.since, stopped, r.until, r.computed, r.reserved, how,
    )  # fmt: skip


class Log:
    """What happened on one replica."""

    def __init__(self) -> None:
        self.stretches: list[int] = []
        self.times: list[float] = []
        self.stays: list[int] = []
        self.served: list[float] = []
        self.ended: list[Request] = []  # complete stays, which are not in `stays` and `served` yet
        self.chunks: list[int] = []
        self.held: list[int] = []
        self.paused: list[int] = []
        self.jumps: list[int] = []
        self.jump_times: list[float] = []
        self._packed: dict[str, array[int]] = {}
        self._times = array("d")
        self._served = array("d")

    def stay(self, r: Request, how: int) -> None:
        """A stay of `r` in the batch has ended before its last token was out, or seen."""
        self.stays += _row(r, how)

    def jump(self, tick: int, seconds: float) -> None:
        """Nothing ran before `seconds`, when step `tick` begins."""
        if self.jumps and self.jumps[-1] == tick:
            self.jumps.pop()
            self.jump_times.pop()
        self.jumps.append(tick)
        self.jump_times.append(seconds)

    def pack(self) -> None:
        """Move the lists into arrays: 8 bytes a number instead of up to 40."""
        self._pack("stretches", self.stretches)
        self._pack("stays", self.stays)
        self._pack("chunks", self.chunks)
        self._pack("held", self.held)
        self._pack("paused", self.paused)
        self._times += array("d", self.times)
        self.times.clear()
        self._served += array("d", self.served)
        self.served.clear()
        self._pack_ended()

    def _pack_ended(self) -> None:
        rows: list[int] = []
        seconds: list[float] = []
        for r in self.ended:
            rows += _row(r, COMPLETE)
            seconds += (r.first_token, r.finished)
        self._pack("stays", rows)
        self._served += array("d", seconds)
        self.ended.clear()

    def column(self, name: str) -> array[int]:
        """All integers recorded under `name`, in order."""
        self.pack()
        return self._packed[name]

    def seconds(self) -> array[float]:
        """The end of every stretch."""
        self.pack()
        return self._times

    def served_seconds(self) -> array[float]:
        """First token and end of every finished stay, in the order of `stays`."""
        self.pack()
        return self._served

    def _pack(self, name: str, numbers: list[int]) -> None:
        packed = self._packed.get(name)
        if packed is None:
            packed = array("q")
            self._packed[name] = packed
        packed += array("q", numbers)  # twice as fast as to extend by a list
        numbers.clear()
