"""Rare long prompts among short requests: who waits for whom, and what each remedy gives and takes.

A step with a chunk of C tokens lasts base + each n + prefill C, so that is what its n decodes wait:

    ITL, worst    the step with a full chunk, the last one of the prompt; without chunks the whole prompt
    TTFT, long    late + rate S^2 / (2 (1 - rate S)) + S,     S = seconds of the steps of one prompt

A running prompt comes before those that wait, so a short request waits until it is complete unless
`long_prefill_token_threshold` leaves it some budget.  Source: Sarathi-Serve, Agrawal et al. 2024
(arXiv 2403.02310); M/D/1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from batchwright.edge.load import Mix, is_long_in
from batchwright.edge.serve import Progress, Report, at_once, check, estimates, percentile, serve
from batchwright.edge.server import Server
from batchwright.edge.steps import decodes, with_chunk
from batchwright.errors import InputError
from batchwright.interval import Interval
from batchwright.metrics import Numbers
from batchwright.run import Run
from batchwright.theory.queues import pollaczek_khinchine

LONG_SHARE: Final = 0.25  # of the time of a server, for long prompts
SHORT_SHARE: Final = 0.2  # of what it serves at most of short requests alone
MORE_BLOCKS: Final = 4  # times the KV blocks, to see whether memory is the cause
WHOLE: Final = "whole prompts"
TILE: Final = 128  # tokens
UNITS: Final = {
    "long_tokens": "long_prompt_tokens",
    "budget": "max_num_batched_tokens",
    "short_rate": "short_rate_per_s",
    "long_rate": "long_rate_per_s",
    "short_ttft_p50": "short_ttft_p50_s",
    "short_ttft_p99": "short_ttft_p99_s",
    "short_itl_p99": "short_itl_p99_s",
    "short_itl_most": "short_itl_most_s",
    "short_itl_p50": "short_itl_p50_s",
    "long_ttft_p50": "long_ttft_p50_s",
    "long_ttft_p99": "long_ttft_p99_s",
    "long_itl_p50": "long_itl_p50_s",
    "long_itl_p99": "long_itl_p99_s",
    "capacity": "capacity_tokens_per_s",
    "longest_step": "longest_step_s",
    "prompt_seconds": "prompt_s",
    "long_ttft": "long_ttft_s",
    "long_ttft_mean": "long_ttft_mean_s",
    "itl_goal": "itl_goal_s",
    "itl_most": "itl_most_s",
    "usual_p99": "usual_p99_s",
    "roomy_p99": "roomy_p99_s",
}


@dataclass(frozen=True)
class Way:
    """A way to serve: a policy or cluster by its text, under a token budget, on so many servers."""

    name: str
    policy: str
    budget: int
    servers: int = 1


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way.  Seconds; `capacity`: prompt + output tokens/s of one server, all there at once."""

    name: str
    policy: str
    budget: int
    servers: int
    short_ttft_p50: Interval
    short_ttft_p99: Interval
    short_itl_p50: Interval
    short_itl_p99: Interval
    short_itl_most: Interval
    long_ttft_p50: Interval
    long_ttft_p99: Interval
    long_ttft_mean: Interval
    long_itl_p50: Interval
    long_itl_p99: Interval
    capacity: Interval
    kv_peak: Interval
    preemptions: Interval


@dataclass(frozen=True, kw_only=True)
class Form:
    """What formulas say of one budget: seconds of the longest step, of a prompt, and TTFT of long ones.

    `load`: share of the time that long prompts take; at 1 there is no `long_ttft` (nan).
    `itl_most`: the worst ITL of short requests, simulated; `long_ttft_mean`: of long ones, simulated.
    """

    name: str
    chunks: int
    longest_step: float
    itl_most: float
    prompt_seconds: float
    load: float
    long_ttft: float
    long_ttft_mean: float


@dataclass(frozen=True, kw_only=True)
class Cause:
    """TTFT P99 of short requests with the server's KV blocks, and with four times as many."""

    usual_p99: float
    roomy_p99: float
    is_memory: bool


@dataclass(frozen=True, kw_only=True)
class LongPrompt:
    """The whole study.  Rates in requests/s of one server; a row of several servers has as many times.

    `goal_budget`: the greatest token budget whose longest step keeps `itl_goal` seconds; None: none does.
    """

    server: str
    seed: int
    repeat: int
    requests: int
    long_tokens: int
    short_rate: float
    long_rate: float
    rows: tuple[Row, ...]
    forms: tuple[Form, ...]
    cause: Cause
    itl_goal: float
    goal_budget: int | None


