"""The steady state of continuous batching on a load, slots without limit.

The prompts that come in a step of t seconds add rate t P to it, P the seconds of one prompt, so they slow all
decodes by 1 / (1 - rate P).  What is left is the product form of `theory.continuous.residents`:

    TPOT = (base + d) / (1 - rate work)            d: what the own decode adds to its step
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.cost import CostModel
from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.theory import continuous
from batchwright.theory_report.facts import Facts
from batchwright.theory_report.steps import LinearStep, Regime, linear_step

ROUNDS: Final = 20  # of the prompts of a step
NEAR: Final = 0.005  # relative change of them in the last


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

    @property
    def running(self) -> float:
        """Residents while there are any."""
        return self.residents / (1 - self.idle)

    def e2e(self, output: float) -> float:
        """From arrival to the last of `output` tokens."""
        return self.ttft + (output - 1) * self.tpot


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
        try:
            regime, at = _settled(cost, facts, most, overlap)
            if 2 * at.residents <= most:
                return regime
        except InputError:
            pass
        most *= 2
    try:
        return _settled(cost, facts, limits.max_num_seqs, overlap)[0]
    except InputError:
        return Regime(least=1, most=limits.max_num_seqs)


def _settled(cost: CostModel, facts: Facts, most: int, overlap: bool) -> tuple[Regime, Steady]:
    """The regime whose steps take the time in which its prompts come.  Raises InputError if there is none."""
    rate, arriving = facts.steady_rate(), 0.5
    for _ in range(ROUNDS):
        regime = Regime(least=1, most=most, arriving=arriving)
        at = steady(facts, linear_step(cost, facts, regime, overlap))
        last, arriving = arriving, rate * at.step
        if abs(arriving / last - 1) < NEAR:
            break
    return regime, at


def _prompt_square(facts: Facts, step: LinearStep) -> float:
    """E[P^2] of the seconds of a prompt."""
    prompts = facts.prompts.astype(float)
    each = step.request + step.prefill * prompts + step.attention * prompts**2 / 2
    return float((each**2).mean())
