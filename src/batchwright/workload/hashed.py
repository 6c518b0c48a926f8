"""JSONL whose rows may carry prefix hashes: one object per line, in one of several layouts.

A layout says what the keys are called, the unit of time, and how many prompt tokens one hash
stands for.  Whatever the file calls a hash, each one here stands for all tokens up to the end
of its piece: layouts whose hashes are of a piece alone are chained.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np

from batchwright.errors import InputError, nearest
from batchwright.request import LONGEST
from batchwright.workload.cells import listed, row_error, shortened
from batchwright.workload.columns import LONGEST_SPAN, Columns
from batchwright.workload.jsontable import parse_object
from batchwright.workload.prefix import gather, wrong_count, wrong_numbers
from batchwright.workload.units import asked_unit

CEIL: Final = "ceil"  # the last hash of a prompt stands for what is left
FLOOR: Final = "floor"  # only full pieces have a hash


@dataclass(frozen=True, kw_only=True)
class Layout:
    """`time`, `prompt`, `output`, `hashes`: the keys.  `tokens`: of one hash.

    `pieces`: the counts of hashes that a prompt may have, CEIL, FLOOR or both.  `are_names`:
    hashes are text, numbered here.  `are_chained`: a hash stands for all tokens before it too.
    """

    name: str
    time: str
    unit: str
    prompt: str
    output: str
    hashes: str
    tokens: int
    pieces: tuple[str, ...] = (CEIL,)
    are_names: bool = False
    are_chained: bool = True


def read_hashed(name: str, text: str, layout: Layout, time_unit: str | None = None) -> Columns:
    """The trace.  `time_unit`: instead of the layout's.  Raises InputError on the first bad row."""
    reader = _Reader(name, layout, time_unit)
    for row, line in enumerate(text.split("\n"), 1):
        if line.strip():
            reader.add(row, line)
    return reader.columns()


