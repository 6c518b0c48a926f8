"""Checks of what made loads are asked for.  Raises InputError, with the value and its range."""

from __future__ import annotations

from math import isfinite
from typing import Final

from batchwright.errors import InputError

GREATEST_RATE: Final = 1e6  # beyond it, gaps rounded to nanoseconds would show
GREATEST_N: Final = 100_000_000  # requests; their columns alone take 4 GB
GREATEST_SEED: Final = (1 << 64) - 1


def check_load(n: int, seed: int) -> None:
    """A number of requests, and a seed."""
    check_whole("n", n, 1, GREATEST_N)
    check_seed(seed)


def check_seed(seed: int) -> None:
    """A whole number of 64 bits."""
    check_whole("seed", seed, 0, GREATEST_SEED)


def check_rate(name: str, rate: float, *, lowest: float | None = None) -> None:
    """Requests per second.  `lowest`: 0 if there may be none at all."""
    is_number = is_finite(rate)
    if is_number and (0 < rate <= GREATEST_RATE or rate == lowest):
        return
    above = "over 0" if lowest is None else f"of at least {lowest:g}"
    raise InputError(f"{name} is {rate!r}; give requests per second {above}, up to {GREATEST_RATE:.0f}")


def check_number(name: str, value: float, lowest: float, greatest: float) -> None:
    """A finite number from `lowest` to `greatest`."""
    if not is_finite(value) or not lowest <= value <= greatest:
        raise InputError(f"{name} is {value!r}; give a number of {lowest:g} to {greatest:g}")


def check_whole(name: str, value: int, lowest: int, greatest: int) -> None:
    """A whole number from `lowest` to `greatest`."""
    if type(value) is not int or not lowest <= value <= greatest:
        raise InputError(f"{name} is {value!r}; give a whole number of {lowest} to {greatest}")


def is_finite(value: object) -> bool:
    """Is it a number, and no endless one?"""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
