"""Requests of a client against themselves.

    0 <= TTFT <= E2E, and no gap is negative
    sum of ITL = E2E - TTFT          number of gaps = N - 1

What cannot be used is taken out of the rows, and told.  Up to 1 % of the requests may be odd: then
only their own values go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from batchwright.figures import seconds, share, three
from batchwright.imported.result import Finding
from batchwright.imported.seen import Gaps, Rows, Seen
from batchwright.metrics import Numbers

Checked = tuple[Seen, list[Finding]]
FEW: Final = 0.01  # of the requests, that may be odd
NEAR: Final = 0.01  # relative
RESOLUTION: Final = 1e-3  # seconds that two clocks of one client may differ by
SPARE: Final = 1  # gaps that a request may have more or fewer than N - 1: an end of text, a last empty chunk


def impossible_times(seen: Seen) -> Checked:
    """A first token before the request or after its end, or a negative gap."""
    rows = seen.rows
    least = np.array([one.min(initial=0.0) for one in rows.gaps]) if rows.gaps is not None else 0.0
    with np.errstate(invalid="ignore"):
        is_bad = rows.is_completed & (
            (rows.ttft < 0) | (rows.e2e < 0) | (rows.e2e < rows.ttft - RESOLUTION) | (least < 0)
        )
    if not is_bad.any():
        return seen, []
    first = int(np.flatnonzero(is_bad)[0])
    text = (
        f"{counted(is_bad, rows.is_completed)} have times that cannot be, such as request {first}: TTFT "
        f"{seconds(float(rows.ttft[first]))}, E2E {seconds(float(rows.e2e[first]))}; they are left out"
    )
    return with_rows(seen, _without_times(rows, is_bad)), [Finding(text=text, is_wrong=True)]


def answers_at_once(seen: Seen) -> Checked:
    """All tokens in one piece: the client did not stream, so it saw no token apart."""
    rows = seen.rows
    with np.errstate(invalid="ignore"):
        is_whole = rows.has_gaps & ((rows.ttft == 0) | (rows.e2e - rows.ttft <= 1e-6 * rows.e2e))
    if not rows.has_gaps.any() or is_whole.sum() < (1 - FEW) * rows.has_gaps.sum():
        return seen, []
    text = (
        f"{counted(is_whole, rows.has_gaps)} got their answer in one piece, so it was not streamed: "
        "TTFT, TPOT and ITL do not apply"
    )
    blank = replace(rows, ttft=np.full(len(rows), np.nan), gaps=None, has_tpot=False)
    return with_rows(seen, blank), [Finding(text=text, is_wrong=False)]


def sums_of_gaps(seen: Seen) -> Checked:
    """The gaps of a request against E2E - TTFT, where the file measured both."""
    rows = seen.rows
    if rows.gaps is None or rows.is_e2e_from_gaps:
        return seen, []
    given, expected = np.array([one.sum() for one in rows.gaps]), rows.e2e - rows.ttft
    is_off = rows.has_gaps & (np.abs(given - expected) > np.maximum(RESOLUTION, NEAR * expected))
    if not is_off.any():
        return seen, []
    text = (
        f"the sum of ITL is {ratio(given, expected, is_off)} E2E - TTFT in {counted(is_off, rows.has_gaps)}"
    )
    return _gaps_without(seen, is_off, rows.has_gaps, text)


def numbers_of_gaps(seen: Seen) -> Checked:
    """A gap per token after the first."""
    rows = seen.rows
    if rows.gaps is None:
        return seen, []
    given, expected = np.array([len(one) for one in rows.gaps]), np.maximum(rows.output - 1, 0)
    of = rows.is_used
    is_off = of & (np.abs(given - expected) > np.maximum(SPARE, NEAR * expected))
    if not is_off.any():
        return seen, _nearly(given, expected, of)
    where = f"in {counted(is_off, of)}"
    tokens = expected[is_off].sum() / max(given[is_off].sum(), 1)
    if tokens > 1:
        text = f"ITL is per chunk of {three(float(tokens))} tokens {where}: fewer gaps than N - 1"
        return _gaps_without(seen, is_off, of, text)
    text = (
        f"there are {three(float(1 / tokens))} times as many gaps as N - 1 {where}: either tokens are "
        "counted wrong or some chunks had none"
    )
    found, findings = _gaps_without(seen, is_off, of, text)
    if found.rows.gaps is not None:
        return found, findings
    left_out = Finding(text="TPOT is left out too: it rests on the same count of tokens", is_wrong=True)
    return with_rows(found, replace(found.rows, has_tpot=False)), [*findings, left_out]


def _nearly(given: Numbers, expected: Numbers, of: Numbers) -> list[Finding]:
    is_odd = of & (given != expected)
    if not is_odd.any():
        return []
    apart = given[of].sum() / max(expected[of].sum(), 1) - 1
    text = f"{counted(is_odd, of)} have one gap more or fewer than N - 1 ({apart:+.2%} of all gaps)"
    return [Finding(text=text, is_wrong=False)]


def _gaps_without(seen: Seen, is_off: Numbers, of: Numbers, text: str) -> Checked:
    """Without all gaps, or those of a few odd requests."""
    rows, gaps = seen.rows, seen.rows.gaps
    assert gaps is not None
    if is_off.sum() <= FEW * of.sum():
        kept: Gaps = tuple(one[:0] if off else one for one, off in zip(gaps, is_off, strict=True))
        finding = Finding(text=f"{text}; the ITL of these is left out", is_wrong=False)
        return with_rows(seen, replace(rows, gaps=kept)), [finding]
    return with_rows(seen, replace(rows, gaps=None)), [
        Finding(text=f"{text}; ITL is left out", is_wrong=True)
    ]


def _without_times(rows: Rows, is_bad: Numbers) -> Rows:
    gaps = (
        None
        if rows.gaps is None
        else tuple(one[:0] if bad else one for one, bad in zip(rows.gaps, is_bad, strict=True))
    )
    return replace(
        rows,
        ttft=np.where(is_bad, np.nan, rows.ttft),
        e2e=np.where(is_bad, np.nan, rows.e2e),
        left_out=is_bad,
        gaps=gaps,
    )


def with_rows(seen: Seen, rows: Rows) -> Seen:
    return replace(seen, rows=rows)


def counted(is_it: Numbers, of: Numbers) -> str:
    """`100.0% of 300 requests`; of few, `3 of 300 requests`."""
    total, some = int(of.sum()), int(is_it.sum())
    if some < 10 and some < total:
        return f"{some} of {total:,} requests"
    return f"{share(some / total)} of {total:,} requests"


def ratio(given: Numbers, expected: Numbers, where: Numbers) -> str:
    """`half of (0.500 times)`: the median of given / expected there; with its spread if it is no constant."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = (given / expected)[where]
    return times(float(np.median(found)))


def times(factor: float) -> str:
    """`half of (0.500 times)`, `1.20 times`."""
    words = {0.5: "half of", 2.0: "twice", 1e3: "a thousand times", 1e-3: "a thousandth of"}
    for value, word in words.items():
        if abs(factor / value - 1) <= NEAR:
            return f"{word} ({factor:.4g} times)"
    return f"{factor:.4g} times"
