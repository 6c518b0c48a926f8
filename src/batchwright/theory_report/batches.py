"""Static and dynamic batches on the load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan

import numpy as np

from batchwright.errors import InputError
from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.theory import dynamic, static
from batchwright.theory.expected_max import expected_max, law_of_max
from batchwright.theory.lengths import Law, empirical, mean, second_moment
from batchwright.theory.roots import left_waiting
from batchwright.theory_report.asked import step_lines
from batchwright.theory_report.facts import Facts
from batchwright.theory_report.quantity import Quantity, Section, plain, quantity, seconds
from batchwright.theory_report.simulated import Simulated
from batchwright.theory_report.steps import LinearStep
from batchwright.theory_report.unsettled import settledness


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A batch of `size`: its parts in seconds, and the variance of their sum."""

    size: int
    steps: float
    rows: float
    prompts: float
    variance: float

    @property
    def seconds(self) -> float:
        """E[S_B]."""
        return self.steps + self.rows + self.prompts


def batch_of(facts: Facts, step: LinearStep, size: int, padded: bool) -> Batch:
    """E[S_B] of batches of the load; its variance is that of the longest output, rows included."""
    top = law_of_max(facts.law, size)
    longest = mean(top)
    each = step.base + step.decode * (size if padded else 0)
    variance = (second_moment(top) - longest**2) * each**2
    return Batch(
        size=size,
        steps=step.base * longest,
        rows=size * _row_seconds(facts, step, top, padded),
        prompts=size * _prompt_seconds(facts, step, size, padded),
        variance=variance,
    )


def _row_seconds(facts: Facts, step: LinearStep, top: Law, padded: bool) -> float:
    """What one row adds: its own decodes, or those to the end of the batch."""
    if not padded:
        return (facts.output - 1) * step.decode_seconds(facts)
    decodes = mean(top) - 1
    read = decodes * facts.prompt + (second_moment(top) - 3 * mean(top) + 2) / 2
    return step.decode * decodes + step.context * read


def _prompt_seconds(facts: Facts, step: LinearStep, size: int, padded: bool) -> float:
    """What one prompt adds: its own length, or that of the longest of the batch."""
    if not padded:
        return step.prompt_seconds(facts)
    top = law_of_max(empirical(facts.prompts), size)
    return step.request + step.prefill * mean(top) + step.attention * second_moment(top) / 2


def static_section(facts: Facts, step: LinearStep, runs: Simulated) -> Section:
    """Capacity, filling, and the time that clients see."""
    size, padded = runs.size, runs.static.padded
    batch = batch_of(facts, step, size, padded)
    kind = "padded prompts and rows" if padded else "no padding"
    said = f"batches of {size}, {kind}; clients see all tokens when the batch ends"
    if len(facts.outputs) < size:
        said = f"{said}; the load has only {len(facts.outputs)} requests, so none fills"
    rows = (
        _batch_seconds(facts, step, batch, runs),
        quantity(
            "static_capacity",
            "capacity",
            "requests/s",
            "B / E[S_B]",
            f"{size} / {seconds(batch.seconds)}",
            lambda: static.capacity(size, batch.seconds),
            holds="steady below it",
        ),
        quantity(
            "static_fill_wait",
            "wait for the batch to fill",
            "s",
            "(B - 1) / (2 rate)",
            f"{size - 1} / (2 x {plain(facts.rate)})",
            lambda: static.fill_wait(facts.steady_rate(), size),
            holds="any arrivals; it falls as the rate rises",
        ),
        _static_e2e(facts, batch, runs),
    )
    return Section("Static", (said, *step_lines(facts, step)), rows)


def _batch_seconds(facts: Facts, step: LinearStep, batch: Batch, runs: Simulated) -> Quantity:
    longest = expected_max(facts.law, batch.size)
    return quantity(
        "static_batch_s",
        "time of a batch",
        "s",
        "E[S_B] = prompts + base E[max of B] + rows",
        f"{seconds(batch.prompts)} + {seconds(step.base)} x {plain(longest)} + {seconds(batch.rows)}",
        lambda: batch.seconds,
        runs.batch_seconds(runs.static, batch.size),
        "independent lengths; B requests fit the KV cache at their max_tokens",
    )


def _static_e2e(facts: Facts, batch: Batch, runs: Simulated) -> Quantity:
    cv2 = batch.variance / batch.seconds**2

    def value(own: Facts) -> float:
        rate = own.steady_rate()
        return static.full_batch_wait(rate, batch.size, batch.seconds, cv2) + batch.seconds

    run = None if isnan(facts.rate) else runs.run(runs.static)
    off = _off(run, facts, batch.size, batch.seconds, value)
    return quantity(
        "static_e2e_s",
        "mean E2E",
        "s",
        "(B - 1) / (2 rate) + E[Y] (1 + B cv^2) / rate + E[S_B]",
        _filled_e2e(facts, batch, cv2),
        lambda: value(facts),
        None if run is None else run.interval("e2e_s"),
        f"Poisson arrivals at a steady rate; E[Y] from {batch.size - 1} complex roots{_bursts(facts)}{off}",
    )


