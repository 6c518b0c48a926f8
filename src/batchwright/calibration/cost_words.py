"""A fitted cost model as the text that `--cost` takes."""

from __future__ import annotations

from typing import Final

from batchwright.cost import Cost, Fitted, Hosted

DIGITS: Final = 6  # significant ones; more than any fit knows
DUST: Final = 1e-15  # seconds; what is shorter is rounding


def text_of(cost: Cost) -> str:
    """Of a `Fitted`, alone or with its host."""
    if isinstance(cost, Hosted):
        assert isinstance(cost.cost, Fitted)
        host = (_given("base", cost.base), _given("per_running", cost.per_running))
        return f"hosted({', '.join([text_of(cost.cost), *host])})"
    assert isinstance(cost, Fitted)
    points = ", ".join(f"({count:g}, {seconds:.{DIGITS}g})" for count, seconds in cost.tokens)
    terms = ("chunk", "decode", "context", "past", "prefill_attention")
    rest = [_given(name, value) for name in terms if (value := getattr(cost, name)) >= DUST]
    return f"fitted({', '.join([f'[{points}]', *rest])})"


def _given(name: str, value: float) -> str:
    return f"{name}={value:.{DIGITS}g}"
