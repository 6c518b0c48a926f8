"""Seconds that were fitted to measured steps: like `Linear`, but in pieces along the tokens of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from batchwright.cost.checks import GREATEST, LEAST, check_not_negative
from batchwright.cost.line import Line
from batchwright.errors import CostError
from batchwright.step import Step

MOST: Final = 1e12  # tokens of a step
Points = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Fitted:
    """Seconds of measured steps.

        seconds = tokens(all tokens of the step) + chunk * chunks + decode * rows + context * KV tokens
                  that rows read + past * KV tokens that chunks read + prefill_attention * pairs

    tokens   pairs of a number of tokens and seconds, between and beyond which it is a straight line;
             prompt tokens, decodes and padded rows alike, for they go through the same matrices
    rows     decodes and padded rows
    pairs    as `Step.prefill_attention` counts them

    Raises CostError on fewer than two pairs, on seconds that fall or are not greater than 0 without
    any token, and on a term that is negative.
    """

    tokens: Points
    chunk: float = 0.0
    decode: float = 0.0
    context: float = 0.0
    past: float = 0.0
    prefill_attention: float = 0.0
    _line: Line = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        points = tuple((float(count), float(seconds)) for count, seconds in self.tokens)
        object.__setattr__(self, "tokens", points)
        if not all(0.0 <= count <= MOST for count, _ in points):
            raise CostError(f"tokens of fitted are {points}, but must be from 0 to {MOST:g}")
        line = Line(tuple(count for count, _ in points), tuple(seconds for _, seconds in points))
        object.__setattr__(self, "_line", line)
        least, most = line.at(0.0), max(line.seconds[-1], line.slopes[-1])
        if not (least >= LEAST and most <= GREATEST):
            raise CostError(
                f"tokens of fitted gives a step from {least:g} to {most:g} seconds, but must stay from "
                f"{LEAST:g}, at no token, to {GREATEST:g}"
            )
        for name, value in self._terms():
            check_not_negative("fitted", name, value)

    def _terms(self) -> tuple[tuple[str, float], ...]:
        return (
            ("chunk", self.chunk),
            ("decode", self.decode),
            ("context", self.context),
            ("past", self.past),
            ("prefill_attention", self.prefill_attention),
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Fitted, (self.tokens, *(value for _, value in self._terms()))

    @property
    def line(self) -> Line:
        """Seconds by the tokens of a step."""
        return self._line

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        rows = step.num_decodes + step.padded_rows
        each = self._line.at(step.prefill_tokens + rows) + self.decode * rows
        each += self.context * step.context_tokens
        if step.prefill_tokens:
            each += self.chunk * step.num_chunks + self.past * step.past_tokens
            each += self.prefill_attention * step.prefill_attention
        if steps == 1:
            return each
        return steps * each + self.context * (rows * (steps * (steps - 1) // 2))
