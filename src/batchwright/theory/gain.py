"""What continuous batching gains over static: time ratio - 1, at the same batch size B.

    constant step, free prompts, many requests     E[max of B] / E[o] - 1

No law of lengths gives a gain by itself: equal lengths give none.
"""

from __future__ import annotations

from math import floor
from typing import Final

import numpy as np

from batchwright.errors import InputError
from batchwright.theory.checks import count, not_negative, positive
from batchwright.theory.expected_max import expected_max
from batchwright.theory.lengths import Law, cv2, mean, residual

MOST_WAVES: Final = 0.03  # share
SLOWEST: Final = 0.9  # waves per mean length: those that equal lengths make, and faster ones


def saturated_gain(
    law: Law,
    size: int,
    base: float = 1.0,
    decode: float = 0.0,
    prompt: float = 0.0,
    static_prompt: float | None = None,
    padded: bool = False,
) -> float:
    """Gain as a share (0.73: +73 %) with always somebody waiting.

        [B P' + base E[max] + decode B (E[max] if padded else E[o])] / [B P + E[o] (base + decode B)] - 1

    `prompt`: P, seconds of one prompt; `static_prompt`: P' in a static batch (more where it pads; None: the
    same).  `base`: seconds of a step, `decode`: per row of it.  Source: ratio of the seconds of B requests.
    """
    positive("base", base)
    not_negative("decode", decode)
    not_negative("prompt", prompt)
    longest, output = expected_max(law, size), mean(law)
    padded_prompt = prompt if static_prompt is None else static_prompt
    rows = longest if padded else output
    static = size * padded_prompt + base * longest + decode * size * rows
    return static / (size * prompt + output * (base + decode * size)) - 1


def slots_gain(static_size: int, slots: int, base: float, decode: float = 0.0) -> float:
    """Factor on the time ratio where paging lets continuous run `slots` > B: c (a + bB) / (B (a + bc))."""
    count("static_size", static_size)
    count("slots", slots)
    positive("base", base)
    return slots * (base + decode * static_size) / (static_size * (base + decode * slots))


def static_time(law: Law, requests: int, size: int, step: float) -> float:
    """Seconds of `requests` that all come at once, in static batches.

    step (floor(n/B) E[max of B] + E[max of the rest]); exact for a constant step with free prompts.
    """
    count("requests", requests)
    count("size", size)
    positive("step", step)
    full, rest = divmod(requests, size)
    last = expected_max(law, rest) if rest else 0.0
    return step * ((full * expected_max(law, size) if full else 0.0) + last)


def continuous_time(law: Law, requests: int, slots: int, step: float) -> float:
    """The same served continuously: step (n E[o] / c - E[R] + E[max of c R]).

    R: what a resident has left at a random step (`residual`).  Once the queue is empty the c residents
    drain.  n <= c: the same as static.  Within 5 % for CV up to 0.6, 2 % from n = 4c on; for lognormal sigma
    0.8 within 7 % from 3c on.

    Raises InputError where requests still leave in waves (`wave_error`) or fewer than 2c come: then no
    resident is at a random step.  Source: equilibrium renewal at the moment when the queue runs dry.
    """
    count("requests", requests)
    count("slots", slots)
    if requests <= slots:
        return static_time(law, requests, slots, step)
    _check_spread(law, requests, slots)
    left = residual(law)
    return step * (requests * mean(law) / slots - mean(left) + expected_max(left, slots))


def wave_error(law: Law, requests: int, slots: int) -> float:
    """Share by which waves can put `continuous_time` off.

    Residents that start together end together until their lengths have spread.  After k = n / c lengths a
    wave of w radians per token is left with |E[exp(i w o)]|^k of its height, and moves the end by a share of
    up to pi / (w E[o] k): the greatest from one wave per mean length on.  Equal lengths: 1 / (2k); lengths on
    a lattice, such as 100 or 200 tokens, keep their waves too.  Source: Fourier series of the renewal
    density, Feller 1971.
    """
    count("requests", requests)
    count("slots", slots)
    each, turns = mean(law), requests / slots
    bins = max(2 * len(law), int(8 * each))
    wave = 2 * np.pi / bins * np.arange(bins // 2 + 1)
    height = np.abs(np.fft.rfft(law, bins))
    counted = wave > SLOWEST * 2 * np.pi / each
    return float(np.max(height[counted] ** turns * np.pi / (wave[counted] * each * turns), initial=0.0))


def _check_spread(law: Law, requests: int, slots: int) -> None:
    """Raises InputError."""
    if requests < 2 * slots:
        raise InputError(
            f"{requests} requests are under 2 x {slots} slots: residents are in step with each other still; "
            "give more requests"
        )
    error = wave_error(law, requests, slots)
    if error > MOST_WAVES:
        raise InputError(
            f"outputs hardly spread (CV {max(cv2(law), 0.0) ** 0.5:.2f}), so after {requests / slots:.3g} "
            f"requests a slot they still leave in waves, which put it off by up to {error:.0%}; give more "
            "requests, or run it"
        )


def gain_at_once(law: Law, requests: int, size: int) -> float:
    """Gain for `requests` that all come at once, constant step and free prompts; 0 up to B of them.

    Raises InputError where `continuous_time` does.
    """
    return static_time(law, requests, size, 1.0) / continuous_time(law, requests, size, 1.0) - 1


def uniform_limit(low: int, high: int) -> float:
    """Gain for lengths uniform in low..high as B grows: (high - low) / (high + low)."""
    count("low", low)
    count("high", high, low)
    return (high - low) / (high + low)


def wave_bound(requests: int, size: int) -> float:
    """The most that ceil(n/B) static waves can lose to n/B fractional ones of the same length.

    A formula that charges continuous batching max(output) per wave of B, n/B waves, can never show more
    than ceil(n/B) / (n/B) - 1: it is static batching with a fractional last batch.
    """
    count("requests", requests)
    count("size", size)
    waves = requests / size
    whole = floor(waves) + (0 if requests % size == 0 else 1)
    return whole / waves - 1
