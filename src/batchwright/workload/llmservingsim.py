"""The flat JSONL of LLMServingSim, also used for measured vLLM runs: lengths without text.

    {"input_toks": 2358, "output_toks": 531, "arrival_time_ns": 46926808,
     "prefix_block_hashes": ["5a2be53bdb", "9c3555397b", ...]}

Arrivals are in nanoseconds.  `prefix_block_hashes` may be absent; it has one hash per full
block of 16 prompt tokens, each standing for all tokens before it too.

Source: casys-kaist/LLMServingSim, the loader of its request sets.
"""

from __future__ import annotations

from typing import Final

from batchwright.errors import InputError
from batchwright.workload.columns import Columns
from batchwright.workload.hashed import FLOOR, Layout, read_hashed

_LAYOUT: Final = Layout(
    name="LLMServingSim JSONL",
    time="arrival_time_ns",
    unit="ns",
    prompt="input_toks",
    output="output_toks",
    hashes="prefix_block_hashes",
    tokens=16,
    pieces=(FLOOR,),
    are_names=True,
)


def matches(first_line: str) -> bool:
    """Has its first object prefix_block_hashes, or an arrival_time_ns beside one of its two lengths?"""
    has_length = '"input_toks"' in first_line or '"output_toks"' in first_line
    return '"prefix_block_hashes"' in first_line or (has_length and '"arrival_time_ns"' in first_line)


def read(name: str, text: str, time_unit: str | None = None) -> Columns:
    """The trace.  Raises InputError on the first row that is not valid, and on agentic sessions."""
    if '"sub_requests"' in text.partition("\n")[0]:
        reason = "sub_requests follow each other's end and are not read; write one object per request"
        raise InputError(f"{name}: is LLMServingSim's form of agentic sessions, whose {reason}")
    return read_hashed(name, text, _LAYOUT, time_unit)
