"""Seconds that grow with the work of a step."""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.cost.checks import check_floor, check_not_negative
from batchwright.step import Step


@dataclass(frozen=True)
class Linear:
    """Seconds that grow with the work of a step.

    base               every step
    prefill            per prompt token
    decode             per decode and padded row
    context            per KV token read, by decodes and chunks alike
    prefill_attention  per pair of a prompt token and a token that it attends to

    Raises CostError unless all are finite, base is greater than 0 and none is negative.
    """

    base: float
    prefill: float = 0.0
    decode: float = 0.0
    context: float = 0.0
    prefill_attention: float = 0.0

    def __post_init__(self) -> None:
        check_floor("linear", "base", self.base)
        for name, value in (
            ("prefill", self.prefill),
            ("decode", self.decode),
            ("context", self.context),
            ("prefill_attention", self.prefill_attention),
        ):
            check_not_negative("linear", name, value)

    def __reduce__(self) -> tuple[object, ...]:
        return Linear, (self.base, self.prefill, self.decode, self.context, self.prefill_attention)

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        rows = step.num_decodes + step.padded_rows
        each = self.base + self.decode * rows + self.context * (step.context_tokens + step.past_tokens)
        if step.prefill_tokens:
            each += self.prefill * step.prefill_tokens + self.prefill_attention * step.prefill_attention
        if steps == 1:
            return each
        return steps * each + self.context * (rows * (steps * (steps - 1) // 2))
