"""Continuous over static, the host that schedules, and the batch that an objective allows."""

from __future__ import annotations

from math import inf

from batchwright.cost import CostModel, Hosted
from batchwright.errors import InputError
from batchwright.limits import UNLIMITED, Limits
from batchwright.slo import Slo
from batchwright.theory import continuous, gain, overhead, slo
from batchwright.theory.expected_max import expected_max
from batchwright.theory.lengths import mean, residual
from batchwright.theory_report.asked import Ceilings, largest_batch
from batchwright.theory_report.batches import batch_of
from batchwright.theory_report.facts import Facts
from batchwright.theory_report.quantity import Quantity, Section, plain, quantity, seconds
from batchwright.theory_report.simulated import DRAWN, DRAWS, Simulated
from batchwright.theory_report.steady import resident_regime, steady
from batchwright.theory_report.steps import LinearStep, linear_step

FEW = 100  # requests that come at once
MANY = 40  # draws of them


def gain_section(facts: Facts, step: LinearStep, limits: Limits, runs: Simulated) -> Section:
    """At the same number of slots, and what more slots add."""
    size = runs.size
    said = (f"continuous over static batches of {size}, both with {size} slots; static without padding",)
    rows = (
        _saturated(facts, step, size, runs),
        _decode_only(facts, size, runs),
        _few(facts, size, runs),
        _more_slots(facts, step, limits, size),
    )
    return Section("Gain", said, rows)


def _saturated(facts: Facts, step: LinearStep, size: int, runs: Simulated) -> Quantity:
    batch = batch_of(facts, step, size, False)
    share = facts.output * step.base + size * step.work(facts)
    return quantity(
        "saturated_gain",
        "requests/s, always somebody waiting",
        "gain",
        "E[S_B] / (E[o] base + B work) - 1",
        f"{seconds(batch.seconds)} / ({plain(facts.output)} x {seconds(step.base)} + {size} x "
        f"{seconds(step.work(facts))}) - 1",
        lambda: batch.seconds / share - 1,
        runs.gain(DRAWN, DRAWS),
        f"a linear step, many requests; simulated: {DRAWN:,} drawn from the load, whose last drain takes "
        "some percent off; on a roofline more, as a step with a long prompt hides its base",
    )


def _decode_only(facts: Facts, size: int, runs: Simulated) -> Quantity:
    longest = expected_max(facts.law, size)
    return quantity(
        "constant_step_gain",
        "the same, constant step and free prompts",
        "gain",
        "E[max of B] / E[o] - 1",
        f"{plain(longest)} / {plain(facts.output)} - 1",
        lambda: gain.saturated_gain(facts.law, size),
        runs.gain(DRAWN, DRAWS, is_free=True),
        "the most that lengths alone can give",
    )


def _few(facts: Facts, size: int, runs: Simulated) -> Quantity:
    few = len(facts.outputs) if facts.rate == inf else FEW
    return quantity(
        "gain_at_once",
        f"the same, {few:,} requests at once",
        "gain",
        "steps of static / (n E[o] / B - E[R] + E[max of B R]) - 1",
        _filled_few(facts, few, size),
        lambda: gain.gain_at_once(facts.law, few, size),
        runs.gain(few, MANY, is_free=True),
        "R: tokens that a resident has left at a random step; outputs that spread enough for requests not to "
        "leave in waves: then within 5%; nothing to gain up to B requests",
    )


def _filled_few(facts: Facts, few: int, size: int) -> str:
    static = plain(gain.static_time(facts.law, few, size, 1.0))
    if few <= size:
        return f"{static} / {static} - 1"
    left = residual(facts.law)
    drain = expected_max(left, size) - mean(left)
    return f"{static} / ({few} x {plain(facts.output)} / {size} + {plain(drain)}) - 1"


def _more_slots(facts: Facts, step: LinearStep, limits: Limits, size: int) -> Quantity:
    work, slots = step.work(facts), limits.max_num_seqs
    ratio = continuous.slots_ceiling(slots, facts.output, step.base, work) / continuous.slots_ceiling(
        size, facts.output, step.base, work
    )
    return quantity(
        "slots_gain",
        f"{slots} slots over {size}, continuous both",
        "gain",
        "c (E[o] base + B work) / (B (E[o] base + c work)) - 1",
        f"{slots} x {seconds(facts.output * step.base + size * work)} / ({size} x "
        f"{seconds(facts.output * step.base + slots * work)}) - 1",
        lambda: ratio - 1,
        holds="where paging holds as many; the KV ceiling may bind before",
    )


