"""The formats of traces, told by their first line.  A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from batchwright.workload import azure, mooncake, plain
from batchwright.workload.columns import Columns
from batchwright.workload.source import read_text

if TYPE_CHECKING:
    from batchwright.workload.load import Workload


class Format(NamedTuple):
    """`matches(first_line)`, and `read(name, text)`, which raises InputError with the row."""

    name: str
    matches: Callable[[str], bool]
    read: Callable[[str, str], Columns]


FORMATS: Final = (  # the first that matches reads it
    Format("Mooncake JSONL", mooncake.matches, mooncake.read),
    Format("Azure CSV", azure.matches, azure.read),
    Format("CSV", plain.matches, plain.read),
)


def read_trace(
    path: str,
    built_in: tuple[str, ...],
    *,
    columns: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    seed: int = 0,
) -> Columns | Workload:
    """The trace at `path`.  Raises InputError; if there is no such file it names `built_in`."""
    text = read_text(path, built_in)
    first_line = text.lstrip().partition("\n")[0]
    reader = next(format for format in FORMATS if format.matches(first_line))
    return reader.read(path, text)
