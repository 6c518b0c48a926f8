"""What the formulas refuse."""

from __future__ import annotations

from math import inf, isfinite

from batchwright.errors import InputError


def positive(name: str, value: float) -> None:
    """Raises InputError unless `value` is finite and greater than 0."""
    if not (isfinite(value) and value > 0):
        raise InputError(f"{name} is {value}, but must be finite and greater than 0")


def not_negative(name: str, value: float) -> None:
    """Raises InputError unless `value` is finite and at least 0."""
    if not (isfinite(value) and value >= 0):
        raise InputError(f"{name} is {value}, but must be finite and at least 0")


def count(name: str, value: float, least: int = 1) -> None:
    """Raises InputError unless `value` is a whole number of at least `least`."""
    if not isfinite(value) or value != int(value) or value < least:
        raise InputError(f"{name} is {value}, but must be a whole number of at least {least}")


def share(name: str, value: float) -> None:
    """Raises InputError unless `value` lies between 0 and 1, both excluded."""
    if not 0 < value < 1:
        raise InputError(f"{name} is {value}, but must lie between 0 and 1")


def steady(load: float, most: float = inf) -> None:
    """Raises InputError if a load of 1 or more lets the queue grow for ever.  `most`: the rate it allows."""
    if load < 1:
        return
    bound = f"; lower the rate below {most:.4g}/s" if isfinite(most) else "; lower the rate"
    raise InputError(f"load is {load:.4g}, but must be under 1 for a steady state{bound} or add capacity")
