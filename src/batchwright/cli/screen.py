"""The terminal that results are printed on, and what stands above them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from batchwright.workload import Workload

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST: Final = 40  # characters of a terminal


def screen() -> Console:
    """A console that prints text as it is; tables are as wide as the terminal, or at least readable."""
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)
    console.width = max(console.width, NARROWEST)
    return console


def heading(load: Workload, notes: Iterable[str]) -> str:
    """What was run, and a line for every choice that was made for the user."""
    return "\n".join([load.describe(), *(f"  {note}" for note in notes)])
