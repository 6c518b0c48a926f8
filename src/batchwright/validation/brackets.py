"""Percentiles of a server's histograms, which say only between which two limits they are."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isnan

from batchwright.figures import seconds
from batchwright.validation.validation import Validation


def brackets(found: Validation) -> Iterator[str]:
    """A line per percentile that was measured so, and whether the predicted one lies between them."""
    for key, line in found.lines.items():
        least, most = (found.measured.total(f"{key}.{end}", found.skip) for end in ("least", "most"))
        if isnan(least) or isnan(line.predicted):
            continue
        most = inf if isnan(most) else most
        where = "inside" if least <= line.predicted <= most else "outside"
        limits = f"over {seconds(least)}" if most == inf else f"{seconds(least)} to {seconds(most)}"
        yield f"{line.title}: {limits} measured (a histogram), {seconds(line.predicted)} predicted: {where}"
