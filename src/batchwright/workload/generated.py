"""Loads that are made, not read.  The same arguments and seed give the same bytes.

The functions have the names and arguments of the texts that `Workload.open` reads (`load_text`).
All take `n`, requests, and `seed`, which every stream of random numbers is made from; all but
`chat` and `article` take what is said of lengths and shared prefixes (`lengths.shape_of`).
`rate`: arrivals per second in the mean.

The numbers of `chat` are ours, chosen in the range of public chat traces (the Azure 2023
conversation trace: prompts of 1155 tokens in the mean and 1020 in the median, outputs of 211
and 129, 5.5 requests/s), with longer tails than that one has:

    gaps     Gamma, CV 2: shape 1/4, so that requests come in bursts
    prompts  lognormal, median 700, sigma 0.9, up to 8192: mean about 1040
    outputs  lognormal, median 160, sigma 0.9, up to 1024: mean about 230; 1 in 50 is cut at 1024,
             as a client's max_tokens would
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from batchwright.errors import InputError
from batchwright.workload import gaps
from batchwright.workload.checks import check_load, check_number, check_rate, check_whole
from batchwright.workload.columns import GREATEST
from batchwright.workload.laws import Seconds, Tokens, Uniform, seconds_of
from batchwright.workload.lengths import CHAT_OUTPUT, CHAT_PROMPT, shape_of, shaped
from batchwright.workload.load import Workload
from batchwright.workload.made import remade
from batchwright.workload.streams import PHASES, THINK, gap_stream, stream

_CHAT_CV: Final = 2.0
_GREATEST_CV: Final = 100.0
_GREATEST_SECONDS: Final = 1e8
_ARTICLE: Final = (Uniform(512, 4096), Uniform(64, 512))


@remade
def chat(n: int = 1000, rate: float = 5.0, seed: int = 0) -> Workload:
    """Bursty, chat-like: `n` requests at `rate` per second in the mean.  Raises InputError."""
    check_load(n, seed)
    check_rate("rate", rate)
    random = gap_stream(seed)  # one stream for all, in this order
    arrival = gaps.gamma_arrivals(random, n, rate, _CHAT_CV)
    prompt, output = CHAT_PROMPT.tokens(random, n), CHAT_OUTPUT.tokens(random, n)
    return Workload.from_columns(arrival, prompt, output, name="chat")


@remade
def article(n: int = 100, seed: int = 0) -> Workload:
    """`n` requests at once, prompts of 512 to 4096 tokens and outputs of 64 to 512, all alike likely.

    Raises InputError.
    """
    prompt, output = _ARTICLE
    shape = shape_of(n=n, prompt=prompt, output=output, seed=seed)
    return shaped("article", np.zeros(n), shape)


@remade
def poisson(
    n: int = 1000,
    rate: float = 5.0,
    prompt: Tokens | None = None,
    output: Tokens | None = None,
    seed: int = 0,
    **rest: Any,
) -> Workload:
    """Poisson arrivals at `rate` per second.  Raises InputError."""
    check_rate("rate", rate)
    shape = shape_of(n=n, prompt=prompt, output=output, seed=seed, **rest)
    return shaped("poisson", gaps.poisson_arrivals(gap_stream(seed), n, rate), shape)


@remade
def gamma(*, rate: float, cv: float, n: int = 1000, seed: int = 0, **rest: Any) -> Workload:
    """Gamma gaps with the coefficient of variation `cv`; 1 is Poisson.  Raises InputError."""
    check_rate("rate", rate)
    _check_cv(cv)
    shape = shape_of(n=n, seed=seed, **rest)
    return shaped("gamma", gaps.gamma_arrivals(gap_stream(seed), n, rate, cv), shape)


@remade
def weibull(
    *,
    rate: float,
    cv: float | None = None,
    shape: float | None = None,
    n: int = 1000,
    seed: int = 0,
    **rest: Any,
) -> Workload:
    """Weibull gaps with the coefficient of variation `cv`, or with `shape`.  Raises InputError."""
    check_rate("rate", rate)
    if (cv is None) == (shape is None):
        raise InputError("weibull takes either cv or shape; give one of the two")
    if cv is not None:
        _check_cv(cv)
        shape = gaps.weibull_shape(cv**2)
    assert shape is not None
    check_number("shape", shape, 0.1, 1000.0)
    form = shape_of(n=n, seed=seed, **rest)
    return shaped("weibull", gaps.weibull_arrivals(gap_stream(seed), n, rate, shape), form)


@remade
def constant(*, rate: float, n: int = 1000, seed: int = 0, **rest: Any) -> Workload:
    """One request every 1 / `rate` seconds.  Raises InputError."""
    check_rate("rate", rate)
    shape = shape_of(n=n, seed=seed, **rest)
    return shaped("constant", gaps.constant_arrivals(n, rate), shape)


@remade
def onoff(
    *,
    rate_on: float,
    rate_off: float = 0.0,
    on: Seconds,
    off: Seconds,
    n: int = 1000,
    seed: int = 0,
    **rest: Any,
) -> Workload:
    """Poisson arrivals at `rate_on` for `on` seconds, then at `rate_off` for `off`, and so on.

    `on`, `off`: seconds, or a law of them.  Raises InputError.
    """
    check_rate("rate_on", rate_on)
    check_rate("rate_off", rate_off, lowest=0.0)
    for name, law in (("on", on), ("off", off)):
        if isinstance(law, int | float):
            check_number(name, law, 1e-6, _GREATEST_SECONDS)
    shape = shape_of(n=n, seed=seed, **rest)
    phases = stream(seed, PHASES)
    arrival = gaps.onoff_arrivals(gap_stream(seed), phases, n, rate_on, rate_off, on, off)
    return shaped("onoff", arrival, shape)


@remade
def diurnal(
    *, rate: float, peak: float, period: float = 86400.0, n: int = 1000, seed: int = 0, **rest: Any
) -> Workload:
    """Poisson arrivals whose rate swings like a cosine, from 2 - `peak` to `peak` times `rate`.

    `period`: seconds from one low to the next; the load starts at a low.  Raises InputError.
    """
    check_rate("rate", rate)
    check_number("peak", peak, 1.0, 2.0)
    check_number("period", period, 1e-3, _GREATEST_SECONDS)
    shape = shape_of(n=n, seed=seed, **rest)
    return shaped("diurnal", gaps.diurnal_arrivals(gap_stream(seed), n, rate, peak, period), shape)


@remade
def burst(n: int = 1000, *, seed: int = 0, **rest: Any) -> Workload:
    """`n` requests at once.  Raises InputError."""
    shape = shape_of(n=n, seed=seed, **rest)
    return shaped("burst", np.zeros(n), shape)


@remade
def closed(*, clients: int, think: Seconds = 0.0, n: int = 1000, seed: int = 0, **rest: Any) -> Workload:
    """`clients` that each send a request, wait for its end, think for `think` seconds and send the next.

    All start at 0; request i is of client i mod `clients`; `n` requests in all.  Raises InputError.
    """
    shape = shape_of(n=n, seed=seed, **rest)
    check_whole("clients", clients, 1, GREATEST)
    if n < clients:
        raise InputError(f"n is {n}, but there are {clients} clients; give each at least 1 request")
    rows = np.arange(n)
    pauses = seconds_of("think", think, stream(seed, THINK), n)
    pauses[:clients] = 0.0
    return shaped(
        "closed",
        np.where(rows < clients, 0.0, np.nan),
        shape,
        client=rows % clients,
        after=np.maximum(rows - clients, -1) if n > clients else None,
        think=pauses,
        notes=[f"{clients} clients, each with one request at a time"],
    )


def _check_cv(cv: float) -> None:
    check_number("cv", cv, 0.01, _GREATEST_CV)
