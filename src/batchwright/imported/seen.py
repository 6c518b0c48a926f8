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

from batchwright.imported.result import Finding
from batchwright.metrics import Numbers

Gaps = tuple[Numbers, ...]


@dataclass(frozen=True)
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
    stream_end  seconds by which E2E of the statistics, to the end of the stream, may exceed that of the rows
    """

    totals: Mapping[str, float] = field(default_factory=dict)
    statistics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    stream_end: float = 0.0


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
    num_chunks        that had tokens, where the file counts them without their times; None: it does not
    more              other columns of `Imported.requests`, such as cached_tokens and client_queue_s: what it
                      waited in the client before it was sent
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
    num_chunks: Numbers | None = None
    more: Mapping[str, Numbers] = field(default_factory=dict)
    has_tpot: bool = True
    left_out: Numbers | None = None

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def num_gaps(self) -> Numbers | None:
        """Between what came of each request; None: not known."""
        if self.gaps is not None:
            return np.array([len(one) for one in self.gaps], np.int64)
        return None if self.num_chunks is None else np.maximum(self.num_chunks - 1, 0)

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

    @property
    def has_e2e(self) -> bool:
        """Of any request that is counted?"""
        return not bool(np.isnan(self.e2e[self.is_used]).all())

    @property
    def total_e2e(self) -> float:
        """Seconds of all requests that are counted, in sum."""
        return float(np.nansum(self.e2e[self.is_used]))

    @property
    def known_sent(self) -> Numbers:
        """When requests were sent; those of which that is not known are left out."""
        return np.empty(0) if self.sent is None else self.sent[~np.isnan(self.sent)]

    @property
    def span(self) -> float:
        """Seconds from the first that was sent to the last token; of the longest, if it is not known when.

        There must be an E2E.
        """
        if self.sent is None:
            return float(np.nanmax(self.e2e[self.is_used]))
        return float(np.nanmax(self.ended[self.is_used]) - self.known_sent.min())

    @cached_property
    def ended(self) -> Numbers:
        """When its last token came, by the clock of `sent`; nan where nothing is known."""
        found: Numbers = np.full(len(self), np.nan) if self.sent is None else self.sent + self.e2e
        return found


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One run of a client tool.  `findings`: what its reader has to say, beside the checks of all."""

    file: str
    form: str
    conventions: tuple[str, ...]
    about: Mapping[str, str | int | float | bool]
    rows: Rows
    claims: Claims = field(default_factory=Claims)
    columns: tuple[Column, ...] = ()
    asked: Asked = field(default_factory=Asked)
    findings: tuple[Finding, ...] = ()
