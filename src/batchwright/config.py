"""Configuration objects: frozen dataclasses that stay ordinary classes in a compiled module.

A compiled class cannot be filled by `pickle`, and answers a value of the wrong type with a
TypeError before our own check can say what is wrong.  mypyc leaves a class alone that has a
decorator which it does not know.
"""

from __future__ import annotations

from typing import TypeVar

Kind = TypeVar("Kind")


def ordinary(kind: type[Kind]) -> type[Kind]:
    """Not to be compiled."""
    return kind
