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

AT_CAP: Final = 0.9  # of the arrivals, or of the mean in flight, from which on the cap decides
BEYOND: Final = 1.02  # times the cap, for clocks of two threads
SIGMAS: Final = 4.0
SLACK: Final = 0.02  # relative, beside chance, between the rate that was asked for and that sent
SERVED: Final = 0.9  # of the rate that was sent
GREW: Final = 2.0  # times, from the first quarter of the requests to the last; together a queue that grew
_NAME: Final = {True: "TTFT", False: "E2E"}


def load(seen: Seen) -> Checked:
    """All of it; one finding for each."""
    rows = seen.rows
    if not rows.is_used.any() or np.isnan(rows.e2e[rows.is_used]).all():
        return seen, []
    if rows.sent is None:
        return seen, [*_untimed(seen)]
    return seen, [*_over_cap(seen), *_paced(seen), *_queue(rows), *_served(rows)]


def _untimed(seen: Seen) -> list[Finding]:
    """What the mean in flight says where no request says when it came."""
    found = [Finding(text="the file does not say when requests were sent: no arrivals", is_wrong=False)]
    duration, cap = seen.claims.totals.get("duration_s", 0.0), seen.asked.cap
    if duration <= 0 or not isfinite(cap):
        return found
    mean = float(np.nansum(seen.rows.e2e[seen.rows.is_used])) / duration
    if mean > cap * BEYOND:
        text = f"Little's law: rate x mean E2E is {amount(mean)} in flight, over the client's cap of {cap:g}"
        found.append(Finding(text=text, is_wrong=True))
    elif mean >= AT_CAP * cap:
        found.append(_closed(f"on average {amount(mean)} of at most {cap:g} requests are in flight", seen))
    return found


def _over_cap(seen: Seen) -> list[Finding]:
    cap, most = seen.asked.cap, int(_at_arrivals(seen.rows).max())
    if most <= cap:
        return []
    return [
        Finding(
            text=f"{most} requests are in flight at once, over the client's cap of {cap:g}", is_wrong=True
        )
    ]


def _paced(seen: Seen) -> list[Finding]:
    """By a cap, told or not; and whether the rate that was asked for is that which was sent."""
    rows, cap = seen.rows, seen.asked.cap
    held = _at_cap(rows, cap)
    slow = _sent_slowly(seen)
    if held is None:
        return [] if slow is None else [Finding(text=slow, is_wrong=True)]
    if slow is not None:
        return [Finding(text=f"{slow}: {held}, so arrivals are really its cap, not the load", is_wrong=True)]
    return [_closed(held, seen)]


def _closed(held: str, seen: Seen) -> Finding:
    asked = "" if isfinite(seen.asked.rate) else " (no rate was asked for)"
    text = f"a closed loop{asked}: {held}, so arrivals are really the client's cap, not a load of their own"
    return Finding(text=text, is_wrong=isfinite(seen.asked.rate))


def _at_cap(rows: Rows, cap: float) -> str | None:
    """How many requests were sent when another had ended and left the greatest number in flight."""
    in_flight = _at_arrivals(rows)
    most = min(cap, float(in_flight.max()))
    later = in_flight[int(most) :]  # the first ones fill it
    if len(later) < max(most, 8) or most < 1:
        return None
    part = float((later >= most).mean())
    if part < AT_CAP:
        return None
    told = f"at most {cap:g} requests are in flight" if isfinite(cap) else f"{most:g} requests are in flight"
    return f"{told}, and {share(part)} of {len(later):,} were sent just when another had ended"


def _at_arrivals(rows: Rows) -> Numbers:
    """Requests in flight when each was sent, itself included, in order of sending.

    Those that end at that instant have left.  Those that failed say not when they ended, and are not counted.
    """
    assert rows.sent is not None
    is_known = rows.is_used & ~np.isnan(rows.e2e)
    sent, ended = np.sort(rows.sent[is_known]), np.sort(rows.ended[is_known])
    found: Numbers = np.arange(1, len(sent) + 1) - np.searchsorted(ended, sent, side="right")
    return found


def _sent_slowly(seen: Seen) -> str | None:
    """The rate that was sent, where it is not that which was asked for beyond chance."""
    asked, sent = seen.asked, seen.rows.sent
    if not (isfinite(asked.rate) and asked.is_steady) or sent is None or len(sent) < 2:
        return None
    span = float(sent.max() - sent.min())
    found = inf if span == 0 else (len(sent) - 1) / span
    chance = SIGMAS * asked.cv / np.sqrt(len(sent) - 1)
    if abs(asked.rate / found - 1) <= chance + SLACK:
        return None
    factor = times(found / asked.rate)
    return (
        f"the client sent {amount(found)} requests/s, {factor} the {amount(asked.rate)} that it was asked for"
    )


def _queue(rows: Rows) -> list[Finding]:
    """Time in the client's own queue, which no metric of the file counts."""
    if rows.client_queue is None:
        return []
    waited = rows.client_queue[rows.is_used]
    if waited.mean() <= 0.01 * np.nanmean(rows.e2e[rows.is_used]):
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
    if len(sent) < 8 or last == first:
        return []
    offered, served = (len(sent) - 1) / (last - first), len(sent) / (float(np.nanmax(ended)) - first)
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
    return float(np.nanmedian(late) / np.nanmedian(early))
