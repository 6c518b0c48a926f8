"""The formats of traces, told by their content.  A new one is one file and one line here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from batchwright.errors import InputError
from batchwright.workload import azure, bailian, burstgpt, llmservingsim, mooncake, sharegpt
from batchwright.workload.columns import Columns
from batchwright.workload.csvtable import csv_table
from batchwright.workload.jsontable import json_table
from batchwright.workload.parquet import parquet_table
from batchwright.workload.plain import read_plain
from batchwright.workload.roles import checked
from batchwright.workload.source import PARQUET, is_archive, read_bytes, text_of
from batchwright.workload.units import unit_of

if TYPE_CHECKING:
    from batchwright.workload.load import Workload


class Format(NamedTuple):
    """`matches(first_line)`, and `read(name, text, time_unit)`, which raises InputError with the row."""

    name: str
    matches: Callable[[str], bool]
    read: Callable[[str, str, str | None], Columns]


FORMATS: Final = (  # the first that matches reads it; plain tables come after all of them
    Format("Qwen Bailian JSONL", bailian.matches, bailian.read),
    Format("LLMServingSim JSONL", llmservingsim.matches, llmservingsim.read),
    Format("Mooncake JSONL", mooncake.matches, mooncake.read),
    Format("Azure CSV", azure.matches, azure.read),
    Format("BurstGPT CSV", burstgpt.matches, burstgpt.read),
)


def read_trace(
    path: str,
    instead: str,
    *,
    columns: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    seed: int = 0,
) -> Columns | Workload:
    """The trace at `path`, or a load that is made of the client models there with `seed`.

    `columns`: role to title; then the file is read as a plain table, whatever it looks like.
    `time_unit`: s, ms, us or ns, instead of what the file says.
    Raises InputError; if there is no such file it says what to do `instead`.
    """
    asked = None if columns is None else checked(columns)
    if time_unit is not None:
        unit_of(time_unit)
    raw = b"" if os.path.isdir(path) else read_bytes(path, instead)
    if not raw or is_archive(raw):
        _refuse_options(path, asked, time_unit)
        from batchwright.workload.client_models import servegen

        return servegen(path, seed=seed)
    if raw.startswith(PARQUET):
        table = parquet_table(path, raw, None if asked is None else asked.values())
        return read_plain(table, "Parquet", asked, time_unit)
    return _read_text(path, text_of(path, raw), asked, time_unit)


def _read_text(path: str, text: str, asked: Mapping[str, str] | None, time_unit: str | None) -> Columns:
    start = text.lstrip()
    if sharegpt.matches(start):
        sharegpt.refuse(path)
    first_line = start.partition("\n")[0]
    reader = next((format for format in FORMATS if format.matches(first_line)), None)
    if reader is not None and asked is None:
        return reader.read(path, text, time_unit)
    if first_line.startswith(("{", "[")):
        table = json_table(path, text, None if asked is None else asked.values())
        return read_plain(table, "JSONL", asked, time_unit)
    return read_plain(csv_table(path, text), "CSV", asked, time_unit)


def _refuse_options(path: str, asked: Mapping[str, str] | None, time_unit: str | None) -> None:
    if asked is not None or time_unit is not None:
        raise InputError(f"{path}: holds client models, not rows; leave out columns and time_unit")
