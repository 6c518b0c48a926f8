"""What every format makes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The text of a file, and `notes`: what it cannot say or leaves out, to be printed."""

    text: str
    notes: tuple[str, ...] = ()
