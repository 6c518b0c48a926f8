"""Loads that are made, not read.  The same arguments and seed give the same bytes.

Gaps are rounded to whole nanoseconds before they are summed, so that no last bit of a
logarithm can show in an arrival time.

The numbers of `chat` are ours, chosen in the range of public chat traces (the Azure 2023
conversation trace: prompts of 1155 tokens in the mean and 1020 in the median, outputs of 211
and 129, 5.5 requests/s), with longer tails than that one has:

    gaps     Gamma, CV 2: shape 1/4, so that requests come in bursts
    prompts  lognormal, median 700, sigma 0.9, up to 8192: mean about 1040
    outputs  lognormal, median 160, sigma 0.9, up to 1024: mean about 230; 1 in 50 is cut at 1024,
             as a client's max_tokens would
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, log
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload.columns import LONGEST_SPAN, Floats, Ints
from batchwright.workload.load import Workload

_CHAT_CV: Final = 2.0
_CHAT_PROMPT: Final = (700.0, 0.9, 8192)  # median, sigma, greatest
_CHAT_OUTPUT: Final = (160.0, 0.9, 1024)
_GREATEST_RATE: Final = 1e6  # beyond it, gaps rounded to nanoseconds would show
_GREATEST_N: Final = 100_000_000  # requests; their columns alone take 4 GB


def chat(n: int = 1000, rate: float = 5.0, seed: int = 0) -> Workload:
    """Bursty, chat-like: `n` requests at `rate` per second in the mean.  Raises InputError."""
    _check(n, rate, seed)
    random = np.random.Generator(np.random.PCG64(seed))
    shape = 1 / _CHAT_CV**2
    gaps = random.gamma(shape, 1 / (shape * rate), n - 1)
    prompts = _lognormal(random, n, *_CHAT_PROMPT)
    outputs = _lognormal(random, n, *_CHAT_OUTPUT)
    return Workload.from_columns(_arrivals(gaps, rate), prompts, outputs, name="chat")


def poisson(n: int, rate: float, prompt: int, output: int, seed: int = 0) -> Workload:
    """Poisson arrivals at `rate` per second, all of one shape.  Raises InputError."""
    _check(n, rate, seed)
    _check_whole("prompt", prompt, 1, LONGEST)
    _check_whole("output", output, 1, LONGEST)
    random = np.random.Generator(np.random.PCG64(seed))
    gaps = random.exponential(1 / rate, n - 1)
    lengths = np.full(n, prompt, np.int64), np.full(n, output, np.int64)
    return Workload.from_columns(_arrivals(gaps, rate), *lengths, name="poisson")


BUILT_IN: Final[dict[str, Callable[[], Workload]]] = {"chat": chat}  # names that `Workload.open` knows


def _lognormal(random: np.random.Generator, n: int, median: float, sigma: float, greatest: int) -> Ints:
    """Whole tokens of at least 1; a draw over `greatest` is `greatest`."""
    tokens = np.rint(random.lognormal(log(median), sigma, n))
    return np.clip(tokens, 1, greatest).astype(np.int64)


def _arrivals(gaps: npt.NDArray[np.float64], rate: float) -> Floats:
    """The first at 0."""
    span = float(gaps.sum())
    if span > LONGEST_SPAN:
        needed = f"{len(gaps) + 1} requests at rate {rate} take {span:.3g} s"
        raise InputError(f"{needed}, over {LONGEST_SPAN:.3g} s; raise the rate")
    nanoseconds = np.concatenate(([0], np.rint(gaps * 1e9).astype(np.int64)))
    return np.cumsum(nanoseconds) / 1e9


def _check(n: int, rate: float, seed: int) -> None:
    _check_whole("n", n, 1, _GREATEST_N)
    _check_whole("seed", seed, 0, (1 << 64) - 1)
    if not isinstance(rate, int | float) or not isfinite(rate) or not 0 < rate <= _GREATEST_RATE:
        raise InputError(f"rate is {rate!r}; give requests per second over 0, up to {_GREATEST_RATE:.0f}")


def _check_whole(name: str, value: int, lowest: int, greatest: int) -> None:
    if type(value) is not int or not lowest <= value <= greatest:
        raise InputError(f"{name} is {value!r}; give a whole number of {lowest} to {greatest}")
