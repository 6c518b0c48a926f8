"""The JSONL of the Mooncake traces: one object per line.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}

`timestamp` is in milliseconds; `hash_ids` has one hash per 512 prompt tokens, the last one for
what is left.  It may be absent, from all rows at once.

Source: kvcache-ai/Mooncake, FAST25-release/traces; Qin et al., Mooncake, FAST 2025.
"""

from __future__ import annotations

from typing import Final

from batchwright.workload.columns import Columns
from batchwright.workload.hashed import Layout, read_hashed
from batchwright.workload.prefix import HASH_TOKENS

_LAYOUT: Final = Layout(
    name="Mooncake JSONL",
    time="timestamp",
    unit="ms",
    prompt="input_length",
    output="output_length",
    hashes="hash_ids",
    tokens=HASH_TOKENS,
)


def matches(first_line: str) -> bool:
    """Has its first object hash_ids, or a timestamp beside one of its two lengths?"""
    has_length = '"input_length"' in first_line or '"output_length"' in first_line
    return '"hash_ids"' in first_line or (has_length and '"timestamp"' in first_line)


def read(name: str, text: str, time_unit: str | None = None) -> Columns:
    """The trace.  Raises InputError on the first row that is not valid."""
    return read_hashed(name, text, _LAYOUT, time_unit)
