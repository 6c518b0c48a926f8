"""Single steps, made by hand, for the formulas."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, exp, floor, lgamma, log, log1p, sqrt
from typing import Final

from batchwright.step import Step

POINTS: Final = 40


def decodes(running: int, context: float) -> Step:
    """`running` decodes that read `context` tokens each."""
    step = Step()
    step.quiet(running, 0, round(running * context))
    return step


def with_chunk(running: int, context: float, tokens: int, past: int, *, is_last: bool = False) -> Step:
    """The same with one chunk of `tokens` prompt tokens after `past` others."""
    step = decodes(running, context)
    step.prefill_tokens, step.num_chunks, step.past_tokens = tokens, 1, past
    step.prefill_attention = tokens * (past + tokens / 2)
    step.sampled_rows = running + is_last
    return step


def with_prompts(running: int, context: int, prompts: int, each: int) -> Step:
    """`running` decodes that read `context` tokens together, and whole prompts of `each` tokens."""
    step = Step()
    step.quiet(running, 0, context)
    step.prefill_tokens, step.num_chunks = prompts * each, prompts
    step.prefill_attention = prompts * each * each / 2
    step.sampled_rows = running + prompts
    return step


def binomial_mean(count: int, chance: float, seconds: Callable[[int], float]) -> float:
    """Mean of `seconds` of how many of `count` it happens to, each with `chance`, 0 to 1 apart.

    Over at most 41 numbers within 5 standard deviations, weighted by their probabilities.
    """
    mean, spread = count * chance, 5 * sqrt(count * chance * (1 - chance))
    low, high = max(floor(mean - spread), 0), min(ceil(mean + spread), count)
    at = range(low, high + 1, max((high - low) // POINTS, 1))
    odds = log(chance) - log1p(-chance)
    logs = [k * odds - lgamma(k + 1) - lgamma(count - k + 1) for k in at]
    weights = [exp(one - max(logs)) for one in logs]
    return sum(w * seconds(k) for w, k in zip(weights, at, strict=True)) / sum(weights)
