"""Seconds that a step can take, and coefficients that a model can have."""

from __future__ import annotations

from typing import Final, SupportsFloat

from batchwright.errors import CostError
from batchwright.step import Step

LEAST: Final = 1e-12  # seconds, of a step of any work
GREATEST: Final = 1e6  # seconds, of a step or of one of its tokens


def checked(value: object, step: Step, most: float = GREATEST) -> float:
    """The value as seconds of `step`, or of a stretch from it.  Raises CostError if it cannot be."""
    if type(value) is float and 0.0 < value <= most:  # a protocol is slow to check
        return value
    seconds = float(value) if isinstance(value, SupportsFloat) else 0.0
    if 0.0 < seconds <= most:
        return seconds
    raise CostError(
        f"the cost of a step of {step.prefill_tokens} prompt tokens in {step.num_chunks} chunks and "
        f"{step.num_decodes} decodes over {step.context_tokens} KV tokens is {value!r} seconds; "
        f"a cost must be greater than 0 and at most {most:g}"
    )


def check_floor(model: str, name: str, value: float) -> None:
    """No engine makes a step in less than LEAST seconds; sums of such times would lose them."""
    check_positive(model, name, value)
    if value < LEAST:
        raise CostError(f"{name} of {model} is {value}, but must be at least {LEAST:g}")


def check_positive(model: str, name: str, value: float, most: float = GREATEST) -> None:
    if not 0 < value <= most:
        raise CostError(f"{name} of {model} is {value}, but must be greater than 0 and at most {most:g}")


def check_not_negative(model: str, name: str, value: float, most: float = GREATEST) -> None:
    if not 0 <= value <= most:
        raise CostError(f"{name} of {model} is {value}, but must be at least 0 and at most {most:g}")
