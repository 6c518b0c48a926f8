"""Are the requests of both sides the same ones?

They are if there are as many, and each has the same prompt and the same output in order of arrival.
Then they are compared in pairs; if not, only their distributions are, and a line says by how much they
differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchwright.figures import seconds
from batchwright.validation.side import Side

LENGTHS: Final = ("prompt_tokens", "output_tokens")
_NEAR: Final = 1e-3  # seconds; arrivals that differ by less are the same


@dataclass(frozen=True, kw_only=True)
class Matching:
    """`is_paired`: row i of both sides is one request.  `lines`: what was checked, with the numbers."""

    is_paired: bool
    lines: tuple[str, ...]


def matching(predicted: Side, measured: Side) -> Matching:
    """Compare counts, lengths and arrivals."""
    lines = _lengths(predicted, measured)
    if lines:
        return Matching(
            is_paired=False, lines=(*lines, "distributions are compared, and no request with its like")
        )
    return Matching(is_paired=True, lines=(_paired(measured), *_arrivals(predicted, measured)))


def _paired(measured: Side) -> str:
    checked = [name.replace("_", " ") for name in LENGTHS if name in measured.requests]
    same = " and ".join(checked)
    return f"requests: {len(measured):,} in pairs, as many on both sides, with equal {same}"


def _lengths(predicted: Side, measured: Side) -> list[str]:
    """Why they are not the same requests; none: they are."""
    if not len(measured):
        return ["the measured file has no requests one by one"]
    if len(predicted) != len(measured):
        return [f"requests: {len(measured):,} were measured, but {len(predicted):,} predicted"]
    both = [name for name in LENGTHS if name in measured.requests and name in predicted.requests]
    if not both:
        return ["the measured file has no lengths, so it is not known whether the requests are the same"]
    return [line for name in both if (line := _apart(predicted, measured, name))]


def _apart(predicted: Side, measured: Side, name: str) -> str:
    """How a length differs; empty if it does not."""
    apart = measured.requests[name] - predicted.requests[name]
    if not apart.any():
        return ""
    first = int(np.flatnonzero(apart)[0])
    mine, theirs = (float(side.requests[name][first]) for side in (predicted, measured))
    return (
        f"{name.replace('_', ' ')} differ in {np.count_nonzero(apart):,} of {len(measured):,} requests, by "
        f"{float(np.mean(apart)):+,.4g} on average; request {first} has {theirs:,.0f} measured, {mine:,.0f} "
        "predicted"
    )


def _arrivals(predicted: Side, measured: Side) -> list[str]:
    """How far the arrivals are apart, if they are, beyond a shift of all of them."""
    apart = predicted.column("arrival_s") - measured.column("arrival_s")
    if np.isnan(apart).all():
        return []
    apart = np.abs(apart - np.nanmedian(apart))
    if not np.nanmax(apart) > _NEAR:
        return []
    greatest, mean = float(np.nanmax(apart)), float(np.nanmean(apart))
    return [f"arrivals differ by up to {seconds(greatest)}, by {seconds(mean)} on average"]
