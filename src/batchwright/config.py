"""Frozen configuration objects that also pickle when they are compiled.

A compiled frozen dataclass cannot be filled by `pickle`, so it is built anew from its fields.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

Rebuild = tuple[Any, tuple[type, dict[str, Any]]]


def rebuild(kind: type, values: dict[str, Any]) -> Any:
    """The `kind` with these fields."""
    return kind(**values)


def pickled(config: Any) -> Rebuild:
    """What `__reduce__` of the dataclass `config` returns."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    return rebuild, (type(config), values)
