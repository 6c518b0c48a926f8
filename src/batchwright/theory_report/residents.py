"""Continuous batching on the load: step, residents, TPOT, TTFT, E2E, and the wait for a slot.

The prompts that come in a step of t seconds add rate t P to it, P the seconds of one prompt, so they slow all
decodes by 1 / (1 - rate P).  What is left is the product form of `theory.continuous.residents`:

    TPOT = (base + d) / (1 - rate work)            d: what the own decode adds to its step
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from batchwright.cost import CostModel
from batchwright.errors import InputError
from batchwright.interval import Interval
from batchwright.limits import Limits
from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.theory import continuous, sharing
from batchwright.theory.lengths import cv2
from batchwright.theory_report.asked import Ceilings, step_lines
from batchwright.theory_report.facts import Facts
from batchwright.theory_report.quantity import Quantity, Section, plain, quantity, seconds, single
from batchwright.theory_report.simulated import Simulated
from batchwright.theory_report.steps import LinearStep, Regime, linear_step

BURSTY = 1.5  # gap CV^2 from which Poisson's formulas are called low


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The steady state without a limit of slots, in seconds and requests.

    step    mean over steps        tpot    as a decode sees it, longer: it is in the larger ones
    idle    share of the time in which nobody is resident
    late    from arrival to the next step
    """

    rate: float
    step: float
    tpot: float
    residents: float
    idle: float
    late: float
    first: float

    @property
    def ttft(self) -> float:
        """From arrival to the end of the step with the prompt, nobody waiting for a slot."""
        return self.late + self.first


def steady(facts: Facts, step: LinearStep) -> Steady:
    """The steady state of the load.  Raises InputError if there is none."""
    rate, work = facts.steady_rate(), step.work(facts)
    mean_step = continuous.mean_step(rate, step.base, work)
    prompt, each = step.prompt_seconds(facts), step.decode_seconds(facts)
    tpot = (step.base + each) / (1 - rate * work)
    slowed = 1 - rate * prompt
    form = continuous.residents(rate, facts.output, step.base / slowed, facts.output * each / slowed)
    variance = each**2 * form.variance + rate * mean_step * _prompt_square(facts, step)
    idle = float(form.law[0])
    late = continuous.alignment(mean_step, variance, 1 - idle)
    first = step.base + each * form.residents + prompt * (1 + rate * mean_step * (1 - idle))
    return Steady(
        rate=rate, step=mean_step, tpot=tpot, residents=form.residents, idle=idle, late=late, first=first
    )


def resident_regime(cost: CostModel, facts: Facts, limits: Limits, overlap: bool) -> Regime:
    """Batches from 1 to twice the residents of this load, found by trying larger ones."""
    most = 2
    while most < limits.max_num_seqs:
        regime = Regime(least=1, most=most)
        try:
            at = steady(facts, linear_step(cost, facts, regime, overlap))
            if 2 * at.residents <= most:
                return regime
        except InputError:
            pass
        most *= 2
    return Regime(least=1, most=limits.max_num_seqs)


def _prompt_square(facts: Facts, step: LinearStep) -> float:
    """E[P^2] of the seconds of a prompt."""
    prompts = facts.prompts.astype(float)
    each = step.request + step.prefill * prompts + step.attention * prompts**2 / 2
    return float((each**2).mean())


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
        rows = _rows(facts, step, steady(facts, step), limits, runs)
    except InputError as error:
        why = str(error)
        rows = [_nothing(key, name, why, runs) for key, name in (("tpot_s", "TPOT"), ("ttft_s", "TTFT"))]
    return Section("Continuous", said, tuple(rows))


def _check_load(facts: Facts, found: Ceilings) -> None:
    load = facts.steady_rate() / found.least
    if load >= 1:
        raise InputError(
            f"load on the {found.binds} is {load:.3g}, but must be under 1 for a steady state; "
            f"lower the rate below {found.least:.4g}/s"
        )


def _rows(facts: Facts, step: LinearStep, at: Steady, limits: Limits, runs: Simulated) -> list[Quantity]:
    each, work, prompt = step.decode_seconds(facts), step.work(facts), step.prompt_seconds(facts)
    run = runs.continuous
    burst = f"; gap CV^2 is {facts.gap_cv2:.1f}, so too low in bursts" if facts.gap_cv2 > BURSTY else ""
    return [
        quantity(
            "mean_step_s",
            "mean step",
            "s",
            "base / (1 - rate work)",
            f"{seconds(step.base)} / (1 - {plain(at.rate)} x {seconds(work)})",
            lambda: at.step,
            single(_mean_step(run)),
            "exact for a linear step while the engine never idles, any arrivals",
        ),
        quantity(
            "running",
            "running requests, mean while busy",
            "requests",
            "rate E[o] t / (1 - P(idle)), t: a step over time",
            f"{plain(at.rate)} x {plain(facts.output)} x {seconds(at.residents / at.rate / facts.output)} / "
            f"(1 - {plain(at.idle)})",
            lambda: at.residents / (1 - at.idle),
            single(run.summary.mean_batch),
            f"Poisson, slots to spare{burst}",
        ),
        quantity(
            "tpot_s",
            "mean TPOT",
            "s",
            "(base + d) / (1 - rate work)",
            f"({seconds(step.base)} + {seconds(each)}) / (1 - {plain(at.rate)} x {seconds(work)})",
            lambda: at.tpot,
            run.interval("tpot_s"),
            f"Poisson, slots to spare; d: what the own decode adds{burst}",
        ),
        quantity(
            "ttft_s",
            "mean TTFT",
            "s",
            "E[t^2] / (2 E[t]) + base + d n + P (1 + rate E[t])",
            f"{seconds(at.late)} + {seconds(step.base)} + {seconds(each)} x {plain(at.residents)} + "
            f"{seconds(prompt)} x {1 + at.rate * at.step * (1 - at.idle):.3f}",
            lambda: at.ttft,
            run.interval("ttft_s"),
            f"as TPOT, and prompts that fit one step; P: seconds of a prompt{burst}",
        ),
        quantity(
            "e2e_s",
            "mean E2E",
            "s",
            "TTFT + (E[o] - 1) TPOT",
            f"{seconds(at.ttft)} + {plain(facts.output - 1)} x {seconds(at.tpot)}",
            lambda: at.ttft + (facts.output - 1) * at.tpot,
            run.interval("e2e_s"),
            f"as TTFT{burst}",
        ),
        _wait(facts, step, at, limits),
        *_hayward(facts, step, at, limits),
    ]


def _nothing(key: str, name: str, why: str, runs: Simulated) -> Quantity:
    def value() -> float:
        raise InputError(why)

    simulated: Interval = runs.continuous.interval(key)
    return quantity(key, f"mean {name}", "s", "(base + d) / (1 - rate work)" if key == "tpot_s" else
                    "next step + step with the prompt", "", value, simulated)  # fmt: skip


def _mean_step(run: Run) -> float:
    return float(run.timeline.busy.sum()) / run.summary.num_steps


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
