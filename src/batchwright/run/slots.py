"""Where the time went: every second of every slot of a run, under one of six names.

    prefill              its request computes prompt tokens in the step
    decode               its request gains a token
    padding              what is computed for nothing: rows that have ended, and the part of a
                         prompt's row that is only there because another prompt is longer
    held                 it has a request that is not computed: a decode that misses the step, a
                         prompt without budget, an end that is not seen yet or waits for others, a
                         decode while the step waits for KV that moves
    idle with a queue    it has none, and somebody waits
    idle without         it has none, and nobody does

Who is moved to host memory, waits there or comes back has no slot, and waits.  Slots are the seats that
the policy uses (its batch size, or `max_num_seqs`), seconds those from the first arrival to the last end;
each step counts for its whole length.  The shares sum to 1.
All comes from sums over stays and stretches; no step is expanded.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from batchwright.metrics import Numbers, number
from batchwright.run.counts import Count, seat_begins, seat_ends
from batchwright.run.timeline import Timeline

if TYPE_CHECKING:
    from batchwright.run import Run


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Shares of `num_slots` slots times `seconds`; all nan if nothing has finished."""

    num_slots: int
    seconds: float
    prefill: float
    decode: float
    padding: float
    held: float
    idle_with_queue: float
    idle_without_queue: float

    @property
    def shares(self) -> dict[str, float]:
        """The parts by name; they sum to 1."""
        rows = asdict(self)
        return {name: rows[name] for name in PARTS}

    def to_json(self) -> dict[str, Any]:
        """With units in the names."""
        shares = {name: number(share) for name, share in self.shares.items()}
        return {"num_slots": self.num_slots, "seconds_s": number(self.seconds), "shares": shares}


PARTS = ("prefill", "decode", "padding", "held", "idle_with_queue", "idle_without_queue")


def slots(run: Run) -> Slots:
    """The partition of the slot-seconds of a run."""
    finished = run.requests()["finished_s"]
    if np.isnan(finished).all():
        return Slots(num_slots=run.seats, seconds=np.nan, **dict.fromkeys(PARTS, np.nan))
    end = float(np.nanmax(finished))
    used = [_used(part, end) for part in run.parts]
    prefill, decode, rows, wasted, seated = (sum(column) for column in zip(*used, strict=True))
    total = run.seats * end
    idle = total - seated
    queued = _idle_with_queue(run, end)
    parts = {
        "prefill": prefill,
        "decode": decode,
        "padding": rows + wasted,
        "held": _not_negative(seated - prefill - wasted - decode - rows, total),
        "idle_with_queue": queued,
        "idle_without_queue": _not_negative(idle - queued, total),
    }
    shares = {name: float(seconds) / total for name, seconds in parts.items()}
    return Slots(num_slots=run.seats, seconds=end, **shares)


def _used(run: Run, end: float) -> tuple[float, float, float, float, float]:
    """Slot-seconds up to `end`: prefill, decode, padded rows, padding of prompts, and of all stays."""
    timeline = run.timeline
    busy = np.minimum(timeline.times, end) - np.minimum(timeline.begins, end)
    decode = float((timeline.decodes * busy).sum())
    rows = float((timeline.padded * busy).sum())
    prefill, wasted = _prompts(timeline, run.load.prompt, busy)
    seated = np.minimum(seat_ends(timeline), end) - np.minimum(seat_begins(timeline), end)
    return prefill, decode, rows, wasted, float(seated.sum())


def _not_negative(rest: float, total: float) -> float:
    """What is left over; rounding may leave a little less than nothing."""
    assert rest > -1e-9 * total, "more slot-seconds are used than there are"
    return max(rest, 0.0)


def _prompts(timeline: Timeline, prompt: Numbers, busy: Numbers) -> tuple[float, float]:
    """Slot-seconds of the prompt tokens, and of the padding behind them.

    A policy that pads rows pads prompts, too: each is computed as long as the longest that was
    admitted with it.
    """
    ticks, seats = timeline.chunks
    seconds = busy[timeline.stretch_of(ticks)]
    if not timeline.pads:
        return float(seconds.sum()), 0.0
    stays = timeline.admitted
    at = np.searchsorted(stays["seat"], seats)
    lengths = prompt[stays["id"][at]]
    batch = np.unique(stays["admitted"][at], return_inverse=True)[1]
    longest = np.zeros(len(batch), np.int64)
    np.maximum.at(longest, batch, lengths)
    useful = lengths / longest[batch]
    return float((seconds * useful).sum()), float((seconds * (1 - useful)).sum())


def _idle_with_queue(run: Run, end: float) -> float:
    """Slot-seconds without a request up to `end`, while somebody waited."""
    times = np.union1d(run.waiting.times, run.running.times)
    free = np.where(run.waiting.at(times) > 0, run.seats - run.running.at(times), 0)
    return Count(times=times, values=free).area(end)
