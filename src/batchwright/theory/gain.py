"""What continuous batching gains over static: time ratio - 1, at the same batch size B.

    constant step, free prompts, many requests     E[max of B] / E[o] - 1

No law of lengths gives a gain by itself: equal lengths give none.
"""

from __future__ import annotations

from math import floor

from batchwright.theory.checks import count, not_negative, positive
from batchwright.theory.expected_max import expected_max
from batchwright.theory.lengths import Law, mean, residual


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
    drain.  n <= c: the same as static.  Within 1 % for CV up to 0.6 from n = 2c on, 6 % for lognormal sigma
    0.8 from 3c on.  Source: equilibrium renewal at the moment when the queue runs dry.
    """
    count("requests", requests)
    count("slots", slots)
    if requests <= slots:
        return static_time(law, requests, slots, step)
    left = residual(law)
    return step * (requests * mean(law) / slots - mean(left) + expected_max(left, slots))


def gain_at_once(law: Law, requests: int, size: int) -> float:
    """Gain for `requests` that all come at once, constant step and free prompts; 0 up to B of them."""
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
