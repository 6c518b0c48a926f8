"""Checks of the numbers that policies are made with.  Raises InputError, naming the policy."""

from __future__ import annotations

from typing import Final

from batchwright.errors import InputError, LimitError
from batchwright.limits import Limits

DEFAULT_BATCH: Final = 32  # requests, of batches that start together


def check_count(policy: str, name: str, value: object, least: int = 1) -> None:
    """`value` must be a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{policy}: {name} is {value!r}, but must be a whole number of at least {least}")


def check_bool(policy: str, name: str, value: object) -> None:
    """`value` must be True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{policy}: {name} is {value!r}, but must be true or false")


def check_number(policy: str, name: str, value: object, least: float, most: float) -> None:
    """`value` must be a finite number from `least` to `most`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        raise InputError(f"{policy}: {name} is {value!r}, but must be a number from {least:g} to {most:g}")


def batch_size(policy: str, name: str, value: int | None, limits: Limits) -> int:
    """The size of a batch, which must fit `max_num_seqs`.  Raises LimitError."""
    if value is None:
        return min(DEFAULT_BATCH, limits.max_num_seqs)
    if value > limits.max_num_seqs:
        raise LimitError(
            f"{policy}: {name} {value} is over max_num_seqs {limits.max_num_seqs}; "
            "lower it or raise max_num_seqs"
        )
    return value
