"""Units of time that a file may count in: how many make a second, and what they are called."""

from __future__ import annotations

from typing import Final, NamedTuple

from batchwright.errors import InputError


class Unit(NamedTuple):
    """`words`: as a note calls it."""

    per_second: int
    words: str


UNITS: Final = {
    "s": Unit(1, "seconds"),
    "ms": Unit(1_000, "milliseconds"),
    "us": Unit(1_000_000, "microseconds"),
    "ns": Unit(1_000_000_000, "nanoseconds"),
}


def unit_of(asked: str) -> Unit:
    """The unit that a user named.  Raises InputError on any other."""
    if asked not in UNITS:
        raise InputError(f"time_unit is {asked!r}; give one of s, ms, us, ns")
    return UNITS[asked]


def asked_unit(asked: str | None, usual: str) -> Unit:
    """The unit of a format: the one asked for, said to be so, else its usual one."""
    if asked is None:
        return UNITS[usual]
    unit = unit_of(asked)
    return Unit(unit.per_second, f"{unit.words}, as given")


def refuse_unit(name: str, asked: str | None, why: str) -> None:
    """Raises InputError if a unit was given where none can be."""
    if asked is not None:
        raise InputError(f"{name}: time_unit is {asked!r}, but {why}; leave it out")
