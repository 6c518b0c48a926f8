"""Does a run keep up with its arrivals, or does its queue grow with the length of the trace?

A queue that is served faster than it fills is empty now and then; one that fills faster is not,
once it has grown.  A run is *saturated* if, up to the last arrival,

    1. the queue was never empty in the last third, and
    2. it was longer in the last quarter than 1.2 times the first half (averages over time).

It is *steady* if the queue was empty in the last third, and its requests in flight do not grow:
a server with more seats than it can serve in time fills these first.  Else the run is too
short to tell.  Where a policy waits for a full batch, fewer than one batch is an empty queue.

No verdict is given on loads that come all at once (nothing is steady about them), and none is
needed where clients wait for their answers before they ask again (a closed loop bounds itself).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from batchwright.run.counts import Count

STEADY: Final = "steady"
SATURATED: Final = "saturated"
UNCLEAR: Final = "unclear"
NO_VERDICT: Final = "none"
LEAST_REQUESTS: Final = 200
EMPTY: Final = 1 / 3  # of the arrivals, the last ones
GROWTH: Final = 1.2


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """`kind`: steady, saturated, unclear or none; `text` says why.

    waiting, running   requests that wait, and that have a seat, averaged over the first half of
                       the arrivals and over the last quarter
    last_empty         the last second, up to the last arrival, at which the queue was empty
    """

    kind: str
    text: str
    waiting: tuple[float, float] = (0.0, 0.0)
    running: tuple[float, float] = (0.0, 0.0)
    last_empty: float = 0.0

    @property
    def is_saturated(self) -> bool:
        """Does the queue grow with the length of the trace?"""
        return self.kind == SATURATED

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """With units in the names."""
        parts = ("first_half", "last_quarter")
        return {
            "kind": self.kind,
            "text": self.text,
            "waiting_requests": dict(zip(parts, self.waiting, strict=True)),
            "running_requests": dict(zip(parts, self.running, strict=True)),
            "last_empty_s": self.last_empty,
        }


def saturation(waiting: Count, running: Count, span: float, num_requests: int, batch: int = 1) -> Verdict:
    """The verdict on a run whose last request came at second `span`.

    `batch`: requests that the policy waits for before it starts; fewer are no backlog.
    """
    if span <= 0:
        return Verdict(kind=NO_VERDICT, text="all requests come at once, so nothing is steady: no verdict")
    if num_requests < LEAST_REQUESTS:
        text = f"{num_requests} requests are too few to tell whether the queue grows; give {LEAST_REQUESTS}"
        return Verdict(kind=UNCLEAR, text=text)
    found = _Look(waiting, running, span, batch)
    if found.grows:
        return found.verdict(SATURATED, found.queue_text)
    if found.fills:
        return found.verdict(SATURATED, found.seats_text)
    if found.never_empty:
        return found.verdict(UNCLEAR, found.unclear_text)
    return found.verdict(STEADY, f"the queue is empty now and then, the last time at {found.since}")


class _Look:
    """The numbers behind a verdict."""

    def __init__(self, waiting: Count, running: Count, span: float, batch: int) -> None:
        self.span = span
        self.waiting = (waiting.mean(0.0, span / 2), waiting.mean(span * 0.75, span))
        self.running = (running.mean(0.0, span / 2), running.mean(span * 0.75, span))
        self.last_empty = waiting.last_below(batch, span)
        self.never_empty = waiting.least(span * (1 - EMPTY), span) >= batch
        self.grows = self.never_empty and self.waiting[1] >= GROWTH * self.waiting[0]
        self.fills = running.least(span * 0.75, span) > running.greatest(0.0, span / 2)

    @property
    def unclear_text(self) -> str:
        return (
            f"the queue was last empty at {self.since}, but does not clearly grow: "
            f"{_levels(self.waiting, 'waited')}; a longer run could tell"
        )

    @property
    def queue_text(self) -> str:
        return (
            f"the queue grows with the trace: {_levels(self.waiting, 'waited')}; it was last empty "
            f"at {self.since}"
        )

    @property
    def seats_text(self) -> str:
        return f"the requests in flight grow with the trace: {_levels(self.running, 'ran')}"

    @property
    def since(self) -> str:
        return f"{_short(self.last_empty)} s of {_short(self.span)} s"

    def verdict(self, kind: str, text: str) -> Verdict:
        return Verdict(
            kind=kind, text=text, waiting=self.waiting, running=self.running, last_empty=self.last_empty
        )


def _levels(levels: tuple[float, float], what: str) -> str:
    first, last = levels
    return (
        f"{_short(first)} requests {what} on average in the first half of the arrivals, {_short(last)} in "
        "the last quarter"
    )


def _short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