def _off(run: Run | None, facts: Facts, size: int, seconds: float, value: Callable[[Facts], float]) -> str:
    """What a run that is not steady differs by; batches of `size` take `seconds`."""
    if run is None or not facts.rate * seconds < size:
        return ""
    load = facts.rate * seconds / size
    return settledness(run, facts, load, seconds / (1 - load)).differs("s", value)


def _filled_e2e(facts: Facts, batch: Batch, cv2: float) -> str:
    try:
        rate = facts.steady_rate()
        left = left_waiting(rate, batch.seconds, batch.size)
    except InputError:
        return ""
    behind = f"{plain(left)} x {1 + batch.size * cv2:.3f} / {plain(rate)}"
    return f"{seconds(static.fill_wait(rate, batch.size))} + {behind} + {seconds(batch.seconds)}"


def _bursts(facts: Facts) -> str:
    if not facts.gap_cv2 > 1.5:
        return ""
    return f"; these gaps have CV^2 {facts.gap_cv2:.1f}, so the queue (the middle term) is longer"


def dynamic_section(facts: Facts, step: LinearStep, runs: Simulated) -> Section:
    """Batches that start when they are full, or the oldest request is a window old."""
    size, window = runs.dynamic_size, runs.dynamic.window
    each = [batch_of(facts, step, j, False) for j in range(1, size + 1)]
    service = np.array([batch.seconds for batch in each])
    spread = np.array([batch.variance for batch in each])
    said = f"batches of up to {size}, window {seconds(window)}; the batch shrinks, nobody joins"
    if runs.dynamic.preferred_sizes:
        said = f"{said}; preferred_sizes are not in the formulas"
    found, why = _chain(facts, service, spread, window)
    first, last = float(service[0]), float(service[-1])
    rows = (
        quantity(
            "dynamic_capacity",
            "capacity",
            "requests/s",
            "B / E[S_B], rows shrink",
            f"{size} / {seconds(last)}",
            lambda: size / last,
            holds="steady below it",
        ),
        quantity(
            "dynamic_batch",
            "mean batch",
            "requests",
            "rate E[time from start to start]",
            f"chain over the requests that wait when a batch ends, S(1) = {seconds(first)}, "
            f"S({size}) = {seconds(last)}",
            lambda: _or_raise(found.size, why),
            holds=f"Poisson arrivals at a steady rate; a rate that drifts makes longer waits{_more(facts)}",
        ),
        _dynamic_ttft(facts, step, service, spread, runs),
    )
    return Section("Dynamic", (said,), rows)


def _dynamic_ttft(
    facts: Facts, step: LinearStep, service: Numbers, spread: Numbers, runs: Simulated
) -> Quantity:
    window = runs.dynamic.window
    found, why = _chain(facts, service, spread, window)

    def value(own: Facts) -> float:
        chain, reason = _chain(own, service, spread, window)
        return _or_raise(_ttft(own, step, chain), reason)

    run = None if isnan(facts.rate) else runs.run(runs.dynamic)
    off = _off(run, facts, len(service), float(service[-1]), value)
    return quantity(
        "dynamic_ttft_s",
        "mean TTFT",
        "s",
        "W + base + j E[prompt], j: batch that a request is in",
        _filled_ttft(facts, step, found, why),
        lambda: _or_raise(_ttft(facts, step, found), why),
        None if run is None else run.interval("ttft_s"),
        f"as the mean batch; W: mean wait of the chain{off}",
    )


def _chain(facts: Facts, service: Numbers, spread: Numbers, window: float) -> tuple[dynamic.Batches, str]:
    """The chain of the load, or why it has no steady state."""
    try:
        return dynamic.batches(facts.steady_rate(), service, window=window, variance=spread), ""
    except InputError as error:
        return dynamic.Batches(np.nan, np.nan, np.zeros(len(service) + 1)), str(error)


def _more(facts: Facts) -> str:
    return f"; these gaps have CV^2 {facts.gap_cv2:.1f}, so waits are longer" if facts.gap_cv2 > 1.5 else ""


def _or_raise(value: float, why: str) -> float:
    if why:
        raise InputError(why)
    return value


def _own_batch(found: dynamic.Batches) -> float:
    """Requests in the batch of a request: large batches hold more of them."""
    j = np.arange(len(found.sizes))
    return float(j**2 @ found.sizes) / found.size


def _ttft(facts: Facts, step: LinearStep, found: dynamic.Batches) -> float:
    return found.wait + step.base + _own_batch(found) * step.prompt_seconds(facts)


def _filled_ttft(facts: Facts, step: LinearStep, found: dynamic.Batches, why: str) -> str:
    if why:
        return ""
    prompt = seconds(step.prompt_seconds(facts))
    return f"{seconds(found.wait)} + {seconds(step.base)} + {plain(_own_batch(found))} x {prompt}"
