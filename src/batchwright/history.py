"""The steps of a run, expanded from its run-length log.

A stay decodes one token in each of its ticks `since` .. `stopped` - 1, but for those that it
was held in and those in which no decode ran, and beside it the drafts that were accepted; free
blocks are recomputed backwards from the end of every stretch.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from batchwright.errors import InputError
from batchwright.log import ABORTED, COMPLETE, DROPPED, MOVED, PREEMPTED, STAY, SWAPPED, Log


@dataclass(slots=True)
class EngineStep:
    """One step as the engine ran it.  Requests by id, in the engine's order."""

    scheduled: list[tuple[int, int]] = field(default_factory=list)  # id, tokens (no rejected drafts)
    admitted: list[tuple[int, int]] = field(default_factory=list)  # id, cached tokens
    brought: list[tuple[int, int]] = field(default_factory=list)  # of the admitted: id, tokens of its own KV
    preempted: list[int] = field(default_factory=list)
    swapped: list[int] = field(default_factory=list)  # of the preempted, those whose KV is kept
    finished: list[int] = field(default_factory=list)
    moved: list[int] = field(default_factory=list)  # their prompt is complete, and they decode elsewhere
    aborted: list[int] = field(default_factory=list)
    dropped: int = 0  # of the finished, those that waited: preempted before their end was seen
    free_blocks_sched: int = 0  # before the step's releases
    free_blocks: int = 0  # after them
    running: int = 0  # after the step
    waiting: int = 0
    prefill_tokens: int = 0
    num_decodes: int = 0
    padded_rows: int = 0
    context_tokens: int = 0  # KV tokens that decodes and padded rows read


@dataclass(frozen=True, slots=True)
class Stay:
    """One stay of a request in the batch; ticks as in `log`."""

    id: int
    seat: int
    queued: int
    admitted: int
    cached: int
    brought: int
    since: int
    stopped: int
    until: int
    context: int
    reserved: int
    how: int


def stays(log: Log) -> list[Stay]:
    """Every stay, in no special order."""
    return [Stay(*row) for row in zip(*(log.column(name) for name in STAY), strict=True)]


def steps(log: Log, num_blocks: int, block_size: int, pads: bool = False) -> list[EngineStep]:
    """Every step of a run that has ended, in order; `num_blocks`, `block_size`: of its KV cache.

    Raises InputError if requests still have seats.
    `pads`: requests that have ended are computed until they leave (`Batch.on_end` is PAD).
    """
    return _Expansion(log, num_blocks, block_size, pads).run()


