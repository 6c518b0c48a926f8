"""What one client of a ServeGen model sends in one window: times and lengths.

In a window of length w a client of rate r sends r w requests, as many as were counted there
(times the share that was asked for; a fraction is one more with that probability).  Their n gaps
are drawn by the client's law and scaled to fill the window, from a uniform start:

    Gamma     shape a      with CV^2 = (n - 1) / (n a + 1), the mean squared CV of such scaled gaps
    Weibull   shape k      with Gamma(1 + 2/k) / Gamma(1 + 1/k)^2 - 1 = 1 / a

n gaps have a CV of sqrt(n - 1) at most; a window that asks for more gets 0.95 (n - 1) as CV^2.
Prompt and output are drawn apart, each by the client's histogram of that time; a prompt with
images has the tokens of its text and of each image, and so for audio and video.

Each client and window has its own stream of the seed, so that a longer load starts like a
shorter one of the same rate.

Source: the laws and the data are ServeGen's (Xiang et al., NSDI 2026); the counts are ours.
Squared CV of scaled Gamma gaps: they are Dirichlet(a, ..., a).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from batchwright.errors import InputError
from batchwright.workload.clients import ClientModel, Histogram, Window
from batchwright.workload.columns import Floats, Ints
from batchwright.workload.gaps import weibull_shape

_NEAR_BOUND: Final = 0.95  # of the greatest CV^2 that n gaps can have
_NANO: Final = 1_000_000_000
_MEDIA: Final = ("image", "audio", "video")


class Sent(NamedTuple):
    """`times`: nanoseconds of the models' clock.  Lengths in tokens, 0 where there was nothing."""

    times: Ints
    prompt: Ints
    output: Ints
    client: Ints


def sent_by(client: ClientModel, index: int, length: float, share: float, seed: int) -> Sent:
    """The requests of `client` in its window `index` of `length` seconds, in order of time."""
    window = client.windows[index]
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, client.number, index))))
    count = int(window.rate * length * share + random.random())
    if not count:
        nothing = np.zeros(0, np.int64)
        return Sent(nothing, nothing, nothing, nothing)
    times = _times(random, window, count, length)
    prompt, output = _lengths(random, client, window.start, count)
    return Sent(times, prompt, output, np.full(count, client.number, np.int64))


def joined(parts: list[Sent]) -> Sent:
    """All of them in order of time, then of client."""
    times, prompt, output, client = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((client, times))
    return Sent(times[order], prompt[order], output[order], client[order])


def _times(random: np.random.Generator, window: Window, count: int, length: float) -> Ints:
    gaps = _gaps(random, window, count)
    whole = int(length * _NANO)
    places = np.cumsum(np.rint(gaps / gaps.sum() * whole).astype(np.int64))
    return np.sort((places + random.integers(whole)) % whole) + int(window.start * _NANO)


def _gaps(random: np.random.Generator, window: Window, count: int) -> Floats:
    """In no unit: they are scaled to fill the window."""
    greatest = _NEAR_BOUND * (count - 1)
    squared = min(window.cv**2, greatest)
    if squared < 1e-9:  # one request, or a clock
        return np.ones(count)
    needed = count * squared / (count - 1 - squared)  # 1 / a
    gaps = (
        random.standard_gamma(1 / needed, count)
        if window.law == "Gamma"
        else random.weibull(weibull_shape(needed), count)
    )
    if not gaps.sum():  # every one below the least float
        gaps[random.integers(count)] = 1.0
    return gaps


def _lengths(random: np.random.Generator, client: ClientModel, start: float, count: int) -> tuple[Ints, Ints]:
    lengths = client.lengths(start)
    name = "input_tokens" if "input_tokens" in lengths else "text_tokens"
    for needed in (name, "output_tokens"):
        if needed not in lengths:
            reason = f"requests at {start:.0f} s, but no {needed} for them"
            raise InputError(f"{client.where}: has {reason}; fetch the file again")
    prompt = lengths[name].draw(random, count)
    for medium in _MEDIA:
        prompt = prompt + _media(random, lengths, medium, count)
    return prompt, lengths["output_tokens"].draw(random, count)


def _media(random: np.random.Generator, lengths: Mapping[str, Histogram], medium: str, count: int) -> Ints:
    """Prompt tokens of each request's images, or audio, or videos."""
    if f"{medium}_count" not in lengths or f"{medium}_tokens" not in lengths:
        return np.zeros(count, np.int64)
    numbers = lengths[f"{medium}_count"].draw(random, count)
    tokens = lengths[f"{medium}_tokens"].draw(random, int(numbers.sum()))
    owners = np.repeat(np.arange(count), numbers)
    return np.bincount(owners, tokens, count).astype(np.int64)
