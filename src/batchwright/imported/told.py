"""Metrics that a file gives for each request, against what they should be by the file's own formula."""

from __future__ import annotations

from typing import Final

import numpy as np

from batchwright.imported.inside import NEAR, Checked, counted, ratio
from batchwright.imported.result import Finding
from batchwright.imported.seen import Column, Rows, Seen
from batchwright.metrics import Numbers

RESOLUTION: Final = 1e-5  # seconds a token, that a file may round
MOST: Final = 0.99  # of the requests, that another formula must fit


def columns(seen: Seen) -> Checked:
    """A finding for each that differs; the column is made anew from TTFT, E2E and N, so nothing goes."""
    return seen, [found for column in seen.columns for found in _compared(column, seen.rows)]


def _compared(column: Column, rows: Rows) -> list[Finding]:
    of = rows.has_gaps & ~np.isnan(column.given) & ~np.isnan(column.expected)
    is_off = of & _differ(column.given, column.expected)
    if not is_off.any():
        return []
    text = (
        f"{column.name} is {ratio(column.given, column.expected, is_off)} {column.formula} in "
        f"{counted(is_off, of)}{_otherwise(column.given, rows, is_off)}"
    )
    return [Finding(text=f"{text}; ours is made anew from the times", is_wrong=True)]


def _otherwise(given: Numbers, rows: Rows, where: Numbers) -> str:
    """The formula that fits instead, if one that is in use does."""
    count, decode = np.maximum(rows.output, 1), rows.e2e - rows.ttft
    known = {
        "(E2E - TTFT) / (N - 1)": decode / np.maximum(count - 1, 1),
        "(E2E - TTFT) / N, which counts a gap too many": decode / count,
        "E2E / N, which counts the prefill": rows.e2e / count,
        "E2E / (N - 1), which counts the prefill": rows.e2e / np.maximum(count - 1, 1),
    }
    for formula, values in known.items():
        if (~_differ(given, values))[where].mean() >= MOST:
            return f": it is {formula}"
    return ""


def _differ(a: Numbers, b: Numbers) -> Numbers:
    found: Numbers = np.abs(a - b) > NEAR * np.abs(b) + RESOLUTION
    return found
