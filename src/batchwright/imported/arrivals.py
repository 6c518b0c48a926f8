"""Who decided when the requests came: the load, or the client's cap.

    sent rate = asked rate               else the client could not, or was not let
    in flight <= cap                     Little's law: rate x mean E2E is the mean in flight
    served rate = sent rate              else the queue grew

A request that is sent whenever another ends is a closed loop: its arrivals follow the server's speed,
and are no load that another server, or another policy, would have seen.
"""

from __future__ import annotations

from math import inf, isfinite
from typing import Final

import numpy as np

from batchwright.figures import amount, seconds, share
from batchwright.imported.inside import Checked, times
from batchwright.imported.result import Finding
from batchwright.imported.seen import Rows, Seen
from batchwright.metrics import Numbers

REACHED: Final = 0.5  # of the cap, in flight on average, where there was no rate
AT_CAP: Final = 0.9  # of the arrivals, or of the cap in flight on average, from which on the cap decides
JUST: Final = 0.1  # of the median E2E, and
BETWEEN: Final = 0.5  # of the mean gap between requests: one that is sent so soon after an end waited for it
FEWEST: Final = 8  # requests, to tell anything by
EVEN: Final = 0.1  # CV of gaps between requests that come at an even pace
BEYOND: Final = 1.02  # times the cap, for clocks of two threads
INSTANT: Final = 1e-6  # seconds, in which an end and what is sent for it may lie: sums of times are rounded
SIGMAS: Final = 4.0
SLACK: Final = 0.02  # relative, beside chance, between the rate that was asked for and that sent
QUEUED: Final = 0.01  # of E2E, that a request waits in the client on average
SERVED: Final = 0.9  # of the rate that was sent
GREW: Final = 2.0  # times, from the first quarter of the requests to the last; together a queue that grew
_NAME: Final = {True: "TTFT", False: "E2E"}


def load(seen: Seen) -> Checked:
    """All of it; one finding for each."""
    rows = seen.rows
    if not rows.has_e2e:
        return seen, []
    if rows.sent is None:
        return seen, [*_untimed(seen)]
    return seen, [*_over_cap(seen), *_paced(seen), *_queue(rows), *_served(rows)]


def _untimed(seen: Seen) -> list[Finding]:
    """What the mean in flight says where no request says when it came."""
    text = "the file does not say when requests were sent: there are no arrivals"
    found = [Finding(text=text, is_wrong=False)]
    duration, cap = seen.claims.totals.get("duration_s", 0.0), seen.asked.cap
    if duration <= 0 or not isfinite(cap):
        return found
    mean = seen.rows.total_e2e / duration
    little = f"Little's law: rate x mean E2E is {amount(mean)} requests in flight"
    if mean > cap * BEYOND:
        return [*found, Finding(text=f"{little}, over the client's cap of {cap:g}", is_wrong=True)]
    if mean >= AT_CAP * cap or _has_only_a_cap(seen, mean):
        found.append(_closed(f"{little}, of at most {cap:g} that the client allows", seen))
    return found


def _has_only_a_cap(seen: Seen, mean: float) -> bool:
    """Was no rate asked for, so that requests wait for the cap alone?  `mean`: requests in flight.

    A trace has no rate either, so the cap must be reached.
    """
    cap = seen.asked.cap
    return not isfinite(seen.asked.rate) and cap < len(seen.rows) and mean >= REACHED * cap


def _over_cap(seen: Seen) -> list[Finding]:
    cap, most = seen.asked.cap, int(_at_arrivals(seen.rows).max())
    if most <= cap:
        return []
    text = f"{most} requests are in flight at once, over the client's cap of {cap:g}"
    return [Finding(text=text, is_wrong=True)]


def _paced(seen: Seen) -> list[Finding]:
    """By a cap, told or not; and whether the rate that was asked for is that which was sent."""
    off, held = _off_rate(seen), _at_cap(seen) or _near_cap(seen)
    if held is None:
        return [] if off is None else [Finding(text=off, is_wrong=True)]
    if off is not None:
        text = f"{off}: {held}; arrivals are really its cap, not the load"
        return [Finding(text=text, is_wrong=True)]
    return [_closed(held, seen)]


def _near_cap(seen: Seen) -> str | None:
    """By Little's law: was the cap nearly reached on average?"""
    cap, rows = seen.asked.cap, seen.rows
    mean = rows.total_e2e / max(rows.span, INSTANT)
    if not isfinite(cap) or not (mean >= AT_CAP * cap or _has_only_a_cap(seen, mean)):
        return None
    return f"{amount(mean)} requests are in flight on average, of at most {cap:g}"


def _closed(held: str, seen: Seen) -> Finding:
    asked = isfinite(seen.asked.rate)
    loop = "a closed loop" if asked else "a closed loop (no rate was asked for)"
    text = f"{loop}: {held}; arrivals are really the client's cap, not a load of their own"
    return Finding(text=text, is_wrong=asked)


