"""One policy on one workload: what it did, as columns made from its log when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from batchwright.batch import LEAVE, PAD
from batchwright.driver import Driver
from batchwright.errors import InputError, nearest
from batchwright.figures import signed_seconds
from batchwright.interval import Interval, difference, paired_interval, sectioned, series_interval, warm_up
from batchwright.log import COMPLETE, DROPPED, PREEMPTED, SWAPPED, Log
from batchwright.metrics import NOTHING, STATISTICS, Numbers, Spread, spread, tpot
from batchwright.run.counts import Count, seat_begins, seated, waiting
from batchwright.run.estimates import SPREADS, estimates, kept_requests
from batchwright.run.fairness import Fairness, alone, clients, fairness
from batchwright.run.gaps import Gaps, gaps, merged
from batchwright.run.saturation import STEADY, Verdict, saturation
from batchwright.run.slots import Slots, slots
from batchwright.run.state import State, state
from batchwright.run.step_columns import step_columns
from batchwright.run.summary import Summary as Summary
from batchwright.run.summary import summarise
from batchwright.run.timeline import Timeline
from batchwright.run.windows import Window, windows
from batchwright.run.work_columns import work_columns
from batchwright.slo import Slo
from batchwright.workload import Workload

METRICS: Final = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}


class Paired(Protocol):
    """Runs of the same policies on several loads."""

    def difference(self, a: str, b: str, metric: str) -> Interval:
        """How much higher `metric` is for `a` than for `b`."""


class Run:
    """The result of one policy, simulated or live.  `name` is how the policy was called."""

    def __init__(self, name: str, load: Workload, driver: Driver) -> None:
        self.name = name
        self.note = ""  # what was chosen for the user
        self.policy: Any = None  # what was run, where the run is of a comparison
        self.siblings: Paired | None = None  # all loads of that comparison
        self.load = load
        self.arrival = load.arrival_in(driver.arrived)  # seconds from the first arrival, by id
        self.limits = driver.batch.limits
        self.is_streamed = driver.batch.is_streamed
        self.pads = driver.batch.on_end == PAD
        self.leaves_at_once = driver.batch.on_end == LEAVE
        self.seats = driver.batch.max_running
        self.rejected = driver.rejected
        self.num_cut = driver.num_cut
        self.num_decisions = driver.num_decisions
        self.caches = driver.batch.blocks.caching and load.has_prefixes
        self.stretch = driver.plain
        self._timeline = Timeline(driver.log, self.pads, driver.cost, driver.batch.overlap, driver.stretch)
        driver.log.pack()

    def __repr__(self) -> str:
        done = np.count_nonzero(~np.isnan(self._requests["finished_s"]))
        return f"<Run {self.name} on {self.load.name}: {done} of {len(self.load)} requests finished>"

    @property
    def parts(self) -> Sequence[Run]:
        """A run for each server: itself, if there is one."""
        return (self,)

    @property
    def num_requests(self) -> int:
        """Requests that came to its servers; those that were rejected never do."""
        return sum(len(np.unique(part.timeline.stays["id"])) for part in self.parts)

    @property
    def timeline(self) -> Timeline:
        """When everything happened.  Raises InputError if there are several servers."""
        return self._timeline

    @property
    def log(self) -> Log:
        """What happened.  Raises InputError if there are several servers."""
        return self.timeline.log

    # --- columns --------------------------------------------------------------

    def requests(self) -> dict[str, Numbers]:
        """One row per request, in order of arrival; nan for what a request never had.

        Times in seconds from the first arrival, lengths in tokens.
        """
        return _read_only(self._requests)

    def steps(self) -> dict[str, Numbers]:
        """One row per step, in order."""
        return _read_only(self._steps)

    @cached_property
    def _requests(self) -> dict[str, Numbers]:
        load, arrival, count = self.load, self.arrival, len(self.load)
        first_token, finished = self._token_times()
        output = np.minimum(load.output, np.maximum(self.limits.longest - load.prompt, 0))
        cached, recomputes, swaps = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
        for part in self.parts:
            stays, admitted = part.timeline.stays, part.timeline.admitted
            cached += np.bincount(admitted["id"], admitted["cached"], minlength=count)
            recomputes += np.bincount(stays["id"][stays["how"] == PREEMPTED], minlength=count)
            swaps += np.bincount(stays["id"][stays["how"] == SWAPPED], minlength=count)
        per_token = tpot(first_token, finished, output)
        e2e = finished - arrival
        return {
            "id": np.arange(count),
            "arrival_s": arrival,
            "prompt_tokens": load.prompt,
            "output_tokens": output,
            "cached_tokens": cached.astype(np.int64),
            "preemptions": recomputes + swaps,
            "swaps": swaps,
            "scheduled_s": self._first_admitted(),
            "first_token_s": first_token,
            "finished_s": finished,
            "ttft_s": first_token - arrival,
            "tpot_s": per_token if self.is_streamed else np.full(count, np.nan),
            "e2e_s": e2e,
            "normalised_s": e2e / np.maximum(output, 1),
        }

    def _first_admitted(self) -> Numbers:
        """Seconds at which each request got its first seat, by id; nan for a request that never had one."""
        found = np.full(len(self.load), np.inf)
        for part in self.parts:
            np.minimum.at(found, part.timeline.admitted["id"], seat_begins(part.timeline))
        found[np.isinf(found)] = np.nan
        return found

    def _token_times(self) -> tuple[Numbers, Numbers]:
        """Seconds of the first token and of the end, by id; nan for a request that has none."""
        count = len(self.load)
        first_token, finished = np.full(count, np.nan), np.full(count, np.nan)
        ended = [_ended(part.timeline) for part in self.parts]
        ids = np.concatenate([ids for ids, _, _ in ended])
        if len(ids) and (ids.max() >= count or len(np.unique(ids)) < len(ids)):
            raise InputError(
                f"{self.name}: the requests of the run are not those of {self.load.name}, whose ids are 0 to "
                f"{count - 1}; run load.requests()"
            )
        for ids, firsts, lasts in ended:
            first_token[ids], finished[ids] = firsts, lasts
        return first_token, finished

    @cached_property
    def _steps(self) -> dict[str, Numbers]:
        return self.made_steps()

    def made_steps(self) -> dict[str, Numbers]:
        """As `steps`, made anew, so that they do not stay: there may be millions."""
        made = step_columns(self.timeline, self.limits.blocks, self.limits.block_size)
        return made | work_columns(self.timeline)

    def transfers(self) -> dict[str, Numbers]:
        """One row per transfer of KV, in the order in which they were asked for; seconds as in `requests`.

        `way`: 0 if it leaves the KV cache, 1 if it comes.
        """
        who, when = self.timeline.column("transfers").reshape(-1, 3), self.log.seconds("transfer_times")
        seconds = np.frombuffer(when, np.float64).reshape(-1, 2)
        columns = dict(zip(("id", "way", "tokens"), who.T, strict=True))
        return _read_only(columns | {"begin_s": seconds[:, 0], "end_s": seconds[:, 1]})

    def saturation(self) -> Verdict:
        """Does its queue grow with the trace?"""
        if self.load.has_followers and np.nanmax(self.load.arrival) == 0:
            return Verdict(kind=STEADY, text="clients wait for their answers, so the queue is bounded")
        batch = 1 if self.leaves_at_once else self.seats
        return saturation(self.waiting, self.running, self.span, len(self.load), batch)

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last one of the run."""
        return float(np.nanmax(self.arrival))

    @cached_property
    def waiting(self) -> Count:
        """How many requests waited, and when."""
        return waiting([part.timeline for part in self.parts], self.arrival)

    @cached_property
    def running(self) -> Count:
        """How many requests had a seat, and when."""
        return seated([part.timeline for part in self.parts])

    # --- numbers --------------------------------------------------------------

    @cached_property
    def summary(self) -> Summary:
        """The numbers of a comparison."""
        return summarise(self)

    def state(self, since: float = 0.0) -> State:
        """What its servers did, over their busy time from second `since` on."""
        return state(self, since)

    def estimates(self, slo: Slo | None = None, skip: int = 0) -> dict[str, float]:
        """All numbers that can be compared, by name; nan: not applicable.

        `skip`: requests left out as warm-up, the first ones by arrival.  Raises InputError if none is left.
        """
        return estimates(self, slo, skip)

    def gaps(self, kept: Numbers | None = None) -> Gaps:
        """The gaps between successive tokens of the finished requests; `kept`: of these ids only."""
        is_counted = ~np.isnan(self._requests["finished_s"])
        if kept is not None:
            is_kept = np.zeros(len(is_counted), bool)
            is_kept[kept] = True
            is_counted &= is_kept
        first = self._requests["first_token_s"]
        return merged([gaps(part.timeline, is_counted, first) for part in self.parts])

    def itl(self, kept: Numbers | None = None) -> Spread:
        """The spread of all gaps between successive tokens, in seconds; not applicable if not streamed."""
        if not self.is_streamed:
            return NOTHING
        found = self._gaps if kept is None or len(kept) == len(self.load) else self.gaps(kept)
        return spread(found.seconds, found.counts)

    @cached_property
    def _gaps(self) -> Gaps:
        return self.gaps()

    def met(self, slo: Slo) -> Numbers | None:
        """Which requests met every objective, by id; None if none of them applies to the policy."""
        columns = self._requests
        if slo.itl is not None and self.is_streamed:
            columns = columns | {"greatest_itl_s": self._gaps.greatest}
        return slo.met(columns, self.is_streamed)

    @property
    def tokens_per_decode(self) -> float:
        """Tokens that a decode gained in a step on average: 1 without speculation; nan if none decoded."""
        timelines = [part.timeline for part in self.parts]
        rows = sum(int((timeline.decodes * timeline.steps).sum()) for timeline in timelines)
        drafts = sum(int(timeline.accepted[2].sum()) for timeline in timelines)
        return 1.0 + drafts / rows if rows else np.nan

    @cached_property
    def slots(self) -> Slots:
        """Where its slot-seconds went."""
        return slots(self)

    def windows(self, seconds: float, slo: Slo | None = None) -> list[Window]:
        """The run in windows of so many seconds.  Raises InputError on none, or over 10,000."""
        return windows(self, seconds, slo)

    def clients(self) -> dict[str, Numbers]:
        """One row per client, as columns.  Raises InputError if the load names no clients."""
        return clients(self)

    @cached_property
    def fairness(self) -> Fairness:
        """How alike clients and requests were served."""
        return fairness(self)

    @cached_property
    def slowdown(self) -> Numbers:
        """E2E of every request over what it would take alone, by id; nan if it has not finished."""
        columns = self._requests
        found = np.full(len(self.load), np.nan)
        budget = self.limits.max_num_batched_tokens
        for part in self.parts:
            rows = _ended(part.timeline)[0]
            prompt, output = columns["prompt_tokens"][rows], columns["output_tokens"][rows]
            found[rows] = columns["e2e_s"][rows] / alone(prompt, output, budget, part.stretch)
        return found

    def warm_up(self) -> int:
        """How many of the first requests to leave out before the rest is treated as steady: MSER-5 on E2E.

        0 for traces, which are what they are; for loads that come all at once; and where MSER-5
        would leave out more than half: such a run has no steady part.
        """
        if self.load.made is None or self.span == 0:
            return 0
        order = np.argsort(self.arrival, kind="stable")
        e2e = self._requests["e2e_s"][order]
        defined = np.flatnonzero(~np.isnan(e2e))
        skip = warm_up(e2e[defined]) or 0
        return int(defined[skip]) if skip > 0 else 0

    def interval(self, name: str, skip: int = 0) -> Interval:
        """`name`, such as `e2e_s` or `itl_s.p99`, with the interval that this one run allows.

        nan where it is too short.  Raises InputError on another name, and unless `skip` leaves a request.
        """
        column, which = metric_name(name)
        kept = kept_requests(self, skip)
        if column == "itl_s":
            return sectioned(which, lambda rows: _gap(self, rows, which), kept)
        return series_interval(self._requests[column][kept], which)

    def __sub__(self, other: Run) -> RunDifference:
        """The paired difference to a run of the same workload.  Raises InputError on another."""
        if self.load != other.load:
            raise InputError(
                f"{self.name} ran on {self.load.name}, {other.name} on another load, {other.load.name}; "
                "compare runs of one workload"
            )
        return RunDifference(self, other)