class _Expansion:
    def __init__(self, log: Log, num_blocks: int, block_size: int, pads: bool) -> None:
        self.log = log
        self.size = num_blocks
        self.pads = pads
        self.block_size = block_size
        count = sum(log.column("steps"))
        self.steps = [EngineStep() for _ in range(count)]
        self.seats: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]  # seat, id, tokens
        self.begins: list[list[tuple[int, int, int]]] = [[] for _ in range(count)]  # seat, id, cached
        self.ends: list[list[tuple[int, int]]] = [[] for _ in range(count)]  # seat, id
        self.taken = [0] * count  # blocks that decodes took
        self.missed = _pairs(log, "held")
        self.accepted = _accepted(log)
        self.paused = set(log.column("paused"))

    def run(self) -> list[EngineStep]:
        found = stays(self.log)
        ids = {stay.seat: stay.id for stay in found if stay.seat > 0}
        if len(ids) < self.log.num_seats:
            raise InputError("the run is not over: requests have seats; drain it and advance to the end")
        done: dict[int, int] = defaultdict(int)  # prompt tokens by seat, last chunks left out
        chunks = self.log.column("chunks")
        for i in range(0, len(chunks), 3):
            tick, seat, tokens = chunks[i : i + 3]
            self._chunk(tick, seat, ids[seat], tokens)
            done[seat] += tokens
        came: set[int] = set()
        for stay in found:
            if stay.id not in came:
                came.add(stay.id)
                self._count(stay.queued, waiting=1)
            self._enter(stay, done[stay.seat])
        self._order()
        self._free()
        return self.steps

    def _count(self, tick: int, waiting: int = 0, running: int = 0) -> None:
        """First as changes; `_order` sums them up."""
        if tick < len(self.steps):
            self.steps[tick].waiting += waiting
            self.steps[tick].running += running

    def _enter(self, stay: Stay, done: int) -> None:
        if stay.how == DROPPED:
            self.ends[stay.until - 1].append((stay.seat, stay.id))
            self.steps[stay.until - 1].dropped += 1
            self._count(stay.until - 1, waiting=-1)
        elif stay.how == ABORTED and stay.seat == 0:
            self._abort(stay, waiting=-1)
        else:
            self._enter_stay(stay, done)

    def _enter_stay(self, stay: Stay, done: int) -> None:
        if stay.admitted < len(self.steps):  # else it went before a step ran
            self.begins[stay.admitted].append((stay.seat, stay.id, stay.cached))
        self._count(stay.admitted, waiting=-1, running=1)
        if stay.how == COMPLETE:
            self.ends[stay.until - 1].append((stay.seat, stay.id))
            self._count(stay.until - 1, running=-1)
        elif stay.how == MOVED:
            self.steps[stay.until - 1].moved.append(stay.id)
            self._count(stay.until - 1, running=-1)
        elif stay.how == PREEMPTED or stay.how == SWAPPED:
            self._preempt(stay)
        else:
            self._abort(stay, running=-1)
        if stay.brought > 0 and stay.until > stay.admitted:
            self.steps[stay.admitted].brought.append((stay.id, stay.brought))
        if stay.since >= 0:
            rest = self._decodes(stay) - stay.cached - stay.brought - done
            if stay.since > stay.admitted:
                self._chunk(stay.since - 1, stay.seat, stay.id, rest)

    def _preempt(self, stay: Stay) -> None:
        self._count(stay.until, waiting=1, running=-1)
        if stay.until < len(self.steps):
            self.steps[stay.until].preempted.append(stay.id)
            if stay.how == SWAPPED:
                self.steps[stay.until].swapped.append(stay.id)

    def _chunk(self, tick: int, seat: int, id: int, tokens: int) -> None:
        self.seats[tick].append((seat, id, tokens))
        self.steps[tick].prefill_tokens += tokens

    def _abort(self, stay: Stay, waiting: int = 0, running: int = 0) -> None:
        self._count(stay.until, waiting, running)
        if stay.until < len(self.steps):
            self.steps[stay.until].aborted.append(stay.id)

    def _decodes(self, stay: Stay) -> int:
        """Enter the decodes of a stay, from its end backwards; its context before the first."""
        context = stay.context
        for tick in range(stay.stopped - 1, stay.since - 1, -1):
            if (tick, stay.seat) in self.missed or tick in self.paused:
                continue
            tokens = 1 + self.accepted.get((tick, stay.seat), 0)
            context -= tokens
            self.seats[tick].append((stay.seat, stay.id, tokens))
            self.taken[tick] += stay.reserved == 0 and context % self.block_size == 0
            self.steps[tick].num_decodes += 1
            self.steps[tick].context_tokens += context
        filled = context
        for tick in range(stay.stopped, stay.until if self.pads else stay.stopped):
            self.steps[tick].padded_rows += 1
            self.steps[tick].context_tokens += stay.context + tick - stay.stopped
        return filled

    def _order(self) -> None:
        running = waiting = 0
        rows = zip(self.steps, self.seats, self.begins, self.ends, strict=True)
        for step, seats, begins, ends in rows:
            step.scheduled = [(id, tokens) for _, id, tokens in sorted(seats)]
            step.admitted = [(id, cached) for _, id, cached in sorted(begins)]
            step.finished = [id for _, id in sorted(ends)]
            running += step.running
            waiting += step.waiting
            step.running, step.waiting = running, waiting

    def _free(self) -> None:
        """Free blocks in every stretch, from its end backwards."""
        names = ("steps", "taken", "freed")
        end, after = 0, self.size
        for steps, taken, freed in zip(*(self.log.column(name) for name in names), strict=True):
            end += steps
            free = after - taken
            after = now = free + freed
            for tick in range(end - 1, end - 1 - steps, -1):
                self.steps[tick].free_blocks_sched = free
                self.steps[tick].free_blocks = now
                free += self.taken[tick]
                now = free


def _pairs(log: Log, name: str) -> set[tuple[int, int]]:
    flat = log.column(name)
    return {(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)}


def _accepted(log: Log) -> dict[tuple[int, int], int]:
    """Drafts accepted, by tick and seat."""
    flat = log.column("accepted")
    return {(flat[i], flat[i + 1]): flat[i + 2] for i in range(0, len(flat), 3)}
