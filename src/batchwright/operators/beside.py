"""A few steps by measured operators, and by the roofline of the same model on the same GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.cost import Table
from batchwright.operators.check import Drawn

CONTEXT: Final = 1000  # KV tokens of a decode, and tokens of a prompt
STEPS: Final = {
    "1 decode": (1, 0),
    "32 decodes": (32, 0),
    "256 decodes": (256, 0),
    "1 prompt": (0, 1),
    "8 prompts": (0, 8),
    "64 decodes, 1 prompt": (64, 1),
}


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Seconds of one step.  `roofline` None: the catalogue has not this GPU and model."""

    what: str
    measured: float
    roofline: float | None


def beside(table: Table) -> list[Beside]:
    """The steps of `STEPS`, each decode and prompt of 1000 tokens."""
    roofline = table.memory
    found = []
    for what, (rows, chunks) in STEPS.items():
        drawn = Drawn(rows=rows, context=CONTEXT, chunks=chunks, tokens=CONTEXT if chunks else 0, past=0)
        other = None if roofline is None else roofline.seconds(drawn.step())
        found.append(Beside(what=what, measured=table.seconds(drawn.step()), roofline=other))
    return found
