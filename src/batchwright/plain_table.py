"""Tables as all reports draw them: a line under the titles, and nothing else."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.table import Table

WIDTH: Final = 110  # characters of a table as text


def plain_table(**style: Any) -> Table:
    """A table without rows.  `style`: what rich's Table takes beside."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False, **style)


def table_text(table: Table, width: int = WIDTH) -> str:
    """The table as plain text."""
    from rich.console import Console

    out = StringIO()
    Console(file=out, width=width, color_system=None).print(table)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join(lines).strip("\n")
