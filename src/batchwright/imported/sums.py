"""What a file says in sum against its own requests.

    completed, failed, tokens    counts of the rows
    duration                     >= last end - first sent
    rates x duration             counts
    mean, P50, P90, P99          those of the rows
    concurrency                  sum of E2E / duration (Little's law)

A sum that is wrong is not used: the rows are.  Where rows rest on what several sums contradict, they go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np

from batchwright.figures import amount, count, seconds
from batchwright.imported.inside import Checked, times, with_rows
from batchwright.imported.result import METRICS, Finding
from batchwright.imported.seen import Seen
from batchwright.metrics import Numbers, statistic

NEAR: Final = 0.005  # relative, between a sum and the same of its rows
RESOLUTION: Final = 1e-4  # seconds
TINY: Final = 1e-6  # seconds, or of whatever is compared
LONGER: Final = 1.1  # a duration that is that many times the span of its requests is odd
_OF_GAPS: Final = ("tpot_s", "itl_s", "e2e_s")  # what rests on gaps where E2E does


def counts(seen: Seen) -> Checked:
    """Requests and tokens."""
    rows, given = seen.rows, seen.claims.totals
    done = rows.is_completed
    own = {
        "num_completed": ("completed requests", int(done.sum())),
        "num_failed": ("failed requests", int((~done).sum())),
        "prompt_tokens": ("prompt tokens", int(rows.prompt[done].sum())),
        "output_tokens": ("output tokens", int(rows.output[done].sum())),
    }
    findings = []
    for name, (what, number) in own.items():
        if name in given and abs(given[name] - number) >= 0.5:  # sums may be of floats
            factor = "" if number == 0 else f", {times(given[name] / number)} that"
            text = f"the file counts {count(given[name])} {what}, its requests {count(number)}{factor}"
            findings.append(Finding(text=f"{text}; those of its requests are used", is_wrong=True))
    return seen, findings


def durations(seen: Seen) -> Checked:
    """The duration against the first and the last second of the requests, or the longest of them."""
    given, rows = seen.claims.totals.get("duration_s"), seen.rows
    if given is None or not rows.has_e2e:
        return seen, []
    span = rows.span
    if given < span * (1 - NEAR) - RESOLUTION:
        what = "the longest request" if rows.sent is None else "the time from first sent to last token"
        text = f"duration {seconds(given)} is {times(given / span)} {what}, {seconds(span)}; it is not used"
        return _without_duration(seen), [Finding(text=text, is_wrong=True)]
    if rows.sent is not None and given > span * LONGER + 1:
        text = (
            f"duration {seconds(given)} is {times(given / span)} the time from first sent to last token, "
            f"{seconds(span)}: rates of the file count time without load"
        )
        return seen, [Finding(text=text, is_wrong=False)]
    return seen, []


def _without_duration(seen: Seen) -> Seen:
    totals = {name: value for name, value in seen.claims.totals.items() if name != "duration_s"}
    return replace(seen, claims=replace(seen.claims, totals=totals))


def rates(seen: Seen) -> Checked:
    """Each rate against the file's own count over its duration, which `counts` has compared."""
    given = seen.claims.totals
    duration = given.get("duration_s", 0.0)
    if duration <= 0:
        return seen, []
    done, rows = seen.rows.is_completed, seen.rows
    prompt = given.get("prompt_tokens", float(rows.prompt[done].sum()))
    output = given.get("output_tokens", float(rows.output[done].sum()))
    own = {
        "requests_per_s": ("requests/s", given.get("num_completed", float(done.sum()))),
        "output_tokens_per_s": ("output tokens/s", output),
        "total_tokens_per_s": ("prompt + output tokens/s", prompt + output),
    }
    findings = []
    for name, (what, total) in own.items():
        expected = total / duration
        if name in given and _differ(given[name], expected):
            text = f"{what} of the file, {amount(given[name])}, is {_over(given[name], expected)}"
            findings.append(Finding(text=f"{text} its count over its duration", is_wrong=True))
    return seen, findings