def _at_cap(seen: Seen) -> str | None:
    """Was nearly each request sent just after another had ended, once the greatest number was in flight?

    In a closed loop of M the (M + k)-th is sent just after the k-th end.  Requests that come at even
    gaps may look alike, and do so by their own clock unless the file names a cap.
    """
    (sent, ended), cap = _known(seen.rows), seen.asked.cap
    most = int(min(cap, _at_arrivals(seen.rows).max()))
    if most < cap < inf or (cap == inf and _is_even(sent)):
        return None
    if len(sent) - most < max(most, FEWEST):
        return None
    lag = sent[most:] - ended[: len(sent) - most]
    near = _just(seen.rows, sent)
    part = float((np.abs(lag) <= near).mean())
    if part < AT_CAP:
        return None
    then = f"{share(part)} of the other {len(lag):,} were sent within {seconds(near)} of an end"
    return f"at most {most:,} requests are in flight, and {then}"


def _just(rows: Rows, sent: Numbers) -> float:
    """Seconds after an end in which a request is sent that was waiting for it."""
    usual = float(np.nanmedian(rows.e2e[rows.is_used]))
    return min(JUST * usual, BETWEEN * float(sent[-1] - sent[0]) / (len(sent) - 1))


def _is_even(sent: Numbers) -> bool:
    gaps = np.diff(sent)
    return len(gaps) > 0 and bool(gaps.std() <= EVEN * gaps.mean())


def _at_arrivals(rows: Rows) -> Numbers:
    """Requests in flight when each was sent, itself included, in order of sending.

    Those that end at that instant have left.  Those that failed do not say when they ended: not counted.
    """
    sent, ended = _known(rows)
    found: Numbers = np.arange(1, len(sent) + 1) - np.searchsorted(ended, sent + INSTANT, side="right")
    return found


def _known(rows: Rows) -> tuple[Numbers, Numbers]:
    """When requests were sent, and when they ended, each in order; of those of which both is known."""
    assert rows.sent is not None
    is_known = rows.is_used & ~np.isnan(rows.e2e)
    return np.sort(rows.sent[is_known]), np.sort(rows.ended[is_known])


def _off_rate(seen: Seen) -> str | None:
    """The rate that was sent, where it is beyond chance not the one that was asked for."""
    asked, sent = seen.asked, seen.rows.known_sent
    if not (0 < asked.rate < inf and asked.is_steady) or len(sent) < 2:
        return None
    span = float(sent.max() - sent.min())
    found = inf if span == 0 else (len(sent) - 1) / span
    chance = SIGMAS * asked.cv / np.sqrt(len(sent) - 1)
    if abs(asked.rate / found - 1) <= chance + SLACK + 1 / (len(sent) - 1):
        return None
    factor = times(found / asked.rate)
    return (
        f"the client sent {amount(found)} requests/s, {factor} the {amount(asked.rate)} that it was asked for"
    )


def _queue(rows: Rows) -> list[Finding]:
    """Time in the client's own queue, which no metric of the file counts."""
    if "client_queue_s" not in rows.more:
        return []
    waited = rows.more["client_queue_s"][rows.is_used]
    if waited.mean() <= QUEUED * np.nanmean(rows.e2e[rows.is_used]):
        return []
    text = (
        f"requests waited {seconds(float(waited.mean()))} on average in the client before they were sent; "
        "TTFT and E2E do not count that"
    )
    return [Finding(text=text, is_wrong=False)]


def _served(rows: Rows) -> list[Finding]:
    """Did the queue grow?  Then less was served than sent, and the last waited longer than the first."""
    assert rows.sent is not None
    sent, ended = rows.sent[rows.is_used], rows.ended[rows.is_used]
    first, last = float(sent.min()), float(sent.max())
    if len(sent) < FEWEST or last == first or rows.span <= 0:
        return []
    offered, served = (len(sent) - 1) / (last - first), len(sent) / rows.span
    is_ttft = not np.isnan(rows.ttft[rows.is_used]).all()
    growth = _growth(sent, rows.ttft[rows.is_used] if is_ttft else ended - sent)
    if served >= SERVED * offered or not growth >= GREW:
        return []
    text = (
        f"{amount(offered)} requests/s were sent, {amount(served)} served ({times(served / offered)}), and "
        f"{_NAME[is_ttft]} grew {amount(growth)} times from the first quarter of the requests to the last: "
        "it grows with the length of the run"
    )
    return [Finding(text=text, is_wrong=False)]


def _growth(sent: Numbers, values: Numbers) -> float:
    """Median of the last quarter by arrival over that of the first."""
    order = np.argsort(sent, kind="stable")
    quarter = len(order) // 4
    early, late = values[order[:quarter]], values[order[-quarter:]]
    return float(np.nanmedian(late)) / max(float(np.nanmedian(early)), INSTANT)
