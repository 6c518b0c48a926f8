"""What a policy says of itself, for the table of `batchwright policies`."""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.config import ordinary


@ordinary
@dataclass(frozen=True, kw_only=True)
class About:
    """A few words each, in the attribute `about` of a policy's settings.

    engine    what it stands for, with the version that its rules were read from
    order     of the waiting
    first     who goes first in a step, and whether prompts and decodes share it
    chunking  of prompts
    kv        what a request must find free to be admitted
    victim    who loses its blocks when they are short, and how
    leave     when a request that has ended leaves
    source    of the rules
    left_out  what the engine does beside
    """

    engine: str
    order: str
    first: str
    chunking: str
    kv: str
    victim: str
    leave: str
    source: str
    left_out: str

    def __set_name__(self, owner: type, name: str) -> None:
        """What a class says of itself is no flag: mypyc drops ClassVar, and makes it a field without."""
        owner.__annotations__.pop(name, None)
