"""What a policy says of itself, for the table of `batchwright policies`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from batchwright.config import ordinary

Kind = TypeVar("Kind")


@ordinary
@dataclass(frozen=True, kw_only=True)
class About:
    """A few words each, in the attribute `about` of a policy's settings, which are `described`.

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


def described(kind: type[Kind]) -> type[Kind]:
    """Settings with an attribute `about`, which is no flag.  To be applied before `dataclass`.

    mypyc annotates every attribute, and forgets ClassVar, so a dataclass would take it for a field.
    """
    kind.__annotations__.pop("about", None)
    return kind
