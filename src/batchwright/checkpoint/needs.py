"""Libraries of the extras, which need not be installed."""

from __future__ import annotations

from importlib.util import find_spec

from batchwright.errors import InputError


def has(module: str) -> bool:
    """Is `module` installed?"""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def need(module: str, extra: str = "live") -> None:
    """Raises InputError that says how to install `module`, if it is not there."""
    if not has(module):
        raise InputError(f"{module} is not installed; pip install 'batchwright[{extra}]' brings it")
