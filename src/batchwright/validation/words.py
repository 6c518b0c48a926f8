"""The outcome in words: what is right, what is wrong, and where to look.

TPOT is off                                   the time of a step
TPOT is right, TTFT of those unqueued is off  the time of a prompt, or what lies before the engine
both are right, TTFT is off                   the queue: seats, KV blocks, order
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan
from typing import Final

import numpy as np

from batchwright.figures import listed, seconds, signed_seconds
from batchwright.validation.lines import Line
from batchwright.validation.validation import Validation

RIGHT: Final = 0.05  # relative error of a mean that is called right
KEPT_UP: Final = 1.2  # seconds to the last end, over those to the last arrival, of a server that keeps up
DRIFTS: Final = 0.02  # growth of the E2E difference, of the mean E2E, that is worth a word
MEANS: Final = ("ttft_s.mean", "ttft_unqueued_s.mean", "tpot_s.mean", "e2e_s.mean")
RATES: Final = ("output_throughput_tokens_per_s",)


def paragraph(found: Validation) -> str:
    """Some sentences.  They say only what is in the numbers."""
    lines = {key: line for key, line in found.lines.items() if line.is_defined}
    if not any(key in lines for key in (*MEANS, *RATES)):
        return "Neither latencies nor throughput are known on both sides, so nothing can be said."
    sentences = [*_verdict(lines), *_offered(found, lines), *_where(lines)]
    sentences += [*_split(lines), *_drift(found), *_counts(lines)]
    return " ".join(sentences)


def _is_right(lines: Mapping[str, Line], key: str) -> bool | None:
    """None: not known."""
    return abs(lines[key].error) <= RIGHT if key in lines and not isnan(lines[key].error) else None


def _verdict(lines: Mapping[str, Line]) -> Iterator[str]:
    known = [key for key in (*MEANS, *RATES) if _is_right(lines, key) is not None]
    right = [key for key in known if _is_right(lines, key)]
    wrong = [key for key in known if key not in right]
    if right:
        yield f"Right within {RIGHT:.0%}: {_errors(lines, right)}."
    if wrong:
        yield f"Off by more: {_errors(lines, wrong)}."


def _errors(lines: Mapping[str, Line], keys: list[str]) -> str:
    return listed([f"{lines[key].title} ({lines[key].error:+.1%})" for key in keys])


def _offered(found: Validation, lines: Mapping[str, Line]) -> Iterator[str]:
    """Throughput of a server that keeps up is that of its load, so that it proves nothing."""
    arrival = found.measured.column("arrival_s")[found.kept.measured]
    span = float(np.ptp(arrival)) if len(arrival) else 0.0
    if RATES[0] in lines and span > 0 and lines["duration_s"].measured <= KEPT_UP * span:
        yield "The server kept up with its load, so throughput is what was asked for, and shows little."


def _where(lines: Mapping[str, Line]) -> Iterator[str]:
    """Where to look first."""
    if _is_right(lines, "tpot_s.mean") is False:
        way = "long" if lines["tpot_s.mean"].error > 0 else "short"
        yield (
            f"Look at the step time first: a decode takes too {way} a time, and queues follow from it; "
            "fit the cost on steps of this server."
        )
    elif _is_right(lines, "ttft_unqueued_s.mean") is False:
        yield (
            "Look at the time before the first token: requests that did not queue are off too, "
            "so it is the time of a prompt, or what lies between client and engine."
        )
    elif _is_right(lines, "ttft_s.mean") is False:
        yield (
            "Look at the queue: steps are right, waits are not; compare max_num_seqs, KV blocks, prefix "
            "cache and the order of admission with those of the server."
        )


def _split(lines: Mapping[str, Line]) -> Iterator[str]:
    """How the difference of E2E is made up."""
    if not {"ttft_s.mean", "e2e_s.mean"} <= lines.keys() or _is_right(lines, "e2e_s.mean") is None:
        return
    e2e, ttft = lines["e2e_s.mean"], lines["ttft_s.mean"]
    if abs(e2e.error) < 0.001:
        return
    whole, first, rest = map(
        signed_seconds, (e2e.difference, ttft.difference, e2e.difference - ttft.difference)
    )
    yield (
        f"Of the mean difference of E2E, {whole}, {first} arise before the first token and {rest} after it."
    )


def _drift(found: Validation) -> Iterator[str]:
    grows, e2e = found.drift, found.lines["e2e_s.mean"].measured
    if not grows.is_clear or abs(grows.value) < DRIFTS * e2e:
        return
    yield (
        f"The difference grows with time, by {signed_seconds(grows.value)} (±{seconds(grows.half)}) "
        "from the first requests to the last: a queue that drifts, so this error depends on how long the "
        "run is."
    )


def _counts(lines: Mapping[str, Line]) -> Iterator[str]:
    """Preemptions and seats that differ."""
    preempted = lines.get("num_preemptions")
    if preempted is not None and abs(preempted.difference) > max(1.0, 0.1 * preempted.measured):
        yield (
            f"{preempted.predicted:,.0f} preemptions were predicted, {preempted.measured:,.0f} measured: "
            "compare the number of KV blocks."
        )
    peak = lines.get("running.peak")
    if peak is not None and abs(peak.difference) > max(1.0, RIGHT * peak.measured):
        yield (
            f"At most {peak.predicted:,.0f} requests run at once in the prediction, {peak.measured:,.0f} "
            "were measured: compare max_num_seqs and KV blocks."
        )
