"""What the load asks for, and what slots, KV cache and token budget allow."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan

from batchwright.errors import InputError
from batchwright.limits import UNLIMITED, Limits
from batchwright.theory import continuous
from batchwright.theory.expected_max import max_over_mean
from batchwright.theory.lengths import cv2
from batchwright.theory_report.facts import Facts
from batchwright.theory_report.quantity import Quantity, Section, plain, quantity, seconds
from batchwright.theory_report.simulated import Simulated
from batchwright.theory_report.steps import LinearStep, Regime

SIZES = (8, 32, 128)


def load_section(facts: Facts, runs: Simulated) -> Section:
    """Rate and lengths."""
    said = (
        f"{len(facts.outputs):,} requests served, {_pace(facts)}; mean prompt {plain(facts.prompt)} tokens, "
        f"mean output {plain(facts.output)}, CV^2 {cv2(facts.law):.2f}",
    )
    return Section("The load", said, tuple(_longest(facts, size, runs) for size in SIZES))


def step_lines(facts: Facts, step: LinearStep) -> list[str]:
    """The step that the formulas stand on, and what one request adds to its steps."""
    said = [f"base {step}"]
    if step.work(facts) == 0:
        return [f"{said[0]}: a request adds nothing to a step"]
    said.append(
        f"work of one request {seconds(step.work(facts))}: prompt {seconds(step.prompt_seconds(facts))} + "
        f"{plain(facts.output - 1)} decodes of {seconds(step.decode_seconds(facts))}"
    )
    return [*said, step.fit] if step.fit else said


def _pace(facts: Facts) -> str:
    if facts.rate == inf:
        return "all at once"
    if isnan(facts.rate):
        return "some after others have ended"
    return f"{plain(facts.rate)} requests/s, gap CV^2 {facts.gap_cv2:.2f} (Poisson: 1)"


def _longest(facts: Facts, size: int, runs: Simulated) -> Quantity:
    ratio = max_over_mean(facts.law, size)
    enough = len(facts.outputs) >= 2 * size
    return quantity(
        f"longest_of_{size}",
        f"longest of {size} outputs / mean output",
        "x",
        f"E[max of {size}] / E[o]",
        f"{plain(ratio * facts.output)} / {plain(facts.output)}",
        lambda: ratio,
        runs.longest(size) if enough else None,
        "any lengths, if they are independent; simulated: requests in the order in which they come",
    )


@dataclass(frozen=True, kw_only=True)
class Ceilings:
    """Requests/s; inf: not bounded."""

    slots: float
    kv: float
    tokens: float

    @property
    def least(self) -> float:
        """The rate beyond which there is no steady state."""
        return min(self.slots, self.kv, self.tokens)

    @property
    def binds(self) -> str:
        """Which of them it is."""
        names = {"slots": self.slots, "KV cache": self.kv, "token budget": self.tokens}
        return min(names, key=lambda name: names[name])


def ceilings(facts: Facts, step: LinearStep, limits: Limits) -> Ceilings:
    """What each limit allows for itself."""
    work = step.work(facts)
    kv = inf
    if limits.blocks < UNLIMITED:
        tokens = limits.blocks * limits.block_size
        kv = continuous.kv_ceiling_linear(tokens, facts.area, facts.output, step.base, work)
    return Ceilings(
        slots=continuous.slots_ceiling(limits.max_num_seqs, facts.output, step.base, work),
        kv=kv,
        tokens=continuous.token_ceiling(
            limits.max_num_batched_tokens, _full_step(facts, step, limits), facts.prompt, facts.output
        ),
    )


def _full_step(facts: Facts, step: LinearStep, limits: Limits) -> float:
    """Seconds of a step of `max_num_batched_tokens` tokens in the mix that the load brings."""
    requests = limits.max_num_batched_tokens / (facts.prompt + facts.output)
    return step.base + requests * step.work(facts)


def largest_batch(facts: Facts, limits: Limits) -> int:
    """Residents with every slot taken, or with the KV cache full."""
    if limits.blocks == UNLIMITED:
        return limits.max_num_seqs
    held = limits.blocks * limits.block_size * facts.output / facts.area
    return max(min(limits.max_num_seqs, int(held)), 1)


def full_regime(facts: Facts, limits: Limits) -> Regime:
    """Batches near the largest."""
    most = largest_batch(facts, limits)
    return Regime(least=max(most // 2, 1), most=most, prompts=max(round(most / facts.output), 1))


def limits_section(
    facts: Facts, step: LinearStep, limits: Limits, found: Ceilings, runs: Simulated
) -> Section:
    """Ceilings of the rate under continuous batching, and the load on the least of them."""
    saturated = runs.saturated_rate()
    said = (
        *step_lines(facts, step),
        f"continuous batching is steady below the least of the three: {found.binds} "
        f"{'bind' if found.binds == 'slots' else 'binds'}, "
        f"{plain(found.least)} requests/s",
    )
    rows = (
        _slots(facts, step, limits, found),
        _kv(facts, step, limits, found),
        _tokens(facts, step, limits, found),
        quantity(
            "ceiling",
            "all limits together",
            "requests/s",
            "min(slots, KV, tokens)",
            f"min({plain(found.slots)}, {plain(found.kv)}, {plain(found.tokens)})",
            lambda: found.least,
            saturated,
            "simulated: lengths drawn from the load, all at once; where two ceilings are close, less",
        ),
        _load(facts, found),
    )
    return Section("Limits", said, rows)


def _slots(facts: Facts, step: LinearStep, limits: Limits, found: Ceilings) -> Quantity:
    c, work = limits.max_num_seqs, step.work(facts)
    return quantity(
        "slots_ceiling",
        f"{c} slots",
        "requests/s",
        "c / (E[o] base + c work)",
        f"{c} / ({plain(facts.output)} x {seconds(step.base)} + {c} x {seconds(work)})",
        lambda: found.slots,
        holds="exact for a linear step while every slot is taken, and prompts that fit one step",
    )


def _kv(facts: Facts, step: LinearStep, limits: Limits, found: Ceilings) -> Quantity:
    tokens, work = limits.blocks * limits.block_size, step.work(facts)
    residents = tokens * facts.output / facts.area

    def value() -> float:
        if found.kv == inf:
            raise InputError("KV memory is not modelled with this cost; give --num-gpu-blocks-override")
        return found.kv

    return quantity(
        "kv_ceiling",
        "KV cache",
        "requests/s",
        "m / (E[o] base + m work), m = M E[o] / E[g] residents",
        f"{plain(residents)} / ({plain(facts.output)} x {seconds(step.base)} + {plain(residents)} x "
        f"{seconds(work)}), m = {plain(tokens)} x {plain(facts.output)} / {plain(facts.area)}",
        value,
        holds="paging without waste; preempted requests are computed anew, which costs up to some percent",
    )


def _tokens(facts: Facts, step: LinearStep, limits: Limits, found: Ceilings) -> Quantity:
    budget, full = limits.max_num_batched_tokens, _full_step(facts, step, limits)
    per_request = facts.prompt + facts.output
    return quantity(
        "token_ceiling",
        f"{plain(budget)} tokens a step",
        "requests/s",
        "b / (t_b (E[s] + E[o]))",
        f"{plain(budget)} / ({seconds(full)} x {plain(per_request)})",
        lambda: found.tokens,
        holds=f"t_b: step of b tokens in the load's mix, with {plain(budget * facts.output / per_request)} "
        f"residents; slots bind first if that is over {limits.max_num_seqs}",
    )


def _load(facts: Facts, found: Ceilings) -> Quantity:
    return quantity(
        "load",
        "load on them",
        "share",
        "rate / ceiling",
        f"{plain(facts.rate)} / {plain(found.least)}",
        lambda: facts.steady_rate() / found.least,
        holds="1 or more: the queue grows for ever, so that no wait below has a mean",
    )
