"""Continuous batching: ceilings of the rate, step time and residents without a limit of slots.

A step takes base + what its requests add.  One request adds, over all its steps,

    work = prefill E[s] + decode E[decodes] + context E[KV tokens read]        seconds

(`work`), and is resident for E[o] steps: the first token comes with the prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.theory.checks import count, not_negative, positive, share, steady
from batchwright.theory.numbers import Floats, negative_binomial, poisson

_MOST_RESIDENTS: Final = 10_000_000  # the law of their number has an entry for each


def work(prompt: float, decodes: float, read: float, prefill: float, decode: float, context: float) -> float:
    """Seconds that one request adds to the steps it is in, `base` apart.

    `prompt`, `decodes`, `read`: its mean prompt tokens, decode rows and KV tokens read; `prefill`,
    `decode`, `context`: seconds per one of them.
    """
    for name, value in (("prompt", prompt), ("decodes", decodes), ("read", read)):
        not_negative(name, value)
    for name, value in (("prefill", prefill), ("decode", decode), ("context", context)):
        not_negative(name, value)
    return prefill * prompt + decode * decodes + context * read


def kv_area(prompt: npt.ArrayLike, output: npt.ArrayLike) -> float:
    """E[g]: KV tokens held times steps, per request: o s + o (o - 1) / 2.

    The prompt is held from its step on and the last token is never stored.  A resident seen at a random
    step holds E[g] / E[o] tokens, more than E[s] + E[o] / 2: long requests are seen more often.
    Source: Nie, Si and Zhou 2026 (arXiv 2605.04595), who count the last token too (o (o + 1) / 2).
    """
    s, o = np.asarray(prompt, float), np.asarray(output, float)
    return float((o * s + o * (o - 1) / 2).mean())


def kv_read(prompt: npt.ArrayLike, output: npt.ArrayLike) -> float:
    """KV tokens that the decodes of one request read, mean: (o - 1) s + (o - 1)(o - 2) / 2.

    The first of its o - 1 decodes reads the prompt; chunks of a prompt that read earlier ones come on top.
    """
    s, o = np.asarray(prompt, float), np.asarray(output, float)
    return float(((o - 1) * s + (o - 1) * (o - 2) / 2).mean())


def reserved_area(prompt: npt.ArrayLike, output: npt.ArrayLike, reserve: npt.ArrayLike) -> float:
    """KV tokens set aside times steps, per request, where admission reserves prompt + `reserve` tokens."""
    s, o, most = (np.asarray(values, float) for values in (prompt, output, reserve))
    return float((o * (s + most)).mean())


def slots_ceiling(slots: int, output: float, base: float, work: float = 0.0) -> float:
    """Requests/s with every slot taken: c / (E[o] base + c work).

    `output`: E[o], steps of a request.  The same as 1 / (E[o] (base/c + decode) + prefill E[s]).
    Exact for saturated batches up to the last drain.  Source: seconds of all steps over requests.
    """
    count("slots", slots)
    positive("output", output)
    positive("base", base)
    not_negative("work", work)
    return slots / (output * base + slots * work)


def kv_ceiling(kv_tokens: float, step: float, area: float) -> float:
    """Requests/s that the KV cache holds: M / (step E[g]); `area`: E[g] of `kv_area` or `reserved_area`.

    `step`: mean seconds of a step then.  Optimistic paging reaches it to O((s + o) / M).
    Source: Little's law for memory; Nie, Si and Zhou 2026 (arXiv 2605.04595).
    """
    positive("kv_tokens", kv_tokens)
    positive("step", step)
    positive("area", area)
    return kv_tokens / (step * area)


def kv_ceiling_linear(kv_tokens: float, area: float, output: float, base: float, work: float) -> float:
    """The same where the step depends on who is in it: c = M E[o] / E[g] residents, not whole."""
    positive("kv_tokens", kv_tokens)
    positive("area", area)
    residents = kv_tokens * output / area
    return residents / (output * base + residents * work)


def token_ceiling(budget: int, step: float, prompt: float, output: float) -> float:
    """Requests/s that the token budget of a step allows: b / (t_b (E[s] + E[o])).

    `step`: seconds of a step of `budget` tokens.  Valid only while max_num_seqs does not bind.
    Source: Dai, Deng, Li and Peng 2025 (arXiv 2504.07347), theorem 2.
    """
    count("budget", budget)
    positive("step", step)
    positive("prompt + output", prompt + output)
    return budget / (step * (prompt + output))


def mean_step(rate: float, base: float, work: float) -> float:
    """Mean seconds of a step at `rate`: base / (1 - rate work), whatever the chunks of the prompts.

    Per step rate * step requests come and bring `work` each.  Exact for a linear step while the engine
    never idles.  Source: fixed point; Ao et al. 2025 (arXiv 2504.11320).
    Raises InputError if rate work >= 1.
    """
    _check(rate, base, work)
    return base / (1 - rate * work)


def mean_residents(rate: float, output: float, step: float) -> float:
    """Requests in the batch: rate E[o] step.  Little's law; any law of lengths, slots without limit."""
    positive("rate", rate)
    positive("output", output)
    positive("step", step)
    return rate * output * step


