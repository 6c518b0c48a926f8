"""The JSONL of the Mooncake traces: one object per line.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, ...]}

`timestamp` is in milliseconds; `hash_ids` has one hash per 512 prompt tokens, the last one for
what is left.  It may be absent, from all rows at once.

Source: kvcache-ai/Mooncake, FAST25-release/traces; Qin et al., Mooncake, FAST 2025.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final

import numpy as np

from batchwright.errors import InputError, nearest
from batchwright.request import LONGEST
from batchwright.workload.cells import listed, shortened, shown
from batchwright.workload.columns import LONGEST_SPAN, Columns
from batchwright.workload.prefix import HASH_TOKENS, gather, wrong_hashes

_TIME: Final = "timestamp"
_PROMPT: Final = "input_length"
_OUTPUT: Final = "output_length"
_HASHES: Final = "hash_ids"
_KNOWN: Final = {_TIME, _PROMPT, _OUTPUT, _HASHES}
_SPAN_MS: Final = LONGEST_SPAN * 1000


def matches(first_line: str) -> bool:
    """Is it JSON?"""
    return first_line.lstrip().startswith(("{", "["))


def read(name: str, text: str) -> Columns:
    """The trace.  Raises InputError on the first row that is not valid."""
    reader = _Reader(name)
    for row, line in enumerate(text.split("\n"), 1):
        if line.strip():
            reader.add(row, line)
    return reader.columns()


class _Reader:
    """The columns so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.row = 0
        self.times: list[float] = []
        self.prompts: list[int] = []
        self.outputs: list[int] = []
        self.hashes: list[list[int]] = []
        self.has_hashes = False
        self.ignored: dict[str, None] = {}  # an ordered set

    def add(self, row: int, line: str) -> None:
        """One more request."""
        before, self.row = self.row, row
        item = self._parse(line)
        self.times.append(self._time(item, before))
        self.prompts.append(self._length(item, _PROMPT))
        self.outputs.append(self._length(item, _OUTPUT))
        self._add_hashes(item)
        if not item.keys() <= _KNOWN:
            self.ignored |= dict.fromkeys(key for key in item if key not in _KNOWN)

    def columns(self) -> Columns:
        """All requests.  The first one's time becomes 0."""
        return Columns(
            arrival=(np.array(self.times, np.float64) - self.times[0]) / 1000,
            prompt=np.array(self.prompts, np.int64),
            output=np.array(self.outputs, np.int64),
            hashes=gather(self.hashes) if self.has_hashes else None,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        yield f"Mooncake JSONL: {_TIME} read as milliseconds"
        if self.times[0]:
            yield f"the first {_TIME}, {self.times[0]}, is time 0"
        if self.has_hashes:
            yield f"{_HASHES} read as one prefix hash per {HASH_TOKENS} prompt tokens"
        if self.ignored:
            yield f"keys ignored: {', '.join(listed(self.ignored))}"

    def _parse(self, line: str) -> Mapping[str, Any]:
        try:
            item = json.loads(line)
        except (ValueError, RecursionError):
            raise self._fail(f"{shown(line)} is no whole JSON object; the line may be cut short") from None
        if not isinstance(item, dict):
            raise self._fail(f"{shown(line)} is no JSON object; write one object per line, as Mooncake does")
        return item

    def _value(self, item: Mapping[str, Any], key: str) -> Any:
        if key in item:
            return item[key]
        raise self._fail(f"no key {key!r}, which a Mooncake trace has{nearest(key, listed(item))}")

    def _length(self, item: Mapping[str, Any], key: str) -> int:
        value = self._value(item, key)
        if type(value) is not int:
            raise self._fail(f"{key} is {_shown(value)}, which is not a whole number; correct it")
        if not 0 < value <= LONGEST:
            raise self._fail(f"{key} is {_shown(value)}, outside 1 to {LONGEST}; correct or remove the row")
        return value

    def _time(self, item: Mapping[str, Any], before: int) -> float:
        value = self._value(item, _TIME)
        if type(value) not in (int, float):
            raise self._fail(f"{_TIME} is {_shown(value)}, which is not a number; correct it")
        first, last = (self.times[0], self.times[-1]) if self.times else (value, value)
        if value < last:
            raise self._fail(f"{_TIME} is {_shown(value)}, before {last} in row {before}; sort by time")
        if not (_is_time(value) and value - first <= _SPAN_MS):
            reach = f"at least 0 and within {_SPAN_MS:.0f} ms of the first"
            raise self._fail(f"{_TIME} is {_shown(value)}, which is no time; give milliseconds, {reach}")
        return value  # type: ignore[no-any-return]  # an int or a float

    def _add_hashes(self, item: Mapping[str, Any]) -> None:
        has_hashes = _HASHES in item
        if len(self.times) == 1:
            self.has_hashes = has_hashes
        if has_hashes != self.has_hashes:
            word = "with" if has_hashes else "without"
            raise self._fail(f"{word} {_HASHES}, unlike the rows before it; give them in all rows or none")
        if not has_hashes:
            return
        wrong = wrong_hashes(item[_HASHES], self.prompts[-1])
        if wrong is not None:
            raise self._fail(f"{_HASHES} {wrong}")
        self.hashes.append(item[_HASHES])

    def _fail(self, reason: str) -> InputError:
        return InputError(f"{self.name}: row {self.row}: {reason}")


def _is_time(value: float) -> bool:
    """Can a float hold it, and is it on or after 0?  An int in JSON has no bound."""
    try:
        return isfinite(value) and value >= 0
    except OverflowError:
        return False


def _shown(value: object) -> str:
    return shortened(json.dumps(value))
