"""The CSV of the Azure LLM inference traces (2023, 2024).

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:17:03.9799600,4808,10

Source: Azure/AzurePublicDataset, described in Patel et al., Splitwise, ISCA 2024.
"""

from __future__ import annotations

from typing import Final

from batchwright.workload.cells import LENGTHS, Parser
from batchwright.workload.columns import Columns
from batchwright.workload.csvtable import csv_table
from batchwright.workload.dates import PER_SECOND, dates_like
from batchwright.workload.units import refuse_unit

_TIME: Final = "TIMESTAMP"
_PROMPT: Final = "ContextTokens"
_OUTPUT: Final = "GeneratedTokens"


def matches(first_line: str) -> bool:
    """Does the header name one of the columns that only these traces have?"""
    return _PROMPT in first_line or _OUTPUT in first_line


def read(name: str, text: str, time_unit: str | None = None) -> Columns:
    """The trace.  Raises InputError on the first row that is not valid."""
    refuse_unit(name, time_unit, f"{_TIME} of an Azure trace holds dates, which have no unit")
    table = csv_table(name, text)
    table.check_titles((_TIME, _PROMPT, _OUTPUT), "an Azure trace")
    parsers: dict[str, Parser] = {_TIME: dates_like(table.first[_TIME]), _PROMPT: LENGTHS, _OUTPUT: LENGTHS}
    data = table.read(parsers)
    return Columns(
        arrival=table.seconds(_TIME, data[_TIME], PER_SECOND),
        prompt=data[_PROMPT],
        output=data[_OUTPUT],
        notes=("Azure CSV: TIMESTAMP read as dates", *table.all_notes(parsers)),
    )
