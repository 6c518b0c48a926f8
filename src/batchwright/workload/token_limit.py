"""The `max_tokens` that each request is sent with: what a policy may know of its output.

    None     the trace's own column, else the greatest output of the workload
    N        at most N: longer outputs are cut, as an engine would
    "exact"  each request's own output, which no server can know: an oracle

A request is never served beyond its limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload.columns import Columns

MaxTokens = int | Literal["exact"] | None


@dataclass(frozen=True, eq=False)
class TokenLimit:
    """`values`: max_tokens of each request.  `note`: where they come from, to be printed.

    `asked`: the rule that they were made by.
    """

    values: npt.NDArray[np.int64]
    note: str
    is_default: bool = False
    is_oracle: bool = False
    asked: MaxTokens = None

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    def head(self, count: int) -> TokenLimit:
        """The limits of the first `count` requests, unchanged."""
        return replace(self, values=self.values[:count])

    def take(self, rows: npt.NDArray[np.int64]) -> TokenLimit:
        """The limits of the requests at `rows`, unchanged."""
        return replace(self, values=self.values[rows])


def token_limit(columns: Columns, asked: MaxTokens) -> TokenLimit:
    """What `asked` means for these requests.  Raises InputError on what is no limit."""
    if asked == "exact":
        note = "max_tokens is each request's own output: an oracle"
        return TokenLimit(columns.output, note, is_oracle=True, asked=asked)
    own = columns.max_tokens
    if asked is None:
        return _own(own) if own is not None else _greatest(columns.output)
    check_limit(asked)
    if own is None:
        note = f"max_tokens is {asked}, as given"
        return TokenLimit(np.full(len(columns.output), asked, np.int64), note, asked=asked)
    note = f"max_tokens is the workload's own, at most {asked}, as given"
    return TokenLimit(np.minimum(own, asked), note, asked=asked)


def check_limit(asked: object) -> None:
    """Raises InputError unless `asked` is a number of tokens."""
    if type(asked) is not int or not 0 < asked <= LONGEST:
        raise InputError(f"max_tokens is {asked!r}; give a whole number of 1 to {LONGEST}, or 'exact'")


def _own(limits: npt.NDArray[np.int64]) -> TokenLimit:
    return TokenLimit(limits, "max_tokens is the workload's own")


def _greatest(output: npt.NDArray[np.int64]) -> TokenLimit:
    greatest = int(output.max())
    note = f"max_tokens is {greatest}, the greatest output of the workload (none was given)"
    return TokenLimit(np.full(len(output), greatest, np.int64), note, is_default=True)
