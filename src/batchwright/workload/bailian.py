"""The JSONL of the Qwen Bailian traces, which looks like Mooncake's and is not:

    {"chat_id": 159, "parent_chat_id": 55, "timestamp": 61.114, "input_length": 521,
     "output_length": 132, "type": "text", "turn": 2, "hash_ids": [1089, 1090, ...]}

`timestamp` is in seconds; `hash_ids` has one hash per 16 prompt tokens, each of its own block
alone.  The turns of a chat arrive when they did, whatever the simulated answers take.

Source: alibaba-edu/qwen-bailian-usagetraces-anon, README; Wang et al., KVCache Cache in the
Wild, USENIX ATC 2025.
"""

from __future__ import annotations

from typing import Final

from batchwright.workload.columns import Columns
from batchwright.workload.hashed import CEIL, FLOOR, Layout, read_hashed

_LAYOUT: Final = Layout(
    name="Qwen Bailian JSONL",
    time="timestamp",
    unit="s",
    prompt="input_length",
    output="output_length",
    hashes="hash_ids",
    tokens=16,
    pieces=(CEIL, FLOOR),  # its README does not say which
    are_chained=False,
)


def matches(first_line: str) -> bool:
    """Has its first object a chat_id beside a length?"""
    return '"chat_id"' in first_line and '"input_length"' in first_line


def read(name: str, text: str, time_unit: str | None = None) -> Columns:
    """The trace.  Raises InputError on the first row that is not valid."""
    return read_hashed(name, text, _LAYOUT, time_unit)
