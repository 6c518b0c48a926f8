"""One paragraph in words: what each policy does with its slots, and what that does to its clients.

It says only what is in the numbers: the shares of `slots`, KV blocks and preemptions of the first load;
mean E2E, attainment and gaps between tokens as the table has them; the saturation verdict.  Of more
than three policies, those with the least and the greatest mean E2E and, of the rest, the one that
computes least in its slots stand for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isnan
from typing import Final

from batchwright.figures import listed, seconds
from batchwright.run import Run

Estimate = Callable[[str, str], float]  # policy, metric -> value; nan: not applicable
PARTS: Final = {
    "padding": "goes to padding (rows that have ended, prompts filled up to the longest)",
    "held": "is held by requests that are not computed",
    "idle_with_queue": "is empty while requests wait",
    "idle_without_queue": "is empty with nobody waiting",
}
FULL: Final = 0.99  # a share of the KV blocks that leaves none to use
SMALL: Final = 0.005  # a share that is not worth a word
MOST: Final = 3  # policies with a sentence of their own
NEAR: Final = 1.05  # a ratio that is not worth a word


def paragraph(runs: Mapping[str, Run], estimate: Estimate | None = None) -> str:
    """The paragraph on `runs`, by the name of the policy.  Empty if there are none.

    `estimate(policy, metric)`: over all loads; else that of each run.
    """
    value = estimate or _estimates_of(runs)
    served = {name: run for name, run in runs.items() if not isnan(run.slots.seconds)}
    chosen = {name: served[name] for name in _chosen(served)}
    sentences = [_slots_sentence(name, run) for name, run in chosen.items()]
    sentences += _nobody([name for name in runs if name not in served])
    if chosen:
        sentences += [*_kv(chosen), _latency_sentence(chosen, value), *_attained(chosen, value)]
        sentences += [*_saturation(served), *_stream(chosen, value)]
    return " ".join(sentences)


def _estimates_of(runs: Mapping[str, Run]) -> Estimate:
    """Those of each run alone, found once."""
    found = {name: run.estimates() for name, run in runs.items()}
    return lambda name, metric: found[name][metric]


def _chosen(served: Mapping[str, Run]) -> list[str]:
    """The names that stand for all, in the order given."""
    if len(served) <= MOST:
        return list(served)
    order = sorted(served, key=lambda name: served[name].summary.e2e.mean)
    idlest = min(order[1:-1], key=lambda name: _useful(served[name]))
    return [name for name in served if name in (order[0], order[-1], idlest)]


def _useful(run: Run) -> float:
    return run.slots.prefill + run.slots.decode


def _slots_sentence(name: str, run: Run) -> str:
    shares, seats = run.slots.shares, run.slots.num_slots
    of = "its one slot" if seats == 1 else f"its {seats:,} slots"
    peak = run.summary.peak_batch
    of += f", of which {peak:,.0f} at most were taken" if peak < seats else ""
    if len(run.parts) > 1:
        of = f"the {seats:,} slots of its {len(run.parts)} replicas"
    rest = sorted((part for part in PARTS if shares[part] >= SMALL), key=lambda part: -shares[part])
    parts = [f"{shares[part]:.1%} {PARTS[part]}" for part in rest]
    after = f"; {listed(parts)}" if parts else ""
    return f"{name} computes prompts and tokens in {_useful(run):.1%} of the time of {of}{after}."


def _nobody(names: list[str]) -> list[str]:
    finish = "finishes" if len(names) == 1 else "finish"
    return [f"{listed(names)} {finish} no request."] if names else []


def _kv(chosen: Mapping[str, Run]) -> list[str]:
    """Who runs out of KV blocks."""
    return [
        f"{name} runs out of KV blocks: {run.summary.kv_peak:.1%} are taken at the peak, "
        f"{run.summary.kv_occupancy:.1%} on average{_preempted(run)}."
        for name, run in chosen.items()
        if run.summary.num_preemptions or run.summary.kv_peak >= FULL
    ]


def _preempted(run: Run) -> str:
    count = run.summary.num_preemptions
    if count == 0:
        return ""
    times = "a request is preempted once" if count == 1 else f"requests are preempted {count:,} times"
    return f", and {times}"


def _attained(chosen: Mapping[str, Run], value: Estimate) -> list[str]:
    """Who meets the SLO, if there is one."""
    shares = {name: value(name, "attainment") for name in chosen}
    parts = [f"{share:.1%} with {name}" for name, share in shares.items() if not isnan(share)]
    return [f"Of all requests, {listed(parts)} meet the SLO."] if parts else []


def _latency_sentence(chosen: Mapping[str, Run], value: Estimate) -> str:
    means = {name: value(name, "e2e_s.mean") for name in chosen}
    order = sorted(means, key=lambda name: means[name])
    least, greatest = order[0], order[-1]
    parts = [f"{seconds(means[name])} with {name}" for name in order]
    ratio = means[greatest] / means[least]
    factor = f", {ratio:,.3g} times as long as with {least}" if ratio >= NEAR else ""
    return f"From arrival to end a request takes {listed(parts)} on average{factor}."


def _saturation(served: Mapping[str, Run]) -> list[str]:
    names = [name for name, run in served.items() if run.saturation().is_saturated]
    if not names:
        return []
    are, their = ("is", "its") if len(names) == 1 else ("are", "their")
    return [
        f"{listed(names)} {are} past saturation: {their} waits grow with the trace, so {their} numbers "
        "hold for this length only."
    ]


def _stream(chosen: Mapping[str, Run], value: Estimate) -> list[str]:
    """What clients see of the tokens."""
    mute = [name for name, run in chosen.items() if not run.is_streamed]
    gaps = {name: (value(name, "itl_s.mean"), value(name, "itl_s.p99")) for name in chosen}
    parts = [
        f"{seconds(mean)} with {name} (P99 {seconds(p99)})"
        for name, (mean, p99) in gaps.items()
        if not isnan(mean)
    ]
    found = [f"The mean gap between two tokens is {listed(parts)}"] if parts else []
    if mute:
        clients = "clients" if found else "Clients"
        found.append(f"{clients} of {listed(mute)} see nothing before their batch has ended")
    return ["; ".join(found) + "."] if found else []
