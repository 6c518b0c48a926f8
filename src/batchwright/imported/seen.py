"""What a client tool saw of its requests, and what it says of them in sum.

Readers of client tools make a `Seen`, in seconds and by our definitions where the file measures the
same; `imported` (in `client.py`) checks it against itself and makes the columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

import numpy as np

from batchwright.metrics import Numbers

Gaps = tuple[Numbers, ...]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A metric of each request as the file gives it, beside what it should be by its own definition.

    `name`: as the file calls it.  `formula`: what it is there, as `(E2E - TTFT) / (N - 1)`.
    """

    name: str
    formula: str
    given: Numbers
    expected: Numbers


@dataclass(frozen=True, kw_only=True)
class Claims:
    """What the file says of the whole run: seconds, tokens, requests; a key that is not there was not told.

    totals      duration_s, num_completed, num_failed, prompt_tokens, output_tokens, concurrency,
                requests_per_s, output_tokens_per_s, total_tokens_per_s
    statistics  by metric (ttft_s, tpot_s, itl_s, e2e_s) and statistic (mean, p50, p99), where the file
                defines both as we do
    """

    totals: Mapping[str, float] = field(default_factory=dict)
    statistics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the client was told to do.  `rate`: requests/s; `cap`: requests in flight at most; inf: no bound.

    `cv`: of the gaps between arrivals that the client draws.  `is_steady`: is `rate` that of the whole run?
    """

    rate: float = inf
    cap: float = inf
    cv: float = 1.0
    is_steady: bool = True


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What the client saw of each request, in the order of its file; nan: not of this request.

    sent              when it was sent, by any clock; None: the file does not say
    ttft, e2e         first and last token - sent
    gaps              between the tokens; None: the file does not say
    is_e2e_from_gaps  is `e2e` no measurement of its own, but TTFT and the gaps in sum?
    client_queue      waited in the client before it was sent; None: the file does not say
    has_tpot          can TPOT be had from these?
    left_out          completed, but with times that cannot be; None: no request
    """

    prompt: Numbers
    output: Numbers
    ttft: Numbers
    e2e: Numbers
    is_completed: Numbers
    sent: Numbers | None = None
    gaps: Gaps | None = None
    is_e2e_from_gaps: bool = False
    client_queue: Numbers | None = None
    has_tpot: bool = True
    left_out: Numbers | None = None

    def __len__(self) -> int:
        return len(self.prompt)

    @cached_property
    def is_used(self) -> Numbers:
        """Which completed requests are counted."""
        found: Numbers = self.is_completed if self.left_out is None else self.is_completed & ~self.left_out
        return found

    @cached_property
    def has_gaps(self) -> Numbers:
        """Which completed requests have more than one token."""
        found: Numbers = self.is_used & (self.output > 1)
        return found

    @cached_property
    def tpot(self) -> Numbers:
        """(E2E - TTFT) / (N - 1), nan for one token or none."""
        is_there = self.has_gaps & self.has_tpot
        found: Numbers = np.where(is_there, (self.e2e - self.ttft) / np.maximum(self.output - 1, 1), np.nan)
        return found

    @cached_property
    def ended(self) -> Numbers:
        """When its last token came, by the clock of `sent`; nan where nothing is known."""
        found: Numbers = np.full(len(self), np.nan) if self.sent is None else self.sent + self.e2e
        return found


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One run of a client tool."""

    file: str
    form: str
    conventions: tuple[str, ...]
    about: Mapping[str, str | int | float | bool]
    rows: Rows
    claims: Claims = field(default_factory=Claims)
    columns: tuple[Column, ...] = ()
    asked: Asked = field(default_factory=Asked)
