"""When every step ran and every token came, from the run-length log, as arrays.

Nothing is expanded into objects: a stretch of k quiet steps is priced from three sums over the
stays, each of them a running sum of what begins and ends at a tick.

    rows at t     = stays with since <= t < stopped                (decodes; padded rows alike)
    context at t  = sum over them of  context - decodes in t .. stopped - 1

A stay brings its first token with step `since` - 1 and one more with each step that it decodes
in, so the tokens of an undisturbed stay are one slice of the ends of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchwright.log import DROPPED, STAY
from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.step import Step


@dataclass(frozen=True, kw_only=True)
class Decodes:
    """The stays that got as far as a token, and the steps in which decodes missed a turn.

    `seats`, `since`, `stopped`, `until`, `context`, `ids`: one value per stay, as in `log`;
    `paused`: per step, did no decode run?  `held`: ticks by seat.
    """

    ids: Numbers
    seats: Numbers
    since: Numbers
    stopped: Numbers
    until: Numbers
    context: Numbers
    paused: Numbers
    held: dict[int, list[int]]

    def ticks(self, stay: int) -> Numbers | slice:
        """The steps that each brought a token of the `stay`-th stay."""
        first, last = int(self.since[stay]) - 1, int(self.stopped[stay])
        held = self.held.get(int(self.seats[stay]), [])
        if not held and not self.paused[first + 1 : last].any():
            return slice(first, last)
        runs = ~self.paused[first:last]
        runs[0] = True  # the first token comes with a chunk, not with a decode
        runs[np.array(held, np.int64) - first] = False
        return first + np.flatnonzero(runs)


def decodes_of(run: Run) -> Decodes:
    """What `run` decoded, in order of admission."""
    stay = {name: _ints(run, name) for name in STAY}
    has_token = (stay["since"] >= 0) & (stay["seat"] > 0) & (stay["how"] != DROPPED)
    order = np.flatnonzero(has_token)[np.argsort(stay["seat"][has_token])]
    paused = np.zeros(num_steps(run), np.bool_)
    paused[_ints(run, "paused")] = True
    held: dict[int, list[int]] = {}
    pairs = run.log.column("held").tolist()
    for tick, seat in zip(pairs[::2], pairs[1::2], strict=True):
        held.setdefault(seat, []).append(tick)
    return Decodes(
        ids=stay["id"][order],
        seats=stay["seat"][order],
        since=stay["since"][order],
        stopped=stay["stopped"][order],
        until=stay["until"][order],
        context=stay["context"][order],
        paused=paused,
        held=held,
    )


def num_steps(run: Run) -> int:
    """Steps of `run`."""
    return int(_ints(run, "steps").sum())


def step_times(run: Run, decodes: Decodes | None = None) -> tuple[Numbers, Numbers]:
    """Start and end of every step in seconds, bit for bit those of `run.steps()`."""
    stretches = run.stretches()
    ends = np.empty(num_steps(run))
    ends[stretches["step"] + stretches["steps"] - 1] = stretches["end_s"]
    long = np.flatnonzero(stretches["steps"] > 1)
    columns = [stretches[name][long].tolist() for name in ("step", "start_s", "steps")]
    work = _quiet_work(decodes or decodes_of(run), stretches["step"][long], len(ends), run.pads)
    for first, begin, steps, quiet in zip(*columns, work, strict=True):
        ends[first : first + steps - 1] = [begin + run.price(quiet, k) for k in range(1, steps)]
    starts = np.concatenate(([0.0], ends))[:-1]
    starts[stretches["step"]] = stretches["start_s"]
    return starts, ends


def token_times(run: Run) -> list[Numbers]:
    """Per request, in order of arrival, the seconds at which its tokens were made.

    A request that was rejected or cancelled has none, or those that it got.  A client sees them
    at these times only where the policy streams (`run.is_streamed`), else when the batch ends.
    """
    decodes = decodes_of(run)
    _, ends = step_times(run, decodes)
    parts: list[list[Numbers]] = [[] for _ in range(len(run.load))]
    for stay, id in enumerate(decodes.ids.tolist()):
        parts[id].append(ends[decodes.ticks(stay)])
    nothing = np.empty(0)
    return [_joined(found) if found else nothing for found in parts]


def _joined(parts: list[Numbers]) -> Numbers:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _quiet_work(decodes: Decodes, ticks: Numbers, num_steps: int, pads: bool) -> list[Step]:
    """The work of the steps `ticks`, none of which has a chunk or misses a decode."""
    since, stopped, until = decodes.since, decodes.stopped, decodes.until
    clock = np.concatenate(([0], np.cumsum(~decodes.paused)))  # steps with decodes before a tick
    rows = _sums(since, stopped, num_steps)
    offset = _sums(since, stopped, num_steps, decodes.context - clock[stopped])
    padded = _sums(stopped, until if pads else stopped, num_steps)
    padding = _sums(stopped, until if pads else stopped, num_steps, decodes.context - stopped)
    context = offset + _missed(decodes, num_steps) + padding
    counts = rows[ticks], padded[ticks], context[ticks] + rows[ticks] * clock[ticks] + padded[ticks] * ticks
    return [_quiet(*row) for row in zip(*(count.tolist() for count in counts), strict=True)]


def _missed(decodes: Decodes, num_steps: int) -> Numbers:
    """At every tick, the steps that the decodes of then will miss."""
    pairs = [
        (since, tick + 1)
        for since, seat in zip(decodes.since.tolist(), decodes.seats.tolist(), strict=True)
        for tick in decodes.held.get(seat, ())
    ]
    first, end = np.array(pairs, np.int64).reshape(-1, 2).T
    return _sums(first, end, num_steps)


def _sums(first: Numbers, end: Numbers, num_steps: int, values: Numbers | int = 1) -> Numbers:
    """At every tick, the sum of `values` over those with `first` <= tick < `end`."""
    change = np.zeros(num_steps + 1, np.int64)
    np.add.at(change, first, values)
    np.subtract.at(change, end, values)
    result: Numbers = np.cumsum(change)
    return result


def _quiet(num_decodes: int, padded_rows: int, context: int) -> Step:
    step = Step()
    step.quiet(num_decodes, padded_rows, context)
    return step


def _ints(run: Run, name: str) -> Numbers:
    return np.frombuffer(run.log.column(name), np.int64)
