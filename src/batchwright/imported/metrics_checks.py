"""What must hold between the metrics of one server.

E2E = queue + inference + front end          inference = prefill + decode
running on average = completed/s x inference (Little), over scrapes
sum of ITL = sum of decode;  output tokens = those of the requests that ended: if nobody is left
buckets of a histogram rise, and hold its count
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import Final

import numpy as np

from batchwright.figures import seconds
from batchwright.imported.readings import Window
from batchwright.imported.result import Finding

NEAR: Final = 0.01  # relative
FEW: Final = 5  # scrapes: fewer say little of an average over time
SAMPLED: Final = 0.2  # relative, between an average over scrapes and one over time


def checks(window: Window) -> Iterator[Finding]:
    """All that is odd or wrong."""
    yield from _buckets(window)
    yield from _parts(window)
    yield from _little(window)
    if window.is_quiet:
        yield from _sums(window)


def _buckets(window: Window) -> Iterator[Finding]:
    for name, histogram in window.histograms.items():
        if histogram.is_broken():
            yield Finding(
                text=f"the buckets of {name} fall, or do not hold its {histogram.count:.0f} values: "
                "the text is cut, "
                "or of several servers",
                is_wrong=True,
            )


def _parts(window: Window) -> Iterator[Finding]:
    """Where the time of a request goes."""
    e2e, queue, inference = map(window.mean, ("e2e_s", "queue_s", "inference_s"))
    prefill, decode = window.mean("prefill_s"), window.mean("decode_s")
    inside = queue + inference
    if not isnan(inside) and not isnan(e2e):
        if inside > e2e * (1 + NEAR):
            text = f"queue + inference is {seconds(inside)} on average, but E2E {seconds(e2e)}"
            yield Finding(text=text, is_wrong=True)
        else:
            text = (
                f"mean E2E {seconds(e2e)} = queue {seconds(queue)} + inference {seconds(inference)} "
                "+ front end "
                f"{seconds(e2e - inside)}, which a model of the engine does not have"
            )
            yield Finding(text=text, is_wrong=False)
    both = prefill + decode
    if not isnan(both) and abs(both - inference) > NEAR * inference:
        text = f"prefill + decode is {seconds(both)} on average, but inference {seconds(inference)}"
        yield Finding(text=text, is_wrong=True)


def _little(window: Window) -> Iterator[Finding]:
    """Running requests by the scrapes, against those by the requests that ended."""
    running = [reading.gauges.get("running", np.nan) for reading in window.readings]
    if len(running) < FEW or not window.seconds > 0 or isnan(window.mean("inference_s")):
        return
    seen, expected = float(np.mean(running)), window.histograms["inference_s"].total / window.seconds
    if abs(seen - expected) > SAMPLED * expected:
        yield Finding(
            text=f"Little's law: {seen:.3g} requests run on average over {len(running)} scrapes, but "
            f"completed/s x inference is {expected:.3g}",
            is_wrong=False,
        )


def _sums(window: Window) -> Iterator[Finding]:
    """What came has gone, so sums over tokens are those over requests."""
    found = window.histograms
    if "itl_s" in found and "decode_s" in found:
        gaps, decode = found["itl_s"].total, found["decode_s"].total
        if abs(gaps - decode) > NEAR * decode:
            text = f"all gaps between tokens are {seconds(gaps)}, but all decode times {seconds(decode)}"
            yield Finding(text=text, is_wrong=True)
    for counter, histogram in (
        ("output_tokens", "output_tokens_of_request"), ("prompt_tokens", "prompt_tokens_of_request")
    ):  # fmt: skip
        if counter in window.counts and histogram in found:
            counted, ended = window.counts[counter], found[histogram].total
            if counted != ended:
                words = counter.replace("_", " ")
                text = (
                    f"{counted:.0f} {words} are counted, but requests ended with {ended:.0f}: "
                    "some were aborted"
                )
                yield Finding(text=text, is_wrong=False)