def host_section(facts: Facts, cost: CostModel, limits: Limits) -> Section:
    """What the host takes from a step, hidden or not.  A cost without a host gets that of `Hosted`."""
    host = cost if isinstance(cost, Hosted) else Hosted(cost)
    source = "host of the cost" if isinstance(cost, Hosted) else "the cost has no host; vLLM 0.32's is"
    running, length, where = _device_at(facts, host.cost, limits)
    said = (
        f"{source}, {seconds(host.base)} + {seconds(host.per_running)} per running request a step; "
        f"{where}: {plain(running)} running, the device's steps {seconds(length)}"
    )
    time = overhead.host_seconds(running, host.base, host.per_running)
    first = quantity(
        "host_s",
        "host time of a step",
        "s",
        "h0 + h1 n",
        f"{seconds(host.base)} + {seconds(host.per_running)} x {plain(running)}",
        lambda: time,
    )
    return Section("Scheduler", (said,), (first, *_host_costs(facts, length, time)))


def _device_at(facts: Facts, device: CostModel, limits: Limits) -> tuple[float, float, str]:
    """Running requests and seconds of a step: at this load, or else with every slot taken."""
    step = linear_step(device, facts, resident_regime(device, facts, limits, False), False)
    try:
        at = steady(facts, step)
        return at.residents / (1 - at.idle), at.step, "at this load"
    except InputError:
        most = limits.max_num_seqs
        return float(most), step.base + most * step.work(facts) / facts.output, "with every slot taken"


def _host_costs(facts: Facts, length: float, time: float) -> tuple[Quantity, ...]:
    return (
        quantity(
            "synchronous_loss",
            "share of time lost if it does not overlap",
            "share",
            "h / (step + h)",
            f"{seconds(time)} / ({seconds(length)} + {seconds(time)})",
            lambda: overhead.synchronous_loss(length, time),
            holds="synchronous scheduling",
        ),
        quantity(
            "overlap_gain",
            "gain of asynchronous scheduling",
            "gain",
            "(step + h) / max(step, h) - 1",
            f"{seconds(length + time)} / {seconds(max(length, time))} - 1",
            lambda: overhead.overlap_speedup(length, time) - 1,
            holds=f"an end is seen a step late: {100 / facts.output:.2g} % more steps a request",
        ),
        quantity(
            "ten_percent_step_s",
            "step under which the host costs over 10 %",
            "s",
            "9 h",
            f"9 x {seconds(time)}",
            lambda: overhead.step_for_loss(time, 0.1),
            holds="synchronous scheduling",
        ),
    )


def batch_section(
    facts: Facts,
    step: LinearStep,
    limits: Limits,
    found: Ceilings,
    objective: Slo | None,
    runs: Simulated,
) -> Section:
    """The largest batch that the limits hold, and that a TPOT allows: requests/s grow with the batch."""
    each, most = step.work(facts) / facts.output, largest_batch(facts, limits)
    held = "" if limits.blocks == UNLIMITED else f", {plain(limits.blocks * limits.block_size)} x "
    held += f"{plain(facts.output)} / {plain(facts.area)}" if held else ""
    rows = [
        quantity(
            "largest_batch",
            "largest batch that slots and KV cache hold",
            "requests",
            "min(c, M E[o] / E[g])",
            f"min({limits.max_num_seqs}{held})",
            lambda: most,
            holds="the best for requests/s: they grow with the batch as long as a step has a base",
        ),
        quantity(
            "largest_batch_tpot_s",
            "TPOT with it",
            "s",
            "base + n work / E[o]",
            f"{seconds(step.base)} + {most} x {seconds(each)}",
            lambda: step.base + most * each,
            runs.saturated_tpot(),
            "full all the time, prompts coming as requests end",
        ),
    ]
    if objective is not None and objective.tpot is not None:
        rows += _objective(facts, step, most, found, objective.tpot)
    return Section("Best batch", (), tuple(rows))


def _objective(facts: Facts, step: LinearStep, most: int, found: Ceilings, target: float) -> list[Quantity]:
    each = step.work(facts) / facts.output

    def allowed() -> int:
        return min(slo.residents_for_tpot(target, step.base, each), most)

    def rate() -> float:
        n = allowed()
        return min(slo.rate_for_tpot(n, facts.output, step.base + n * each), found.least)

    return [
        quantity(
            "slo_batch",
            f"largest batch with a TPOT of {seconds(target)}",
            "requests",
            "min(floor((TPOT - base) / (work / E[o])), largest)",
            f"min(floor(({seconds(target)} - {seconds(step.base)}) / {seconds(each)}), {most})",
            allowed,
            holds="set max_num_seqs to it; TTFT is bounded by the load, see Continuous",
        ),
        quantity(
            "slo_rate",
            "requests/s that it finishes",
            "requests/s",
            "min(n / (E[o] (base + n work / E[o])), ceilings)",
            f"min(n / ({plain(facts.output)} x ({seconds(step.base)} + n x {seconds(each)})), "
            f"{plain(found.least)})",
            rate,
            holds="an upper bound for open arrivals, whose batch varies",
        ),
    ]
