"""An edge case for people: what happens, why, and what to do; and the same for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from math import isnan
from textwrap import fill
from typing import Any, Final

from batchwright.interval import Interval
from batchwright.metrics import number
from batchwright.plain_table import plain_table, table_text

SCHEMA_VERSION: Final = 1
WIDTH: Final = 100


@dataclass(frozen=True)
class Table:
    """Cells as they are printed; all but the first column are numbers."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        table = plain_table(collapse_padding=True)
        for i, title in enumerate(self.titles):
            table.add_column(title, justify="right" if i else "left", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        return table_text(table, WIDTH)


Piece = str | Table  # a paragraph, or a table


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`setting`: what was run; `happens`: what the simulator gives; `why`: formulas; `answer`: what to do."""

    title: str
    setting: str
    happens: Sequence[Piece]
    why: Sequence[Piece]
    answer: Sequence[str]

    def text(self) -> str:
        """All of it, in lines of at most 100 characters."""
        parts = ("What happens", self.happens), ("Why", self.why), ("Answer", self.answer)
        lines = [self.title, "-" * len(self.title), fill(self.setting, WIDTH)]
        for name, pieces in parts:
            lines += ["", f"{name}:", *map(_shown, pieces)]
        return "\n".join(lines)


def _shown(piece: Piece) -> str:
    return fill(piece, WIDTH) if isinstance(piece, str) else str(piece)


def as_json(study: Any, units: Mapping[str, str]) -> dict[str, Any]:
    """The fields of `study`; `units`: the keys of those that have a unit."""
    found = _tree(study, units)
    return {"schema_version": SCHEMA_VERSION, **found}


def _tree(value: Any, units: Mapping[str, str]) -> Any:
    if isinstance(value, Interval):
        return {name: number(getattr(value, name)) for name in ("value", "low", "high")}
    if is_dataclass(value):
        return {
            units.get(one.name, one.name): _tree(getattr(value, one.name), units) for one in fields(value)
        }
    if isinstance(value, (tuple, list)):
        return [_tree(one, units) for one in value]
    return None if isinstance(value, float) and isnan(value) else value
