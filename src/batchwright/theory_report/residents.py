"""Continuous batching on the load: step, residents, TPOT, TTFT, E2E, and the wait for a slot."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.theory import continuous, sharing
from batchwright.theory.lengths import cv2
from batchwright.theory_report.asked import Ceilings, step_lines
from batchwright.theory_report.facts import Facts
from batchwright.theory_report.quantity import Quantity, Section, plain, quantity, seconds, single
from batchwright.theory_report.simulated import Simulated
from batchwright.theory_report.steady import Steady, steady
from batchwright.theory_report.steps import LinearStep
from batchwright.theory_report.unsettled import NEAR, Settledness, settledness

TPOT = "(base + d) / (1 - rate work)"
TTFT = "E[t^2] / (2 E[t]) + base + d n + P (1 + rate E[t])"
BURSTY = 1.5  # gap CV^2 from which Poisson's formulas are called low


def continuous_section(
    facts: Facts, step: LinearStep, limits: Limits, found: Ceilings, runs: Simulated
) -> Section:
    """Means that clients see, and who waits for a slot."""
    said = (
        f"vllm, {limits.max_num_seqs} slots, {plain(limits.max_num_batched_tokens)} tokens a step",
        *step_lines(facts, step),
    )
    try:
        _check_load(facts, found)
        at = steady(facts, step)
        fit = _settledness(facts, step, at, found, runs.continuous)
        rows = _rows(facts, step, at, limits, runs, fit)
        said += _near(facts, found, fit)
    except InputError as error:
        why = str(error)
        rows = [
            _nothing("tpot_s", "mean TPOT", TPOT, why, runs),
            _nothing("ttft_s", "mean TTFT", TTFT, why, runs),
        ]
    return Section("Continuous", said, tuple(rows))


def _check_load(facts: Facts, found: Ceilings) -> None:
    load = facts.steady_rate() / found.least
    if load >= 1:
        raise InputError(
            f"load on the {found.binds} is {load:.3g}, but must be under 1 for a steady state; "
            f"lower the rate below {found.least:.4g}/s"
        )


def _settledness(facts: Facts, step: LinearStep, at: Steady, found: Ceilings, run: Run) -> Settledness:
    """Near its mean the number of residents settles in E[o] t / (1 - rate work)."""
    settling = facts.output * at.tpot / (1 - at.rate * step.work(facts))
    return settledness(run, facts, at.rate / found.least, settling)


def _near(facts: Facts, found: Ceilings, fit: Settledness) -> tuple[str, ...]:
    if facts.rate / found.least <= NEAR:
        return fit.said
    return (*fit.said, f"what waits for the {found.binds} now and then is not in TTFT and E2E")


def _rows(
    facts: Facts, step: LinearStep, at: Steady, limits: Limits, runs: Simulated, fit: Settledness
) -> list[Quantity]:
    run = runs.continuous

    def off(unit: str, value: Callable[[Steady], float]) -> str:
        return fit.differs(unit, lambda own: value(steady(own, step)))

    burst = f"; gap CV^2 is {facts.gap_cv2:.1f}, so too low in bursts" if facts.gap_cv2 > BURSTY else ""
    return [
        _step(facts, step, at, run, off("s", lambda own: own.step)),
        _running(facts, at, run, burst + off("requests", lambda own: own.running)),
        _tpot(facts, step, at, run, burst + off("s", lambda own: own.tpot)),
        _ttft(facts, step, at, run, burst + off("s", lambda own: own.ttft)),
        _e2e(facts, at, run, burst + off("s", lambda own: own.e2e(facts.output))),
        _wait(facts, step, at, limits),
        *_hayward(facts, step, at, limits),
    ]


def _step(facts: Facts, step: LinearStep, at: Steady, run: Run, off: str) -> Quantity:
    return quantity(
        "mean_step_s",
        "mean step",
        "s",
        "base / (1 - rate work)",
        f"{seconds(step.base)} / (1 - {plain(at.rate)} x {seconds(step.work(facts))})",
        lambda: at.step,
        single(float(run.timeline.busy.sum()) / run.summary.num_steps),
        f"exact for a linear step while the engine never idles, any arrivals"
        f"{_fit(step, at.rate * step.work(facts))}{off}",
    )


def _fit(step: LinearStep, share: float) -> str:
    """What the fit can do to a mean step of which `share` is work."""
    return f"; here fitted: 1% in the work is {share / (1 - share):.1f}% in it" if step.fit else ""


def _running(facts: Facts, at: Steady, run: Run, burst: str) -> Quantity:
    over_time = seconds(at.residents / at.rate / facts.output)
    return quantity(
        "running",
        "running requests, mean while busy",
        "requests",
        "rate E[o] t / (1 - P(idle)), t: a step over time",
        f"{plain(at.rate)} x {plain(facts.output)} x {over_time} / (1 - {plain(at.idle)})",
        lambda: at.running,
        single(run.summary.mean_batch),
        f"Poisson, slots to spare{burst}",
    )


def _tpot(facts: Facts, step: LinearStep, at: Steady, run: Run, burst: str) -> Quantity:
    own = seconds(step.decode_seconds(facts))
    return quantity(
        "tpot_s",
        "mean TPOT",
        "s",
        TPOT,
        f"({seconds(step.base)} + {own}) / (1 - {plain(at.rate)} x {seconds(step.work(facts))})",
        lambda: at.tpot,
        run.interval("tpot_s"),
        f"Poisson, slots to spare; d: what the own decode adds{burst}",
    )


def _ttft(facts: Facts, step: LinearStep, at: Steady, run: Run, burst: str) -> Quantity:
    own, prompt = seconds(step.decode_seconds(facts)), seconds(step.prompt_seconds(facts))
    return quantity(
        "ttft_s",
        "mean TTFT",
        "s",
        TTFT,
        f"{seconds(at.late)} + {seconds(step.base)} + {own} x {plain(at.residents)} + "
        f"{prompt} x {1 + at.rate * at.step * (1 - at.idle):.3f}",
        lambda: at.ttft,
        run.interval("ttft_s"),
        f"as TPOT, and prompts that fit one step; P: seconds of a prompt{burst}",
    )


def _e2e(facts: Facts, at: Steady, run: Run, burst: str) -> Quantity:
    return quantity(
        "e2e_s",
        "mean E2E",
        "s",
        "TTFT + (E[o] - 1) TPOT",
        f"{seconds(at.ttft)} + {plain(facts.output - 1)} x {seconds(at.tpot)}",
        lambda: at.e2e(facts.output),
        run.interval("e2e_s"),
        f"as TTFT{burst}",
    )


def _nothing(key: str, name: str, formula: str, why: str, runs: Simulated) -> Quantity:
    """A quantity of a load without a steady state: only a run has it."""

    def value() -> float:
        raise InputError(why)

    return quantity(key, name, "s", formula, "", value, runs.continuous.interval(key))


def _growth(facts: Facts, step: LinearStep, limits: Limits) -> Numbers:
    """Seconds of a step with 1..c residents."""
    residents = np.arange(1, limits.max_num_seqs + 1)
    return np.asarray(step.base + step.work(facts) / facts.output * residents)


def _wait(facts: Facts, step: LinearStep, at: Steady, limits: Limits) -> Quantity:
    slots = limits.max_num_seqs
    found = sharing.limited_sharing(at.rate, facts.output, _growth(facts, step, limits), cv2(facts.law))
    load = at.rate / continuous.slots_ceiling(slots, facts.output, step.base, step.work(facts))
    factor = sharing.spread_factor(load, slots, cv2(facts.law))
    return quantity(
        "slot_wait_s",
        f"mean wait for one of {slots} slots",
        "s",
        "P(all taken) r / (1 - r) f / rate",
        f"{found.must_wait:.3g} x {load:.3g} / {1 - load:.3g} x {factor:.3g} / {plain(at.rate)}",
        lambda: found.wait,
        holds="Poisson; r: load on the slots, f: spread of outputs; birth-death chain, up to half too high",
    )


def _hayward(facts: Facts, step: LinearStep, at: Steady, limits: Limits) -> list[Quantity]:
    """Only where arrivals are bursty."""
    if not facts.gap_cv2 > BURSTY:
        return []
    slots, spread = limits.max_num_seqs, cv2(facts.law)
    full = float(_growth(facts, step, limits)[-1])
    found = sharing.bursty_wait(at.rate, slots, facts.law, full, facts.gap_cv2, spread)
    service = facts.output * full
    return [
        quantity(
            "slot_wait_bursty_s",
            "the same for these bursts",
            "s",
            "P (gap CV^2 + CV^2) / 2 E[S] / (c - a)",
            f"{found.must_wait:.3g} x ({facts.gap_cv2:.2f} + {spread:.2f}) / 2 x {seconds(service)} / "
            f"({slots} - {plain(at.rate * service)})",
            lambda: found.wait,
            holds=f"independent gaps, every step as long as with {slots} residents; "
            f"peakedness {found.peakedness:.1f}",
        )
    ]