def _ended(timeline: Timeline) -> tuple[Numbers, Numbers, Numbers]:
    """Ids of the requests that got all their tokens, and the seconds of the first and the last one."""
    stays, log = timeline.stays, timeline.log
    ids = stays["id"][np.isin(stays["how"], (COMPLETE, DROPPED))]
    first, last = (np.frombuffer(log.seconds(name), np.float64) for name in ("first_token", "finished"))
    return ids, first, last


def _read_only(columns: dict[str, Numbers]) -> dict[str, Numbers]:
    for column in columns.values():
        column.setflags(write=False)
    return dict(columns)


def _gap(run: Run, rows: Numbers, which: str) -> float:
    return float(getattr(run.itl(rows), which))


def _gap_apart(a: Run, b: Run, rows: Numbers, which: str) -> float:
    return float(difference(_gap(a, rows, which), _gap(b, rows, which)))


def metric_name(name: str) -> tuple[str, str]:
    """Column and statistic of a name such as `ttft_s.p99`; without statistic the mean.  Raises InputError."""
    column, _, which = name.partition(".")
    if column not in SPREADS:
        raise InputError(f"no metric is called {column!r}{nearest(column, SPREADS)}")
    if which and which not in STATISTICS:
        raise InputError(f"no statistic is called {which!r}{nearest(which, STATISTICS)}")
    return column, which or "mean"


