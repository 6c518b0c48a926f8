"""A client's run, checked against itself, as `Imported`.

What a broken identity makes unusable is left out of the columns, never averaged in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from batchwright.imported import arrivals, inside, sums, told
from batchwright.imported.inside import Checked
from batchwright.imported.result import Finding, Imported
from batchwright.imported.seen import Rows, Seen
from batchwright.metrics import Numbers

CHECKS: Final[tuple[Callable[[Seen], Checked], ...]] = (
    inside.impossible_times,
    inside.answers_at_once,
    inside.sums_of_gaps,
    inside.numbers_of_gaps,
    told.columns,
    sums.counts,
    sums.durations,
    sums.rates,
    sums.concurrency,
    sums.statistics,
    arrivals.load,
)


def imported(seen: Seen) -> Imported:
    """All checks, then the columns that they leave, in order of arrival."""
    findings: list[Finding] = []
    for check in CHECKS:
        seen, found = check(seen)
        findings += found
    rows = seen.rows
    order = np.arange(len(rows)) if rows.sent is None else np.argsort(rows.sent, kind="stable")
    return Imported(
        file=seen.file,
        form=seen.form,
        conventions=seen.conventions,
        findings=tuple([*_failures(rows), *findings]),
        about=seen.about,
        requests={name: values[order] for name, values in _columns(rows).items()},
        gaps=None if rows.gaps is None else tuple(rows.gaps[i] for i in order.tolist()),
        totals=_totals(seen),
    )


def _failures(rows: Rows) -> list[Finding]:
    failed = int((~rows.is_completed).sum())
    if not failed:
        return []
    text = f"{failed:,} of {len(rows):,} requests failed, and are left out of all metrics"
    return [Finding(text=text, is_wrong=False)]


def _totals(seen: Seen) -> dict[str, float]:
    """Of the requests that are counted.  The duration is from the first arrival to the last end, as ours."""
    rows, used = seen.rows, seen.rows.is_used
    prompt, output = float(rows.prompt[used].sum()), float(rows.output[used].sum())
    found = {
        "num_requests": float(len(rows)),
        "num_completed": float(used.sum()),
        "prompt_tokens": prompt,
        "output_tokens": output,
    }
    duration = _duration(seen)
    if duration > 0:
        found |= {
            "duration_s": duration,
            "requests_per_s": float(used.sum()) / duration,
            "output_tokens_per_s": output / duration,
            "total_tokens_per_s": (prompt + output) / duration,
        }
    return found


def _duration(seen: Seen) -> float:
    """Seconds; as the file says where it does not say when requests were sent; 0 if it says nothing."""
    rows = seen.rows
    if rows.sent is None or np.isnan(rows.ended).all():
        return seen.claims.totals.get("duration_s", 0.0)
    return float(np.nanmax(rows.ended[rows.is_used]) - rows.sent.min())


def _columns(rows: Rows) -> dict[str, Numbers]:
    """Times only of completed requests."""
    used = rows.is_used
    ttft, e2e = np.where(used, rows.ttft, np.nan), np.where(used, rows.e2e, np.nan)
    found = {
        "prompt_tokens": rows.prompt,
        "output_tokens": rows.output,
        "ttft_s": ttft,
        "tpot_s": rows.tpot,
        "e2e_s": e2e,
        "is_completed": used.astype(np.int64),
    }
    if rows.client_queue is not None:
        found["client_queue_s"] = rows.client_queue
    if rows.sent is not None:
        arrival = rows.sent - rows.sent.min()
        found |= {"arrival_s": arrival, "first_token_s": arrival + ttft, "finished_s": arrival + e2e}
    return found