class _Reader:
    """The columns so far."""

    def __init__(self, name: str, layout: Layout, time_unit: str | None) -> None:
        self.name = name
        self.layout = layout
        self.unit = asked_unit(time_unit, layout.unit)
        self.known = {layout.time, layout.prompt, layout.output, layout.hashes}
        self.longest = LONGEST_SPAN * self.unit.per_second
        self.row = 0
        self.times: list[float] = []
        self.prompts: list[int] = []
        self.outputs: list[int] = []
        self.hashes: list[list[int]] = []
        self.has_hashes = False
        self.numbers: dict[object, int] = {}  # of hashes that are text, or that are chained here
        self.ignored: dict[str, None] = {}  # an ordered set

    def add(self, row: int, line: str) -> None:
        """One more request."""
        before, self.row = self.row, row
        item = parse_object(self.name, row, line)
        self.times.append(self._time(item, before))
        self.prompts.append(self._length(item, self.layout.prompt))
        self.outputs.append(self._length(item, self.layout.output))
        self._add_hashes(item)
        if not item.keys() <= self.known:
            self.ignored |= dict.fromkeys(key for key in item if key not in self.known)

    def columns(self) -> Columns:
        """All requests.  The first one's time becomes 0."""
        times = np.array(self.times)  # whole numbers stay so
        return Columns(
            arrival=(times - times[0]) / self.unit.per_second,
            prompt=np.array(self.prompts, np.int64),
            output=np.array(self.outputs, np.int64),
            hashes=gather(self.hashes, self.layout.tokens) if self.has_hashes else None,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        layout = self.layout
        yield f"{layout.name}: {layout.time} read as {self.unit.words}"
        if self.times[0]:
            yield f"the first {layout.time}, {self.times[0]}, is time 0"
        if self.has_hashes:
            yield f"{layout.hashes} read as one prefix hash per {layout.tokens} prompt tokens"
        if self.has_hashes and not layout.are_chained:
            yield f"{layout.hashes} are of one block each, and count here with all blocks before them"
        if self.ignored:
            yield f"keys ignored: {', '.join(listed(self.ignored))}"

    def _value(self, item: Mapping[str, Any], key: str) -> Any:
        if key in item:
            return item[key]
        raise self._fail(f"no key {key!r}, which a {self._kind()} has{nearest(key, listed(item))}")

    def _kind(self) -> str:
        return f"{self.layout.name.removesuffix(' JSONL')} trace"

    def _length(self, item: Mapping[str, Any], key: str) -> int:
        value = self._value(item, key)
        if type(value) is not int:
            raise self._fail(f"{key} is {_shown(value)}, which is not a whole number; correct it")
        if not 0 < value <= LONGEST:
            raise self._fail(f"{key} is {_shown(value)}, outside 1 to {LONGEST}; correct or remove the row")
        return value

    def _time(self, item: Mapping[str, Any], before: int) -> float:
        key = self.layout.time
        value = self._value(item, key)
        if type(value) not in (int, float):
            raise self._fail(f"{key} is {_shown(value)}, which is not a number; correct it")
        first, last = (self.times[0], self.times[-1]) if self.times else (value, value)
        if value < last:
            raise self._fail(f"{key} is {_shown(value)}, before {last} in row {before}; sort by time")
        if not (_is_time(value) and value - first <= self.longest):
            words = self.unit.words.partition(",")[0]
            reach = f"at least 0 and within {self.longest:.0f} of the first"
            raise self._fail(f"{key} is {_shown(value)}, which is no time; give {words}, {reach}")
        return value  # type: ignore[no-any-return]  # an int or a float

    def _add_hashes(self, item: Mapping[str, Any]) -> None:
        key = self.layout.hashes
        has_hashes = key in item
        if len(self.times) == 1:
            self.has_hashes = has_hashes
        if has_hashes != self.has_hashes:
            word = "with" if has_hashes else "without"
            raise self._fail(f"{word} {key}, unlike the rows before it; give them in all rows or none")
        if has_hashes:
            self.hashes.append(self._checked(item[key]))

    def _checked(self, found: object) -> list[int]:
        """The hashes of the newest request as numbers."""
        kind = str if self.layout.are_names else int
        if not isinstance(found, list) or not set(map(type, found)) <= {kind}:
            word = "texts" if self.layout.are_names else "whole numbers"
            key = self.layout.hashes
            raise self._fail(f"{key} is not a list of {word}; correct it, or remove {key} from every row")
        wrong = self._wrong_count(len(found))
        if wrong is None and not self.layout.are_names:
            wrong = wrong_numbers(found)
        if wrong is not None:
            raise self._fail(f"{self.layout.hashes} {wrong}")
        return self._numbered(found)

    def _wrong_count(self, count: int) -> str | None:
        prompt, tokens = self.prompts[-1], self.layout.tokens
        counts = {FLOOR: prompt // tokens, CEIL: -(-prompt // tokens)}
        return wrong_count(count, prompt, tokens, tuple(counts[piece] for piece in self.layout.pieces))

    def _numbered(self, found: list[Any]) -> list[int]:
        if not self.layout.are_chained:
            return self._chained(found)
        if not self.layout.are_names:
            return found
        numbers = self.numbers
        return [numbers.setdefault(name, len(numbers)) for name in found]

    def _chained(self, found: list[Any]) -> list[int]:
        """A number for each piece together with all pieces before it."""
        numbers = self.numbers
        chain: list[int] = []
        last = -1
        for piece in found:
            last = numbers.setdefault((last, piece), len(numbers))
            chain.append(last)
        return chain

    def _fail(self, reason: str) -> InputError:
        return row_error(self.name, self.row, reason)


def _is_time(value: float) -> bool:
    """Can a float hold it, and is it on or after 0?  An int in JSON has no bound."""
    try:
        return isfinite(value) and value >= 0
    except OverflowError:
        return False


def _shown(value: object) -> str:
    return shortened(json.dumps(value))
