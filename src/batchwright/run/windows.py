"""A run in windows of time: what came in each, and how it was served.

Requests belong to the window of their arrival, whenever they end; tokens to the one in which
they were made; the queue is that at the end of the window.  Windows go on to the last end, so
that the tokens of all add up to those of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from batchwright.errors import InputError
from batchwright.metrics import Numbers, Spread, number, spread
from batchwright.run.timeline import Timeline
from batchwright.slo import Slo

if TYPE_CHECKING:
    from batchwright.run import Run

MOST: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Window:
    """One window.  Seconds, requests and tokens; nan: not applicable.

    rate        requests that came, per second
    waiting     requests in the queue at its end
    attainment  share of its requests that met the SLO; nan if there is none
    """

    start: float
    end: float
    num_requests: int
    rate: float
    output_throughput: float
    waiting: int
    ttft: Spread
    tpot: Spread
    e2e: Spread
    attainment: float

    def to_json(self) -> dict[str, Any]:
        """With units in the names."""
        return {
            "start_s": self.start,
            "end_s": self.end,
            "num_requests": self.num_requests,
            "rate_requests_per_s": self.rate,
            "output_throughput_tokens_per_s": self.output_throughput,
            "waiting_requests": self.waiting,
            "ttft_s": self.ttft.to_json(),
            "tpot_s": self.tpot.to_json(),
            "e2e_s": self.e2e.to_json(),
            "attainment": number(self.attainment),
        }


def windows(run: Run, seconds: float, slo: Slo | None = None) -> list[Window]:
    """The windows of a run, each `seconds` long but the last.

    Raises InputError unless `seconds` is greater than 0, and gives at most 10,000 windows.
    """
    ends = [float(part.timeline.times[-1]) for part in run.parts if len(part.timeline.times)]
    until = max([run.span, *ends])
    if not seconds > 0 or until / seconds > MOST:
        raise InputError(f"windows of {seconds:g} s in {until:.4g} s; give 1 to {MOST:,} windows")
    count = max(int(np.ceil(until / seconds - 1e-9)), 1)
    edges = np.arange(count + 1) * seconds
    edges[-1] = max(until, seconds) if count == 1 else until
    tokens = np.diff(tokens_by(run, edges[1:]), prepend=0)
    met = None if slo is None else run.met(slo)
    return [
        _window(run, edges[i : i + 2], rows, int(tokens[i]), met)
        for i, rows in enumerate(_rows(run.arrival, edges))
    ]


def _rows(arrival: Numbers, edges: Numbers) -> list[Numbers]:
    """Ids of the requests that came in each window; one that never came (nan) is in none."""
    came = np.flatnonzero(~np.isnan(arrival))
    order = came[np.argsort(arrival[came], kind="stable")]
    return np.split(order, np.searchsorted(arrival[order], edges[1:-1]))


def _window(run: Run, edges: Numbers, rows: Numbers, tokens: int, met: Numbers | None) -> Window:
    columns, (start, end) = run.requests(), edges.tolist()
    length = end - start
    return Window(
        start=start,
        end=end,
        num_requests=len(rows),
        rate=len(rows) / length,
        output_throughput=tokens / length,
        waiting=int(run.waiting.at(edges[1:])[0]),
        ttft=spread(columns["ttft_s"][rows]),
        tpot=spread(columns["tpot_s"][rows]),
        e2e=spread(columns["e2e_s"][rows]),
        attainment=float(met[rows].mean()) if met is not None and len(rows) else np.nan,
    )


def tokens_by(run: Run, seconds: Numbers) -> Numbers:
    """Output tokens made up to each moment, whether or not clients have seen them."""
    result: Numbers = np.sum([_tokens_by(part.timeline, seconds) for part in run.parts], axis=0)
    return result


def _tokens_by(timeline: Timeline, seconds: Numbers) -> Numbers:
    first = timeline.admitted["since"]
    first = np.sort(timeline.ends[first[first >= 0] - 1])
    ticks, _, drafts = timeline.accepted
    made = np.repeat(timeline.decodes, timeline.steps)
    np.add.at(made, ticks, drafts)
    decodes = np.concatenate(([0], np.cumsum(made)))
    steps = np.searchsorted(timeline.ends, seconds, side="right")
    result: Numbers = np.searchsorted(first, seconds, side="right") + decodes[steps]
    return result