def paired(a: Run, b: Run, name: str, skip: int = 0) -> Interval:
    """How much higher `name` is in `a` than in `b`, request by request or section by section.

    `skip`: requests left out as warm-up, the first ones by arrival at `a`.  Raises InputError.
    """
    column, which = metric_name(name)
    kept = kept_requests(a, skip)
    if column == "itl_s":
        return sectioned(which, lambda rows: _gap_apart(a, b, rows, which), kept)
    return paired_interval(a.requests()[column][kept], b.requests()[column][kept], which)


def _signed(found: Interval) -> str:
    """`-98.5 s  [-104 s, -92.5 s]`."""
    value, low, high = (signed_seconds(x) for x in (found.value, found.low, found.high))
    return f"{value}  [{low}, {high}]" if found.is_known else value


@dataclass(frozen=True)
class RunDifference:
    """How much longer `a` takes than `b`: load by load, or request by request if there is one load."""

    a: Run
    b: Run

    def metric(self, name: str, skip: int = 0) -> Interval:
        """The difference of `name`, such as `ttft_s` or `e2e_s.p99`.  Raises InputError on another name.

        Over all loads, if both runs are of one comparison, after its warm-up.
        `skip`: requests left out as warm-up, the first ones by arrival at `a`.
        """
        column, which = metric_name(name)
        if self.a.siblings is not None and self.a.siblings is self.b.siblings and skip == 0:
            return self.a.siblings.difference(self.a.name, self.b.name, f"{column}.{which}")
        return paired(self.a, self.b, name, skip)

    def __str__(self) -> str:
        lines = [f"{self.a.name} - {self.b.name}, mean of paired differences with 95 % interval"]
        for name, title in METRICS.items():
            found = self.metric(name)
            if np.isnan(found.value):
                lines.append(f"  {title}  not applicable")
            else:
                lines.append(f"  {title}  {_signed(found)}")
        return "\n".join(lines)
