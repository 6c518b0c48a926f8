"""The accuracy page as Markdown: every study as a table, and what others say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import isfinite, isnan, nan
from typing import Final

import numpy as np

from batchwright.accuracy.claims import CLAIMS
from batchwright.accuracy.studies import Entry, Found
from batchwright.accuracy.study import Row, Study
from batchwright.figures import count, three

GENERATED: Final = (
    "This page is made by `batchwright accuracy DATA -o FILE.md`; edit the studies, not the page."
)
INTRODUCTION: Final = (
    "Errors are predicted / measured - 1.  *Promised* is the greatest error, in absolute value, that the "
    "study is held to; a row that misses it says so.  What was fitted, and on what, stands above each table: "
    "never on what is predicted in it, unless it is called a fit.  Last come columns of other simulators, "
    "where they predicted the same run."
)


def page(found: Found) -> str:
    """All of it."""
    parts = ["# Accuracy", GENERATED, INTRODUCTION, _summary(found.studies)]
    for study in found.studies:
        parts += _study(study)
    parts += ["## What other simulators report", _OTHERS, _claims()]
    if found.missing:
        parts += ["## Not run", _missing(found.missing)]
    return "\n\n".join(parts) + "\n"


_OTHERS: Final = (
    "Figures that authors give of their own work, unless said.  Accuracy on one run says little of another: "
    "load, lengths and the distance to saturation decide how much an error of a step grows."
)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# --- summary -----------------------------------------------------------------------------


def _summary(studies: Sequence[Study]) -> str:
    rows = [
        (f"[{study.title}](#{anchor(study.title)})", count(len(study.rows)), *_errors(study), kept(study))
        for study in studies
    ]
    return _table(("study", "numbers", "median error", "greatest error", "promises kept"), rows)


def anchor(title: str) -> str:
    """The name that the heading of that title has in the page."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())


def _errors(study: Study) -> tuple[str, str]:
    """In absolute value; the greatest with its sign."""
    known = [row.error for row in study.rows if not isnan(row.error)]
    if not known:
        return "n/a", "n/a"
    return f"{float(np.median(np.abs(known))):.1%}", f"{max(known, key=abs):+.1%}"


def kept(study: Study) -> str:
    """How many bounds hold."""
    bounds = [row for row in study.rows if isfinite(row.bound)]
    if not bounds:
        return "none given"
    num_kept = sum(row.holds for row in bounds)
    return f"{num_kept} of {len(bounds)}" if num_kept == len(bounds) else f"**{num_kept} of {len(bounds)}**"


# --- one study ---------------------------------------------------------------------------


def _study(study: Study) -> Iterator[str]:
    yield f"## {study.title}"
    yield f"Measured: {study.source}.  Calibration: {study.calibration}."
    others = list(dict.fromkeys(name for row in study.rows for name in row.others))
    has_bounds = any(isfinite(row.bound) for row in study.rows)
    titles = ["", "unit", "predicted", "measured", "error", *(["promised"] if has_bounds else []), *others]
    yield _table(titles, [list(_cells(row, has_bounds, others)) for row in study.rows])
    if study.wrong:
        yield "Where it is wrong:"
        yield "\n".join(f"- {text}" for text in study.wrong)


def _cells(row: Row, has_bounds: bool, others: Sequence[str]) -> Iterator[str]:
    yield from (row.what, row.unit, _number(row.predicted), _number(row.measured), f"{row.error:+.1%}")
    if has_bounds:
        yield _promise(row)
    for name in others:
        yield _other(row.others.get(name, nan), row.measured)


def _promise(row: Row) -> str:
    if not isfinite(row.bound):
        return ""
    return f"{100 * row.bound:.3g}%{'' if row.holds else ' **missed**'}"


def _other(predicted: float, measured: float) -> str:
    return "" if isnan(predicted) else f"{_number(predicted)} ({predicted / measured - 1:+.1%})"


def _number(value: float) -> str:
    return "n/a" if isnan(value) else three(value)


# --- the rest ----------------------------------------------------------------------------


def _claims() -> str:
    rows = [(c.simulator, c.says, c.of, c.compared, c.source) for c in CLAIMS]
    return _table(("simulator", "says", "of", "comparable?", "source"), rows)


def _missing(entries: Sequence[Entry]) -> str:
    return "\n".join(f"- `{entry.module}`: the data have no `{entry.needs}`" for entry in entries)
