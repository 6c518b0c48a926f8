"""What the shared tests need to know of each named engine: one module an engine, found by itself.

    KIND           the class of its settings
    BAD            flag -> values that it refuses, for every flag
    settings       (random) -> KIND, of any settings that can be written as text
    drawn          (random, config of a load) -> a policy for that load, and the reference for it

The reference is a slow, obvious loop in the same module, made of what `reference` has.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Protocol

import reference

Reference = Callable[[dict[str, Any]], reference.Policy]


class Peer(Protocol):
    KIND: type
    BAD: dict[str, tuple[Any, ...]]

    def settings(self, random: Random) -> Any: ...
    def drawn(self, random: Random, config: dict[str, Any]) -> tuple[Any, Reference]: ...


NAMES = sorted(file.stem for file in Path(__file__).parent.glob("[a-z]*.py"))
PEERS: dict[str, Peer] = {name: import_module(f"peers.{name}") for name in NAMES}  # type: ignore[misc]
