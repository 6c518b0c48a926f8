"""When everything in a run happened, as arrays made from its log; no step is expanded.

    stretch   ticks first .. last - 1, from second begins to times; nothing changes inside
    tick      ends[tick], the second at which that step ended
    clock     the ticks in which decodes ran, counted from 0

A stay decodes in the clocks of its ticks since .. stopped - 1, but for those it was held in, so
all that a stretch computes are sums over stays that begin and end at stretches:

    decodes = stays with since <= first < stopped
    context = sum of (context at the end - clock at the end + clock), over decodes and padded rows

Under speculation every stretch in which somebody decodes is one step; `accepted` are the tokens
that decodes gained beside the one of the clock.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from batchwright.cost import CostModel, Stretch, reads_extremes
from batchwright.log import ABORTED, DROPPED, STAY, Log
from batchwright.metrics import Numbers
from batchwright.run.decode_runs import extremes
from batchwright.run.pricing import Quiet, inner_seconds


class Timeline:
    """The log of a run that has ended.  Times in seconds from the first arrival.

    `pads`: requests that have ended are computed until they leave.  `stretch` is the time of
    quiet steps under `cost`, and `overlap` says whether a host hides behind the device.
    """

    def __init__(self, log: Log, pads: bool, cost: CostModel, overlap: bool, stretch: Stretch) -> None:
        self.log = log
        self.pads = pads
        self._price = (cost, overlap, stretch)

    # --- stretches and ticks --------------------------------------------------

    def column(self, name: str) -> Numbers:
        """All integers recorded under `name`."""
        return np.frombuffer(self.log.column(name), np.int64)

    @cached_property
    def steps(self) -> Numbers:
        """Steps of every stretch."""
        return self.column("steps")

    @cached_property
    def last(self) -> Numbers:
        """The tick after every stretch."""
        return np.cumsum(self.steps)

    @cached_property
    def first(self) -> Numbers:
        """The first tick of every stretch."""
        return self.last - self.steps

    @property
    def num_steps(self) -> int:
        """All of them."""
        return int(self.last[-1]) if len(self.last) else 0

    @cached_property
    def times(self) -> Numbers:
        """The end of every stretch, in seconds."""
        return np.frombuffer(self.log.seconds("times"), np.float64)

    @cached_property
    def begins(self) -> Numbers:
        """The start of every stretch, in seconds: the end of the one before, or of an idle time."""
        begins = np.concatenate(([0.0], self.times))[:-1]
        at = np.searchsorted(self.first, self.log.jumps)
        is_inside = at < len(begins)
        begins[at[is_inside]] = np.array(self.log.jump_times)[is_inside]
        return begins

    @property
    def starts(self) -> Numbers:
        """The start of every step, in seconds."""
        starts = np.concatenate(([0.0], self.ends))[:-1]
        starts[self.first] = self.begins
        return starts

    @property
    def busy(self) -> Numbers:
        """Seconds of every stretch."""
        return self.times - self.begins

    def stretch_of(self, ticks: Numbers) -> Numbers:
        """The stretch of each tick; the number of stretches for a tick after the last."""
        return np.searchsorted(self.last, ticks, side="right")

    def begin_of(self, ticks: Numbers) -> Numbers:
        """When the stretch that begins at each tick begins; infinite after the last."""
        return np.append(self.begins, np.inf)[self.stretch_of(ticks)]

    def end_before(self, ticks: Numbers) -> Numbers:
        """When the step before each tick ended; 0 before the first."""
        return np.concatenate(([0.0], self.times))[np.searchsorted(self.last, ticks) + (ticks > 0)]

    # --- stays ----------------------------------------------------------------

    @cached_property
    def stays(self) -> dict[str, Numbers]:
        """The fields of every stay."""
        return {name: self.column(name) for name in STAY}

    @cached_property
    def is_admitted(self) -> Numbers:
        """Which stays had a seat."""
        how = self.stays["how"]
        result: Numbers = (how != DROPPED) & ((how != ABORTED) | (self.stays["seat"] > 0))
        return result

    @cached_property
    def admitted(self) -> dict[str, Numbers]:
        """The fields of the stays that had a seat, in order of admission."""
        order = np.flatnonzero(self.is_admitted)
        order = order[np.argsort(self.stays["seat"][order], kind="stable")]
        return {name: column[order] for name, column in self.stays.items()}

    @cached_property
    def has_prompt(self) -> Numbers:
        """Which stays, in order of admission, complete a prompt.  Others come with their KV, or never do."""
        has_prompt: Numbers = self.admitted["since"] > self.admitted["admitted"]
        return has_prompt

    @cached_property
    def chunks(self) -> tuple[Numbers, Numbers]:
        """Tick and seat of every chunk; the one that completes a prompt comes right before `since`."""
        early = self.column("chunks").reshape(-1, 3)
        has_all = self.has_prompt
        ticks = np.concatenate((early[:, 0], self.admitted["since"][has_all] - 1))
        return ticks, np.concatenate((early[:, 1], self.admitted["seat"][has_all]))

    # --- the decode clock -----------------------------------------------------

    @cached_property
    def is_paused(self) -> Numbers:
        """Per stretch: did no decode run?"""
        paused = np.zeros(len(self.steps), bool)
        paused[self.stretch_of(self.column("paused"))] = True
        return paused

    def clock(self, ticks: Numbers) -> Numbers:
        """Steps before each tick in which decodes ran."""
        paused = self.column("paused")
        return ticks - np.searchsorted(paused, ticks) if len(paused) else ticks

    @cached_property
    def clock_ends(self) -> Numbers:
        """The end of every tick in which decodes ran, in seconds."""
        return np.delete(self.ends, self.column("paused"))

    @cached_property
    def held(self) -> tuple[Numbers, Numbers]:
        """Tick and place in `admitted` of every decode that missed a step in which others ran."""
        pairs = self.column("held").reshape(-1, 2)
        pairs = pairs[~self.is_paused[self.stretch_of(pairs[:, 0])]]
        return pairs[:, 0], np.searchsorted(self.admitted["seat"], pairs[:, 1])

    @cached_property
    def accepted(self) -> tuple[Numbers, Numbers, Numbers]:
        """Tick, place in `admitted` and number of the drafts that decodes gained, in order of ticks."""
        rows = self.column("accepted").reshape(-1, 3)
        return rows[:, 0], np.searchsorted(self.admitted["seat"], rows[:, 1]), rows[:, 2]

    # --- rows -----------------------------------------------------------------

    def count(self, begin: Numbers, end: Numbers, weights: Numbers | None = None) -> Numbers:
        """Per stretch, how many of the spans of ticks begin .. end - 1 hold it, or their weights' sum."""
        size = len(self.steps) + 1
        change = np.bincount(self.stretch_of(begin), weights, size)
        change -= np.bincount(self.stretch_of(end), weights, size)
        return np.cumsum(change)[:-1].astype(np.int64)

    @cached_property
    def decodes(self) -> Numbers:
        """Decodes of every stretch."""
        has_token = self.admitted["since"] >= 0
        count = self.count(self.admitted["since"][has_token], self.admitted["stopped"][has_token])
        count[self.is_paused] = 0
        np.subtract.at(count, self.stretch_of(self.held[0]), 1)
        return count

    @cached_property
    def padded(self) -> Numbers:
        """Rows of every stretch that have ended and are still computed."""
        if not self.pads:
            return np.zeros(len(self.steps), np.int64)
        has_token = self.admitted["since"] >= 0
        count = self.count(self.admitted["stopped"][has_token], self.admitted["until"][has_token])
        count[self.is_paused] = 0
        return count

    @cached_property
    def first_context(self) -> Numbers:
        """KV tokens that decodes and padded rows read in the first step of every stretch without holds."""
        stays = self.admitted
        has_token = stays["since"] >= 0
        since = stays["since"][has_token]
        end = stays["until" if self.pads else "stopped"][has_token]
        shift = stays["context"][has_token] - self.clock(stays["stopped"][has_token])
        tokens = self.count(since, end, shift)
        tokens += self.count(since, end) * self.clock(self.first)
        ticks, places = self.held
        tokens += self.count(stays["since"][places], ticks)  # tokens that were there before a hold
        return tokens

    def _extremes(self, is_long: Numbers) -> tuple[Numbers, Numbers] | None:
        """Least and greatest context of long stretches, if the cost model asks for them."""
        if not reads_extremes(self._price[0]):
            return None
        least, greatest = extremes(self)
        return least[is_long], greatest[is_long]

    @cached_property
    def ends(self) -> Numbers:
        """The end of every step, in seconds; those inside a stretch are priced anew."""
        is_long = self.steps > 1
        quiet = Quiet(
            decodes=self.decodes[is_long],
            padded=self.padded[is_long],
            context=self.first_context[is_long],
            steps=self.steps[is_long],
            extremes=self._extremes(is_long),
        )
        is_inside = np.ones(self.num_steps, bool)
        is_inside[self.last - 1] = False
        ends = np.empty(self.num_steps)
        ends[is_inside] = np.repeat(self.begins[is_long], quiet.steps - 1) + inner_seconds(
            quiet, *self._price
        )
        ends[self.last - 1] = self.times
        return ends
