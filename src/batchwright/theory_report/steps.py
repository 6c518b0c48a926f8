"""The step time that the formulas use: linear in what a step holds.

    base + request * prompts + prefill * prompt tokens + attention * pairs + decode * rows + context * KV read

Constant and Linear are that already.  Every other cost is fitted where a formula needs it, on
batches between two sizes: decodes alone give base, decode and context, and what prompts of the
load's lengths add to such a step gives prefill and attention.  The errors of the fit are said.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, lgamma, log, sqrt

import numpy as np

from batchwright.cost import Constant, CostModel, Hosted, Linear, Stretch, stretch_of
from batchwright.metrics import Numbers
from batchwright.step import Step
from batchwright.theory_report.facts import Facts
from batchwright.theory_report.quantity import seconds

QUANTILES = 40  # of the prompts, which prompts are taken at
LEAST_QUANTILES = 8  # where numbers of prompts vary too
RARE = 0.01  # share of the most frequent number of prompts
SIZES = 8  # batches between the least and the most
NOTHING = 1e-7  # seconds per unit that are not worth a word
CONTEXTS = (0.5, 1.0, 1.5)  # times the mean


@dataclass(frozen=True, kw_only=True)
class LinearStep:
    """Seconds per unit.  `error`, `typical`: greatest and median relative error of the fit, 0 if exact."""

    base: float
    request: float = 0.0
    prefill: float = 0.0
    attention: float = 0.0
    decode: float = 0.0
    context: float = 0.0
    error: float = 0.0
    typical: float = 0.0
    range: str = ""

    def prompt_seconds(self, facts: Facts) -> float:
        """What one prompt adds to its step, mean."""
        return self.request + self.prefill * facts.prompt + self.attention * facts.pairs

    def decode_seconds(self, facts: Facts) -> float:
        """What one decode adds to its step, mean."""
        return self.decode + self.context * facts.resident_tokens

    def work(self, facts: Facts) -> float:
        """What one request adds to all its steps."""
        return self.prompt_seconds(facts) + (facts.output - 1) * self.decode_seconds(facts)

    def __str__(self) -> str:
        parts = [f"{seconds(self.base)}"]
        for value, unit in (
            (self.request, "prompt"),
            (self.prefill, "prompt token"),
            (self.decode, "decode"),
        ):
            parts += [f"{seconds(value)} per {unit}"] if value > NOTHING else []
        parts += [f"{seconds(self.context * 1e3)} per 1000 KV tokens read"] if self.context else []
        parts += [f"{seconds(self.attention * 1e6)} per 10^6 attention pairs"] if self.attention else []
        return " + ".join(parts)

    @property
    def fit(self) -> str:
        """How good the fit is; '' where there is none."""
        if not self.range:
            return ""
        return f"fitted on {self.range}: error {self.typical:.1%} in the median, {self.error:.0%} at most"


@dataclass(frozen=True, kw_only=True)
class Regime:
    """Where a step is fitted: batches of `least` to `most`; `prompts`: how many come in one step.

    Prompts come beside (least + most) / 2 decodes, or, if `apart`, in a step of their own.  `arriving`: mean
    of a Poisson number of prompts in one step, which then takes the place of `prompts`.
    """

    least: int
    most: int
    prompts: int = 1
    apart: bool = False
    arriving: float = 0.0

    @property
    def shares(self) -> dict[int, float]:
        """How often so many prompts come in one step; those that are too rare to count left out."""
        if not self.arriving:
            return {self.prompts: 1.0}
        most = int(self.arriving + 4 * sqrt(self.arriving)) + 2
        law = {k: exp(k * log(self.arriving) - self.arriving - lgamma(k + 1)) for k in range(1, most)}
        return {k: share for k, share in law.items() if share > RARE * max(law.values())}


def linear_step(cost: CostModel, facts: Facts, regime: Regime, overlap: bool) -> LinearStep:
    """The linear step of `cost` for batches of `regime`; `overlap`: a host hides behind its device."""
    if isinstance(cost, Constant):
        return LinearStep(base=cost.each)
    if isinstance(cost, Linear):
        return LinearStep(
            base=cost.base,
            prefill=cost.prefill,
            attention=cost.prefill_attention,
            decode=cost.decode,
            context=cost.context,
        )
    if isinstance(cost, Hosted) and not overlap and isinstance(cost.cost, Constant | Linear):
        inner = linear_step(cost.cost, facts, regime, overlap)
        return replace(
            inner,
            base=inner.base + cost.base,
            request=cost.per_running,
            decode=inner.decode + cost.per_running,
        )
    return _fitted(stretch_of(cost, overlap), facts, regime)


def _fitted(stretch: Stretch, facts: Facts, regime: Regime) -> LinearStep:
    decodes = _decode_steps(facts, regime)
    times = np.array([stretch(step, 1) for step in decodes])
    rows = np.array([[1.0, step.num_decodes, step.context_tokens] for step in decodes])
    base, decode, context = _least_squares(rows / times[:, None], np.ones(len(times))).tolist()
    beside = 0 if regime.apart else (regime.least + regime.most) // 2
    before = stretch(_step(beside, 0, 0, facts), 1) if beside else base
    made, weight = _prompt_steps(facts, regime, beside)
    extra = np.array([stretch(step, 1) - before for step in made])
    tokens = np.array([[step.prefill_tokens, step.prefill_attention] for step in made], float)
    found = _least_squares(tokens * weight[:, None], extra * weight)
    guessed = weight @ tokens @ found
    prefill, attention = (
        found * (weight @ extra / guessed if guessed else 1.0)
    ).tolist()  # exact in the mean
    guesses = np.concatenate((rows @ [base, decode, context], before + tokens @ [prefill, attention]))
    errors = np.abs(guesses / np.concatenate((times, before + extra)) - 1)
    return LinearStep(
        base=base,
        prefill=prefill,
        attention=attention,
        decode=decode,
        context=context,
        error=float(errors.max()),
        typical=float(np.median(errors)),
        range=f"{regime.least} to {regime.most} requests",
    )


def _prompt_steps(facts: Facts, regime: Regime, beside: int) -> tuple[list[Step], Numbers]:
    """Steps with prompts beside decodes, and how often they come."""
    shares = regime.shares
    quantiles = max(QUANTILES // len(shares), LEAST_QUANTILES)
    lengths = np.quantile(facts.prompts, (np.arange(quantiles) + 0.5) / quantiles).round().astype(int)
    made = [_step(beside, length, count, facts) for count in shares for length in lengths.tolist()]
    return made, np.repeat(list(shares.values()), quantiles)


def _decode_steps(facts: Facts, regime: Regime) -> list[Step]:
    sizes = np.unique(np.rint(np.linspace(regime.least, regime.most, SIZES)).astype(int)).tolist()
    return [_step(n, 0, 0, facts, share) for n in sizes for share in CONTEXTS]


def _step(decodes: int, prompt: int, prompts: int, facts: Facts, share: float = 1.0) -> Step:
    """`decodes` that read `share` of the mean context each, and `prompts` of `prompt` tokens."""
    step = Step()
    step.num_decodes = decodes
    step.context_tokens = round(decodes * facts.resident_tokens * share)
    step.prefill_tokens = prompt * prompts
    step.num_chunks = prompts
    step.prefill_attention = prompts * prompt * prompt / 2
    step.sampled_rows = decodes + prompts
    return step


def _least_squares(rows: Numbers, values: Numbers) -> Numbers:
    """x >= 0 with rows x near `values`: a column that comes out negative is left out."""
    used = list(range(rows.shape[1]))
    while True:
        scale = np.abs(rows[:, used]).max(axis=0)
        scale[scale == 0] = 1.0
        found, *_ = np.linalg.lstsq(rows[:, used] / scale, values, rcond=None)
        worst = int(np.argmin(found))
        if found[worst] >= 0 or len(used) == 1:
            result = np.zeros(rows.shape[1])
            result[used] = np.maximum(found, 0) / scale
            return result
        del used[worst]