def constant_step_idle(residents: float) -> float:
    """P(nobody is resident) for constant steps and slots without limit: e^-n (M/G/inf)."""
    not_negative("residents", residents)
    return float(np.exp(-residents))


@dataclass(frozen=True)
class Residents:
    """In the long run, over time: mean `residents`, `residence` and `tpot` in seconds, `law[n]`.

    `tpot`: mean seconds per token, the first one's included.  `variance`: of the residents.
    """

    residents: float
    residence: float
    tpot: float
    variance: float
    law: Floats


def residents(rate: float, output: float, base: float, work: float) -> Residents:
    """Slots without limit and a step of base + work/E[o] per resident: exact product form.

    With r = rate work: n ~ negative binomial(1 + base / b, 1 - r), b = work / E[o];
    residence = E[o] (base + b) / (1 - r), TPOT = (base + b) / (1 - r).  The law of outputs does not matter.
    From admission on; see `alignment` for the wait before it.  Good from E[o] of 20 steps on.
    Source: one token per resident and step is processor sharing with a rate that depends on n, Cohen
    1979; Kelly 1979 (symmetric queues).  Raises InputError if rate work >= 1.
    """
    _check(rate, base, work)
    positive("output", output)
    load = rate * work
    if work == 0:
        mean = rate * output * base
        shape = inf
    else:
        shape = 1 + base * output / work
        mean = shape * load / (1 - load)
    variance = mean if work == 0 else mean / (1 - load)
    most = int(mean + 12 * (variance**0.5 + 1) + 20 / (1 - load))
    if most > _MOST_RESIDENTS:
        raise InputError(
            f"{mean:.4g} requests are resident in the mean, over what is computed ({_MOST_RESIDENTS}); "
            "lower the rate, the output or the time of a step"
        )
    law = _residents_law(shape, mean, load, most)
    return Residents(mean, mean / rate, mean / rate / output, variance, law)


def _residents_law(shape: float, mean: float, load: float, most: int) -> Floats:
    return poisson(mean, most) if shape == inf else negative_binomial(shape, load, most)


def itl_quantile(found: Residents, base: float, each: float, quantile: float) -> float:
    """Seconds between tokens that a share `quantile` of them meets at most: base + each n.

    `each`: seconds that one resident adds to a step.  Tokens see a step of n with weight
    n law[n] / (base + each n).  Source: as `residents`.
    """
    share("quantile", quantile)
    n = np.arange(len(found.law))
    weight = np.cumsum(n * found.law / (base + each * n))
    at = int(np.searchsorted(weight, quantile * weight[-1]))
    return base + each * at


def alignment(step: float, variance: float = 0.0, busy: float = 1.0) -> float:
    """Mean seconds from arrival to the start of the next step: E[t^2] / (2 E[t]) P(busy).

    `step`, `variance`: of the seconds of a step, over steps.  An engine admits between steps only: add it
    to waits from continuous-time formulas.  Source: residual of a renewal, Cox 1962.
    """
    positive("step", step)
    not_negative("variance", variance)
    not_negative("busy", busy)
    return (step * step + variance) / (2 * step) * busy


def closed_rate(clients: int, think: float, residence: float, ceiling: float) -> float:
    """The most that `clients` with `think` seconds between requests can ask: min(N / (Z + R), ceiling).

    An upper bound.  Source: Denning and Buzen 1978, asymptotic bounds.
    """
    count("clients", clients)
    not_negative("think", think)
    positive("residence", residence)
    positive("ceiling", ceiling)
    return min(clients / (think + residence), ceiling)


def _check(rate: float, base: float, work: float) -> None:
    positive("rate", rate)
    positive("base", base)
    not_negative("work", work)
    steady(rate * work, 1 / work if work else inf)