def concurrency(seen: Seen) -> Checked:
    """Little's law: requests in flight on average = rate x mean E2E = sum of E2E / duration."""
    given = seen.claims.totals
    if "concurrency" not in given or given.get("duration_s", 0.0) <= 0:
        return seen, []
    expected = seen.rows.total_e2e / given["duration_s"]
    if not _differ(given["concurrency"], expected, 0.02):
        return seen, []
    text = (
        f"Little's law: rate x mean E2E is {amount(expected)} requests in flight on average, but the file "
        f"says {amount(given['concurrency'])}"
    )
    return seen, [Finding(text=text, is_wrong=True)]


def statistics(seen: Seen) -> Checked:
    """Mean and percentiles of each metric."""
    off = list(_differences(seen))
    metrics = {metric for metric, _ in off}
    findings = [Finding(text=text, is_wrong=True) for _, text in off]
    rows = seen.rows
    rest = [metric for metric in _OF_GAPS if metric in seen.claims.statistics]
    if rows.is_e2e_from_gaps and rows.gaps is not None and len(rest) > 1 and metrics >= set(rest):
        text = (
            "E2E, TPOT and ITL are left out: they rest on the gaps of the requests, which the sums contradict"
        )
        blank = replace(rows, e2e=np.full(len(rows), np.nan), gaps=None, has_tpot=False)
        return with_rows(seen, blank), [*findings, Finding(text=text, is_wrong=True)]
    if "tpot_s" in metrics and _is_output_disputed(seen):
        text = "TPOT is left out: it rests on output tokens that the file counts in two ways"
        return with_rows(seen, replace(rows, has_tpot=False)), [*findings, Finding(text=text, is_wrong=True)]
    if findings:
        findings.append(Finding(text="the statistics below are made anew from its requests", is_wrong=False))
    return seen, findings


def _is_output_disputed(seen: Seen) -> bool:
    own = float(seen.rows.output[seen.rows.is_completed].sum())
    return abs(seen.claims.totals.get("output_tokens", own) - own) >= 0.5


def _differences(seen: Seen) -> Iterator[tuple[str, str]]:
    """Metric and text of the first statistic of each metric that differs, if one does."""
    for metric, given in seen.claims.statistics.items():
        values = _values(seen, metric)
        for name, claimed in given.items():
            own = statistic(values, name)
            if not np.isnan(own) and _is_off(seen, metric, claimed, own):
                yield metric, _told(seen, metric, name, claimed, own)
                break


def _is_off(seen: Seen, metric: str, claimed: float, own: float) -> bool:
    near = NEAR * own + TINY
    return not own - near <= claimed <= own + near + _stream_end(seen, metric)


def _stream_end(seen: Seen, metric: str) -> float:
    """Seconds that a statistic may be greater by: from the last token to the end of the stream."""
    later = seen.claims.stream_end
    if metric == "tpot_s":
        return later * float(np.mean(1 / (seen.rows.output[seen.rows.has_gaps] - 1)))
    return later if metric == "e2e_s" else 0.0


def _told(seen: Seen, metric: str, name: str, claimed: float, own: float) -> str:
    what, label = METRICS[metric], "mean" if name == "mean" else name.upper()
    text = f"{label} {what} of the file, {seconds(claimed)}, is {_over(claimed, own)} that of its requests"
    formula = " (E2E - TTFT) / (N - 1)," if metric == "tpot_s" else ""
    return f"{text},{formula} {seconds(own)}"


def _values(seen: Seen, metric: str) -> Numbers:
    rows = seen.rows
    if metric == "itl_s":
        pairs = zip(rows.gaps or (), rows.is_used, strict=False)
        return np.concatenate([np.empty(0), *(gaps for gaps, is_used in pairs if is_used)])
    found: Numbers = {"ttft_s": rows.ttft, "tpot_s": rows.tpot, "e2e_s": rows.e2e}[metric][rows.is_used]
    return found


def _differ(a: float, b: float, near: float = NEAR) -> bool:
    return abs(a - b) > near * abs(b) + TINY


def _over(given: float, expected: float) -> str:
    return "not" if expected == 0 else times(given / expected)
