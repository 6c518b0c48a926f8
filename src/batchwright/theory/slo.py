"""The batch that an objective allows.

Requests/s grow with the batch as long as the step has a fixed part, so the best batch is the largest
that keeps the objective, cut to what KV and slots hold.
"""

from __future__ import annotations

from math import floor, sqrt

from batchwright.errors import InputError
from batchwright.theory.checks import not_negative, positive, steady


def residents_for_tpot(tpot: float, base: float, each: float) -> int:
    """The most residents whose step keeps `tpot`: floor((tpot - base) / each).

    `each`: seconds that one resident adds to a step (work / E[o]).  Raises InputError if not even one
    fits, or if a step does not grow.  Source: step = base + each n.
    """
    positive("tpot", tpot)
    positive("base", base)
    if not each > 0:
        raise InputError("a step does not grow with its residents, so a TPOT bounds none; leave it out")
    most = floor((tpot - base) / each * (1 + 1e-12))
    if most < 1:
        least = base + each
        raise InputError(f"a TPOT of {tpot} s is under that of one resident, {least:.4g} s; raise it")
    return most


def rate_for_tpot(residents: int, output: float, tpot: float) -> float:
    """Requests/s that so many residents finish at `tpot` seconds a token: n / (E[o] tpot)."""
    positive("output", output)
    positive("tpot", tpot)
    return residents / (output * tpot)


def best_batch(base: float, square: float) -> float:
    """The batch of most tokens/s where a step grows with the square of it: sqrt(base / square).

    For base + each n + square n^2 (preemption, all-to-all); `each` does not matter.
    Source: the maximum of n / step.
    """
    positive("base", base)
    positive("square", square)
    return sqrt(base / square)


def best_scale(contention: float, coherence: float) -> float:
    """The N of most throughput under N / (1 + s (N - 1) + k N (N - 1)): sqrt((1 - s) / k).

    Source: universal scalability law, Gunther 1993.
    """
    not_negative("contention", contention)
    positive("coherence", coherence)
    return sqrt((1 - contention) / coherence)


def prefill_ttft(rate: float, prompt: float) -> float:
    """Mean TTFT of a prefill-only engine, one prompt of `prompt` s at a time: D + R D^2 / (2 (1 - R D)).

    Source: M/D/1; DistServe, Zhong et al. 2024 (arXiv 2401.09670).  Raises InputError at load >= 1.
    """
    positive("rate", rate)
    positive("prompt", prompt)
    steady(rate * prompt, 1 / prompt)
    return prompt + rate * prompt**2 / (2 * (1 - rate * prompt))


def pipelined_ttft(rate: float, prompt: float) -> float:
    """The same in two pipeline stages: D + R D^2 / (4 (2 - R D)).  Source: as `prefill_ttft`."""
    positive("rate", rate)
    positive("prompt", prompt)
    steady(rate * prompt / 2, 2 / prompt)
    return prompt + rate * prompt**2 / (4 * (2 - rate * prompt))


def parallel_ttft(rate: float, prompt: float, speedup: float) -> float:
    """The same where tensor parallelism makes prompts `speedup` times as fast."""
    positive("speedup", speedup)
    return prefill_ttft(rate, prompt / speedup)
