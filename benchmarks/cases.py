"""What is compared, and the ratio that each comparison should reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.measure import Job, Runtime

MOST_MEGABYTES = 600  # peak memory of a run of a million requests, log kept
MOST_GROWTH = 1.25  # time per request, of the longest run to the shortest
GROWTH_FACTORS = (1, 10, 100)


@dataclass(frozen=True, kw_only=True)
class Runtimes:
    """Where each kind of code runs."""

    plain: Runtime
    compiled: Runtime
    first_plain: Runtime
    first_compiled: Runtime
    peers: Runtime


@dataclass(frozen=True, kw_only=True)
class Case:
    """`ours` should do at least `target` times the requests per second of `peer`."""

    group: str
    name: str
    ours: Job
    peer: Job
    target: float


# caching -> load -> ratio to the first sketch, which has neither prefix cache nor log: (plain, compiled)
AGAINST_FIRST = {
    "off": {"W1": (0.75, 0.65), "W2": (1.1, 1.1)},
    "unique": {"W1": (0.55, 0.5), "W2": (0.9, 0.95)},
    "shared": {"W1": (0.35, 0.35), "W2": (0.65, 0.65)},
}
AGAINST_SCHED_SIM = {"W1": (12.0, 68.0), "W2": (18.0, 110.0)}  # (plain, compiled)
LEAST_SKIP = 10.0
LEAST_POLICY = 1 / 3  # of vllm's speed
# Without chunks a prompt, which is as long as a step, would wait until nobody decodes: another load.
FLAGS = {"tensorrt_llm": "tensorrt_llm(enable_chunked_context=true)"}
ORDERS = ("ordered(order=sjf)", "ordered(order=vtc)")
APART = ("vllm(num_speculative_tokens=4, acceptance=0.7)",)  # it walks every request in every step
LEAST_REFERENCE = 8.0


def cases(at: Runtimes, num_requests: int, trace: str | None) -> Iterator[Case]:
    """All comparisons of two jobs, `num_requests` requests each."""
    job = Job(runtime=at.plain, num_requests=num_requests, trace=trace)
    yield from _against_first(at, job)
    yield from _against_sched_sim(at, job)
    yield from _against_stepping(at, job)
    yield from _against_reference(at, job)
    yield from _against_vllm(at, job)


def growth(runtime: Runtime, num_requests: int) -> list[Job]:
    """The same load, longer and longer, its requests made as they come."""
    return [Job(runtime=runtime, num_requests=num_requests * factor, lazy=True) for factor in GROWTH_FACTORS]


def _against_first(at: Runtimes, job: Job) -> Iterator[Case]:
    for caching, loads in AGAINST_FIRST.items():
        for load, targets in loads.items():
            pairs = ((at.plain, at.first_plain), (at.compiled, at.first_compiled))
            for (ours, first), target in zip(pairs, targets, strict=True):
                yield Case(
                    group="first",
                    name=f"{load} caching {caching}, {mode(ours)} / first sketch, {mode(first)}",
                    ours=replace(job, runtime=ours, load=load, caching=caching),
                    peer=replace(job, runtime=first, load=load, worker="first"),
                    target=target,
                )


def _against_sched_sim(at: Runtimes, job: Job) -> Iterator[Case]:
    for load, targets in AGAINST_SCHED_SIM.items():
        for ours, target in zip((at.plain, at.compiled), targets, strict=True):
            yield Case(
                group="sched-sim",
                name=f"{load} {mode(ours)} / sched-sim 0.2.1",
                ours=replace(job, runtime=ours, load=load),
                peer=replace(job, runtime=at.peers, load=load, worker="sched-sim"),
                target=target,
            )


def _against_stepping(at: Runtimes, job: Job) -> Iterator[Case]:
    few = max(job.num_requests // 50, 1)  # each has 2,000 steps
    for runtime in (at.plain, at.compiled):
        skipping = replace(job, runtime=runtime, load="W3", num_requests=few)
        yield Case(
            group="skip",
            name=f"W3 {mode(runtime)}, skip / step",
            ours=skipping,
            peer=replace(skipping, skip=False),
            target=LEAST_SKIP,
        )


def _against_reference(at: Runtimes, job: Job) -> Iterator[Case]:
    fewer = replace(job, num_requests=max(job.num_requests // 10, 1))
    yield Case(
        group="reference",
        name="W1 plain / per-request reference loop",
        ours=fewer,
        peer=replace(fewer, worker="reference"),
        target=LEAST_REFERENCE,
    )


def _against_vllm(at: Runtimes, job: Job) -> Iterator[Case]:
    """Every policy beside vllm."""
    from batchwright.policies import POLICIES

    named = [FLAGS.get(name, name) for name in POLICIES if name not in ("vllm", "continuous", "ordered")]
    for runtime in (at.plain, at.compiled):
        for text in (*named, *ORDERS, *APART):
            vllm = replace(job, runtime=runtime, policy="vllm")
            yield Case(
                group="policies",
                name=f"W1 {mode(runtime)}, {text} / vllm",
                ours=replace(vllm, policy=text),
                peer=vllm,
                target=0.0 if text in APART else LEAST_POLICY,
            )


def mode(runtime: Runtime) -> str:
    return "compiled" if runtime.compiled else "plain"
