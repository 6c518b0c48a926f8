"""What the coefficients of a fit are multiplied by, and which of them the measurements can determine.

A term that no step uses, or that the others stand for (its share that is not a sum of them is
under `OWN`), gets no coefficient, and is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchwright.cost import Fitted
from batchwright.measured.fit import ramps
from batchwright.metrics import Numbers

Work = Mapping[str, Numbers]  # columns of steps
OWN: Final = 1e-3  # of the square of a column
FEWEST: Final = 10  # steps of a piece of the line along tokens
NOTHING: Final = 1e-9  # seconds of a step without work, where a fit finds none
UNITS: Final = {  # what one of it is
    "chunk": "chunk of a prompt",
    "decode": "row that decodes",
    "context": "KV token of decodes",
    "past": "KV token behind chunks",
    "prefill_attention": "pair of tokens in prefill",
}
ATTENTION: Final = ("context", "past", "prefill_attention")
_COLUMNS: Final = {
    "chunk": "num_chunks",
    "context": "context_tokens",
    "past": "past_tokens",
    "prefill_attention": "prefill_attention",
}


@dataclass(frozen=True)
class Terms:
    """A line along the tokens of a step with these knots, the first of which is 0, and `names` of `UNITS`."""

    knots: tuple[float, ...]
    names: tuple[str, ...]

    @property
    def pieces(self) -> tuple[str, ...]:
        """What each piece of the line is called."""
        ends = [*(f"to {knot:,.0f}" for knot in self.knots[1:-1]), ""]
        return tuple(
            f"tokens from {begin:,.0f} {end}".rstrip()
            for begin, end in zip(self.knots[:-1], ends, strict=True)
        )

    def columns(self, work: Work) -> Numbers:
        """One row per step, one column per coefficient: base, the pieces of the line, the names."""
        tokens = work["tokens"]
        rest = [column_of(work, name) for name in self.names]
        return np.column_stack([np.ones(len(tokens)), *ramps(tokens, self.knots), *rest])

    def cost(self, found: Numbers) -> Fitted:
        """The cost model of these coefficients."""
        base, slopes = max(float(found[0]), NOTHING), found[1 : len(self.knots)]
        seconds = base + np.concatenate(([0.0], np.cumsum(slopes * np.diff(self.knots))))
        rest = dict(zip(self.names, found[len(self.knots) :].tolist(), strict=True))
        return Fitted(tuple(zip(self.knots, seconds.tolist(), strict=True)), **rest)


def column_of(work: Work, name: str) -> Numbers:
    """What the coefficient `name` is multiplied by."""
    if name == "decode":
        rows: Numbers = work["num_decodes"] + work.get("padded_rows", 0.0)
        return rows
    return work[_COLUMNS[name]]


def knots(tokens: Numbers, ratio: int) -> tuple[float, ...]:
    """0, powers of `ratio` with enough steps on both sides (of 0: none), and the greatest number."""
    most = max(float(tokens.max()), 1.0)
    found, power = [0.0], float(ratio)
    while ratio > 1 and power < most:
        inside = ((tokens > found[-1]) & (tokens <= power)).sum()
        if inside >= FEWEST and (tokens > power).sum() >= FEWEST:
            found.append(power)
        power *= ratio
    return (*found, most)


def usable(work: Work, seconds: Numbers, attention: bool) -> tuple[tuple[str, ...], list[str]]:
    """The terms that can be told from the rest, and a line on each of the others."""
    names, kept = [], []
    for name in UNITS:
        reason = _absent(work, name, attention)
        if reason:
            kept.append(f"{name}: {reason}")
        else:
            names.append(name)
    for name in reversed(names.copy()):  # attention first: it is what a fit can best do without
        others = [column_of(work, other) for other in names if other != name]
        if _own_share(work, seconds, column_of(work, name), others) < OWN:
            names.remove(name)
            kept.append(f"{name}: the steps do not tell it from the other terms, so it is left out")
    return tuple(names), [*kept, *_base(work["tokens"])]


def _base(tokens: Numbers) -> list[str]:
    """Why what a step takes is not told from what its tokens take; nothing if it is."""
    if tokens.min() < tokens.max():
        return []
    return [f"base: all steps have {tokens[0]:,.0f} tokens, so it is not told from what a token takes"]


def _absent(work: Work, name: str, attention: bool) -> str:
    """Why there is no such term; empty if there is."""
    if name in ATTENTION and not attention:
        return "left out by --no-attention"
    if _COLUMNS.get(name, "num_decodes") not in work:
        return f"the log does not say {_COLUMNS[name]}, so it is left out"
    return "" if column_of(work, name).any() else "no step has any, so it is left out"


def _own_share(work: Work, seconds: Numbers, column: Numbers, others: list[Numbers]) -> float:
    """Of the square of `column`, relative to the seconds, what no sum of base, tokens and `others` gives."""
    rest = np.column_stack([np.ones(len(seconds)), work["tokens"], *others]) / seconds[:, None]
    rest = rest / np.maximum(np.linalg.norm(rest, axis=0), 1e-300)
    own = column / seconds
    left = own - rest @ np.linalg.lstsq(rest, own, rcond=None)[0]
    return float((left @ left) / max(own @ own, 1e-300))