def ways(longest: int, budget: int) -> tuple[Way, ...]:
    """All that is compared; `longest`: tokens of the longest request, `budget`: the server's own."""
    small, least = max(budget // 4, 256), max(budget // 16, 256)
    wide, narrow = budget // 8, budget // 32
    flag, adaptive = "long_prefill_token_threshold", "long_prefill_token_threshold_adaptive=true"
    return (
        Way(WHOLE, f"vllm(enable_chunked_prefill=false, max_num_batched_tokens={longest})", longest),
        Way(f"chunks, budget {budget}", "vllm", budget),
        Way(f"chunks, budget {small}", "vllm", small),
        Way(f"chunks, budget {least}", "vllm", least),
        Way(f"threshold {wide}", f"vllm({flag}={wide})", budget),
        Way(f"threshold {narrow}", f"vllm({flag}={narrow})", budget),
        Way(f"threshold {narrow}, adaptive", f"vllm({flag}={narrow}, {adaptive})", budget),
        Way("short ones first", "vllm(policy=priority)", budget),
        Way("shortest output first", "ordered(order=sjf)", budget),
        Way(f"short first, {wide}", f"vllm(policy=priority, {flag}={wide})", budget),
        Way("2 replicas", "replicas(n=2, policy=vllm, router=least_loaded)", budget, 2),
        Way("1 prefill + 1 decode", "distserve(prefill=1, decode=1)", budget, 2),
    )


def long_prompt(
    server: Server | None = None,
    *,
    requests: int = 1000,
    seed: int = 0,
    repeat: int = 2,
    long_tokens: int = 24_576,
    itl_goal: float = 0.05,
    report: Report | None = None,
) -> LongPrompt:
    """`requests` short ones, and long prompts of `long_tokens` that come now and then.

    Raises InputError, and LimitError if the server cannot hold a long prompt.
    """
    at = server or Server()
    check(requests, repeat, seed, least=50)
    mix = mix_of(at, requests, long_tokens)
    budget = at.usual[1]
    every = ways(mix.longest, budget)
    progress = Progress(report, len(every) * repeat + 1)
    seeds = range(seed, seed + repeat)
    rows = tuple(_row(at, mix, way, seeds, progress) for way in every)
    cause = cause_of(at, mix, seed)
    progress.step()
    return LongPrompt(
        server=str(at),
        seed=seed,
        repeat=repeat,
        requests=requests,
        long_tokens=long_tokens,
        short_rate=mix.short_rate,
        long_rate=mix.long_rate,
        rows=rows,
        forms=tuple(_form(at, mix, way, row) for way, row in zip(every[:4], rows, strict=False)),
        cause=cause,
        itl_goal=itl_goal,
        goal_budget=budget_for(at, mix, itl_goal),
    )


def mix_of(server: Server, requests: int, long_tokens: int) -> Mix:
    """A load that takes part of the time of the server, whatever that is."""
    short = Mix(requests=requests, short_rate=1.0, long_rate=0.0, long_tokens=long_tokens)
    if long_tokens <= 4 * short.longest_short:
        raise InputError(f"long_tokens is {long_tokens}; give at least {4 * short.longest_short + 1}")
    limits = server.limits(short.longest)
    alone = serve("vllm", at_once(short.load(0)), server.cost, limits)
    most = requests / float(np.nanmax(alone.requests()["finished_s"]))
    seconds = prompt_seconds(server, 0, 0.0, long_tokens, server.usual[1])[0]
    return replace(short, short_rate=SHORT_SHARE * most, long_rate=LONG_SHARE / seconds)


# --- the simulator ----------------------------------------------------------------------


def _row(server: Server, mix: Mix, way: Way, seeds: range, progress: Progress) -> Row:
    limits = server.limits(mix.longest, budget=way.budget)
    found = []
    for seed in seeds:
        load = replace(mix, servers=way.servers).load(seed)
        figures = _figures(serve(way.policy, load, server.cost, limits))
        full = serve(way.policy, at_once(load), server.cost, limits)
        found.append(figures | {"capacity": full.summary.total_throughput / way.servers})
        progress.step()
    return Row(name=way.name, policy=way.policy, budget=way.budget, servers=way.servers, **estimates(found))


def _figures(found: Run) -> dict[str, float]:
    columns, is_long = found.requests(), is_long_in(found.load)
    shown: dict[str, float] = {}
    for name, chosen in (("short", ~is_long), ("long", is_long)):
        rows = np.flatnonzero(chosen)
        itl = found.itl(rows)
        shown[f"{name}_ttft_p50"] = percentile(columns["ttft_s"][rows], 0.5)
        shown[f"{name}_ttft_p99"] = percentile(columns["ttft_s"][rows], 0.99)
        shown[f"{name}_itl_p50"], shown[f"{name}_itl_p99"] = itl.p50, itl.p99
    greatest = found.gaps(np.flatnonzero(~is_long)).greatest
    state = found.state()
    return shown | {
        "short_itl_most": float(np.nanmax(greatest)),
        "long_ttft_mean": float(np.nanmean(columns["ttft_s"][rows])),
        "kv_peak": state.kv_peak,
        "preemptions": float(columns["preemptions"].sum()),
    }


def cause_of(server: Server, mix: Mix, seed: int) -> Cause:
    """Is it memory?  The same with more of it says so."""
    load, limits = mix.load(seed), server.limits(mix.longest)
    roomy = replace(limits, num_kv_blocks=MORE_BLOCKS * limits.blocks)
    usual_p99, roomy_p99 = (
        percentile(_short_ttft(serve("vllm", load, server.cost, each)), 0.99) for each in (limits, roomy)
    )
    return Cause(usual_p99=usual_p99, roomy_p99=roomy_p99, is_memory=roomy_p99 < 0.9 * usual_p99)


def _short_ttft(found: Run) -> Numbers:
    ttft: Numbers = found.requests()["ttft_s"][~is_long_in(found.load)]
    return ttft


# --- formulas ---------------------------------------------------------------------------


def prompt_seconds(
    server: Server, running: int, context: float, tokens: int, budget: int
) -> tuple[float, float, int]:
    """Seconds of the steps of one prompt beside `running` decodes, of the longest one, and their number."""
    cost, chunk = server.cost, max(budget - running, 1)
    starts = range(0, tokens, chunk)
    seconds = [
        cost.overlapped(
            with_chunk(running, context, min(chunk, tokens - past), past, is_last=past + chunk >= tokens), 1
        )
        for past in starts
    ]
    return sum(seconds), max(seconds), len(seconds)


def residents(server: Server, mix: Mix) -> tuple[int, float]:
    """Short requests that decode in the mean, and the context of one: n = rate E[o] step(n)."""
    cost, context = server.cost, mix.short_prompt + mix.short_output / 2
    step = cost.overlapped(decodes(1, context), 1)
    for _ in range(30):
        running = max(round(mix.short_rate * mix.short_output * step), 1)
        prompt = round((mix.short_rate * mix.short_prompt + mix.long_rate * mix.long_tokens) * step)
        past = round(mix.long_rate * step * mix.long_tokens / 2)
        step = cost.overlapped(with_chunk(running, context, max(prompt, 1), past), 1)
    return running, context


def _form(server: Server, mix: Mix, way: Way, row: Row) -> Form:
    running, context = residents(server, mix)
    budget = way.budget + running if way.name == WHOLE else way.budget
    total, longest, chunks = prompt_seconds(server, running, context, mix.long_tokens, budget)
    load = mix.long_rate * total
    late = server.cost.overlapped(decodes(running, context), 1) / 2
    wait = pollaczek_khinchine(mix.long_rate, total, total**2) if load < 1 else float("nan")
    return Form(
        name=way.name,
        chunks=chunks,
        longest_step=longest,
        itl_most=row.short_itl_most.value,
        prompt_seconds=total,
        load=load,
        long_ttft=late + wait + total,
        long_ttft_mean=row.long_ttft_mean.value,
    )


def budget_for(server: Server, mix: Mix, goal: float) -> int | None:
    """The greatest token budget, in tiles of 128, whose longest step keeps `goal` seconds."""
    running, context = residents(server, mix)
    fits = [
        budget
        for budget in range(TILE, server.usual[1] + 1, TILE)
        if budget > running and prompt_seconds(server, running, context, mix.long_tokens, budget)[1] <= goal
    ]
    return max(fits) if fits else None
