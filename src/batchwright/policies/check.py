"""Checks of the flags that policies are made with.  Raises InputError, naming policy and flag.

Flags are read as objects: what a user gave may be of any type, whatever the field says.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from batchwright.errors import InputError, LimitError
from batchwright.limits import Limits

DEFAULT_BATCH: Final = 32  # requests, of batches that start together


def check_count(
    policy: str, flags: object, name: str, least: int = 1, optional: bool = False, word: str = ""
) -> None:
    """The flag `name` must be a whole number of at least `least`; `optional`: or None; or `word`."""
    value: object = vars(flags)[name]
    if (optional and value is None) or (word and value == word):
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{policy}: {name} is {value!r}, but must be a whole number of at least {least}")


def check_bool(policy: str, flags: object, name: str) -> None:
    """The flag `name` must be True or False."""
    value: object = vars(flags)[name]
    if not isinstance(value, bool):
        raise InputError(f"{policy}: {name} is {value!r}, but must be true or false")


def check_number(
    policy: str, flags: object, name: str, least: float, most: float, optional: bool = False
) -> None:
    """The flag `name` must be a finite number from `least` to `most`; `optional`: or None."""
    value: object = vars(flags)[name]
    if optional and value is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        raise InputError(f"{policy}: {name} is {value!r}, but must be a number from {least:g} to {most:g}")


def check_choice(policy: str, flags: object, name: str, known: Collection[str]) -> None:
    """The flag `name` must be one of `known`."""
    value: object = vars(flags)[name]
    if value not in known:
        words = ", ".join(sorted(known))
        raise InputError(f"{policy}: {name} {value!r} is not known; known: {words}")


def check_sizes(policy: str, flags: object, name: str, most: int) -> tuple[int, ...]:
    """The flag `name` must be batch sizes of at most `most`; these, as a tuple."""
    values: object = vars(flags)[name]
    if not isinstance(values, (tuple, list)):
        raise InputError(f"{policy}: {name} is {values!r}, but must be sizes like (4, 8)")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(f"{policy}: {name} has {value!r}, but must have whole numbers of at least 1")
        if value > most:
            raise InputError(f"{policy}: {name} has {value}, over the batch size of {most}; lower it")
    return tuple(values)


def batch_size(policy: str, name: str, value: int | None, max_num_seqs: int) -> int:
    """The size of a batch, which must fit `max_num_seqs`.  Raises LimitError."""
    if value is None:
        return min(DEFAULT_BATCH, max_num_seqs)
    if value > max_num_seqs:
        raise LimitError(
            f"{policy}: {name} {value} is over max_num_seqs {max_num_seqs}; lower it or raise max_num_seqs"
        )
    return value


def usual(value: int | None, default: int, limit: int) -> int:
    """The value of a flag; None: the engine's default, or the server's limit if that is less."""
    return min(default, limit) if value is None else value


def kv_tokens(policy: str, name: str, value: int | None, limits: Limits) -> int:
    """KV tokens of which a policy makes use; None: all.

    Raises LimitError if the server has fewer, or if they cannot hold its longest request.
    """
    size = limits.block_size
    if value is None:
        return limits.blocks * size
    if value > limits.blocks * size:
        raise LimitError(
            f"{policy}: {name} {value} is over the {limits.blocks * size} tokens that {limits.blocks} "
            f"KV blocks of {size} hold; lower it or raise num_kv_blocks"
        )
    if value // size < (limits.longest + size - 1) // size:
        raise LimitError(
            f"{policy}: {name} {value}, or {value // size} KV blocks of {size}, cannot hold a request of "
            f"{limits.longest} tokens; raise it or lower max_model_len"
        )
    return value
