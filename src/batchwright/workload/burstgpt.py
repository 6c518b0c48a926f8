"""The CSV of the BurstGPT traces:

    Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
    5,ChatGPT,472,18,490,Conversation log

`Timestamp` is in seconds.  Rows without response tokens are requests that failed: they are left
out, and counted in a note.

Source: HPMLL/BurstGPT, README; Wang et al., BurstGPT, 2024 (arXiv 2401.17644).
"""

from __future__ import annotations

from typing import Final

from batchwright.errors import InputError
from batchwright.workload.cells import LENGTHS_OR_NONE, Parser, times
from batchwright.workload.columns import Columns
from batchwright.workload.csvtable import csv_table
from batchwright.workload.plain import Models, note_models, note_start
from batchwright.workload.units import asked_unit

_TIME: Final = "Timestamp"
_PROMPT: Final = "Request tokens"
_OUTPUT: Final = "Response tokens"
_MODEL: Final = "Model"


def matches(first_line: str) -> bool:
    """Does the header name one of the columns that only these traces have?"""
    return _PROMPT in first_line or _OUTPUT in first_line


def read(name: str, text: str, time_unit: str | None = None) -> Columns:
    """The trace.  Raises InputError on the first row that is not valid."""
    table = csv_table(name, text)
    table.check_titles((_TIME, _PROMPT, _OUTPUT), "a BurstGPT trace")
    models = Models()
    parsers: dict[str, Parser] = {_TIME: times, _PROMPT: LENGTHS_OR_NONE, _OUTPUT: LENGTHS_OR_NONE}
    if _MODEL in table.header:
        parsers[_MODEL] = models
    data = table.read(parsers)
    unit = asked_unit(time_unit, "s")
    arrival = table.seconds(_TIME, data[_TIME], unit.per_second)
    is_served = (data[_PROMPT] > 0) & (data[_OUTPUT] > 0)
    if not is_served.any():
        raise InputError(
            f"{name}: every row has 0 tokens in {_PROMPT!r} or {_OUTPUT!r}; give one that has not"
        )
    arrival = arrival[is_served]
    num_failed = len(is_served) - len(arrival)
    failed = (
        f"{num_failed} of {len(is_served)} rows have 0 tokens, as requests that failed; they are left out"
    )
    return Columns(
        arrival=arrival - arrival[0],
        prompt=data[_PROMPT][is_served],
        output=data[_OUTPUT][is_served],
        notes=(
            f"BurstGPT CSV: {_TIME} read as {unit.words}",
            *note_start(table, _TIME),
            *([failed] if num_failed else []),
            *([note_models(models.counts)] if len(models.counts) > 1 else []),
            *table.all_notes(parsers),
        ),
    )
