"""A workload: requests as read-only columns, made into objects one at a time.

A load that is made knows how to be made with another seed, whatever has been done to it since;
a trace is resampled (`bootstrap`).  Changes of rate, time, lengths and choice are in `scaling`.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.request import NO_KEYS, Request
from batchwright.workload import bootstrap, scaling
from batchwright.workload.cells import counted
from batchwright.workload.columns import (
    GREATEST,
    Columns,
    Floats,
    Ints,
    arrivals,
    followed,
    lengths,
    pauses,
    whole,
)
from batchwright.workload.followers import Followers, Then
from batchwright.workload.made import Maker, changed
from batchwright.workload.mix import mixed
from batchwright.workload.prefix import Hashes, gather, wrong_hashes
from batchwright.workload.token_limit import MaxTokens, TokenLimit, token_limit

_CHUNK: Final = 8192  # requests whose numbers are Python objects at once


class LengthSpread(NamedTuple):
    """Tokens.  Percentiles interpolate linearly between the sorted values."""

    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, eq=False, repr=False)
class Workload:
    """Requests in order of arrival.  Two workloads are equal when their requests are.

    `columns` is what the trace says; `output` and `max_tokens` here are what is served.
    `made`: makes the same load with another seed than `seed`; None for what was read or given.
    """

    name: str
    columns: Columns
    token_limit: TokenLimit
    made: Maker | None = None
    seed: int = 0

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        max_tokens: MaxTokens = None,
        *,
        seed: int = 0,
        columns: Mapping[str, str] | None = None,
        time_unit: str | None = None,
    ) -> Workload:
        """Read a trace, or make the load that a text such as `poisson(rate=4, n=1000)` describes.

        `max_tokens`: the limit that clients send.  None: the trace's own where it has one, else
        its greatest output.  A number cuts longer outputs.  "exact" is an oracle.
        `seed`: of a load whose text does not say one, and of what is drawn from a trace: its
        resamples, and arrivals for lengths without any.  `columns`, `time_unit`: which columns of a
        trace mean what, and the unit of its times, where that cannot be told.
        Raises InputError, with file and row, on a trace that is not whole and valid.
        """
        from batchwright.workload.checks import check_seed
        from batchwright.workload.formats import read_trace
        from batchwright.workload.load_text import is_load, load_of, unknown

        check_seed(seed)
        name = os.fspath(path)
        if is_load(name) and not os.path.isfile(name):
            if columns is not None or time_unit is not None:
                raise InputError(f"{name}: is made, not read; leave out columns and time_unit")
            load = load_of(name, seed)
            return load if max_tokens is None else load.with_max_tokens(max_tokens)
        found = read_trace(name, unknown(name), columns=columns, time_unit=time_unit, seed=seed)
        if isinstance(found, Workload):
            return found if max_tokens is None else found.with_max_tokens(max_tokens)
        return cls(os.path.basename(name), found, token_limit(found, max_tokens), seed=seed)

    @classmethod
    def from_columns(
        cls,
        arrival: npt.ArrayLike,
        prompt: npt.ArrayLike,
        output: npt.ArrayLike,
        *,
        max_tokens: MaxTokens | Sequence[int] | Ints = None,
        priority: npt.ArrayLike | None = None,
        client: npt.ArrayLike | None = None,
        hash_ids: Sequence[list[int]] | None = None,
        after: npt.ArrayLike | None = None,
        think: npt.ArrayLike | None = None,
        name: str = "columns",
    ) -> Workload:
        """A workload of your own numbers, copied.  Arrivals in seconds, the first becomes 0.

        `max_tokens`: as for `open`, or one limit per request.  `hash_ids`: per request one hash
        per 512 prompt tokens, the last one for what is left.  `after`: per request the earlier row
        whose end it follows, `think` seconds later, or -1; the arrival of a follower is nan.
        Raises InputError.
        """
        rows = None if after is None else followed(after, len(np.asarray(arrival)))
        times = arrivals(arrival, rows)
        count = len(times)
        prompts = lengths("prompt", prompt, count)
        asked = None if max_tokens is None or isinstance(max_tokens, int | str) else max_tokens
        columns = Columns(
            arrival=times,
            prompt=prompts,
            output=lengths("output", output, count),
            max_tokens=None if asked is None else lengths("max_tokens", asked, count),
            priority=None if priority is None else whole("priority", priority, count, -GREATEST, GREATEST),
            client=None if client is None else whole("client", client, count, 0, GREATEST),
            hashes=None if hash_ids is None else _checked_hashes(hash_ids, prompts),
            after=rows if rows is not None and (rows >= 0).any() else None,
            think=None if think is None else pauses(think, count),
        )
        rule = max_tokens if isinstance(max_tokens, int | str) else None
        return cls(name, columns, token_limit(columns, rule))

    # --- the same load, changed ---------------------------------------------------

    def with_max_tokens(self, max_tokens: MaxTokens) -> Workload:
        """The same requests under another limit; outputs that were cut are whole again."""
        limit = token_limit(self.columns, max_tokens)
        return changed(self, Workload.with_max_tokens, max_tokens, columns=self.columns, limit=limit)

    def replicate(self, k: int) -> Workload:
        """The `k`-th repetition of a chance load, the same each time; 0 is this one.

        A load that is made is made with `seed` + k.  A trace is resampled: blocks of about sqrt(n)
        consecutive requests, with their gaps, drawn by `seed` and k.  Raises InputError where requests
        follow others and are not made.
        """
        if k == 0:
            return self
        return bootstrap.resampled(self, k) if self.made is None else self.made(self.seed + k)

    def head(self, count: int) -> Workload:
        """The first `count` requests, with the limits that they have here.  Raises InputError on too many."""
        if not 0 < count <= len(self):
            raise InputError(f"{self.name}: {count} of {len(self)} requests asked for; give 1 to {len(self)}")
        columns, limit = self.columns.head(count), self.token_limit.head(count)
        return changed(self, Workload.head, count, columns=columns, limit=limit)

    def at_rate(self, rate: float) -> Workload:
        """The same requests at `rate` per second in the mean, by scaling time.

        If all come at once, they get Poisson arrivals from `seed`.  Raises InputError.
        """
        return scaling.at_rate(self, rate)

    def scaled(self, *, rate: float = 1, time: float = 1, prompt: float = 1, output: float = 1) -> Workload:
        """Rate, times and lengths multiplied by these factors.  Lengths are rounded, and at least 1.

        Raises InputError.
        """
        return scaling.scaled(self, rate, time, prompt, output)

    def between(self, start: float, end: float) -> Workload:
        """The requests that arrive from `start` to before `end` seconds, and their followers."""
        return scaling.between(self, start, end)

    def sample(self, share: float, seed: int = 0) -> Workload:
        """`share` of the requests, chosen at random, with the arrivals that they have.

        Requests that follow each other are chosen together.  Raises InputError.
        """
        return scaling.sample(self, share, seed)

    def tiled(self, times: int) -> Workload:
        """The requests so many times, one after the other, a mean gap apart.  Raises InputError."""
        return scaling.tiled(self, times)

    @staticmethod
    def mix(loads: Sequence[Workload]) -> Workload:
        """All requests of `loads`, by arrival; clients are numbered apart.  Raises InputError."""
        return mixed(loads)

    # --- requests -----------------------------------------------------------------

    def requests(self, block_size: int = 16, prefix: bool = True) -> Iterator[Request]:
        """Fresh requests, one at a time, with ids from 0.

        Requests that follow others are not among them: they come with `Request.then` in a run.
        `prefix`: give them keys for KV blocks of `block_size` tokens, where the trace has hashes.
        Raises InputError if such blocks do not fill a hash of the trace.
        """
        hashes = self.columns.hashes if prefix else None
        if hashes is not None:
            hashes.check_block_size(block_size)
        if self.has_followers:
            return Followers(self.columns, partial(self._request, hashes, block_size)).roots()
        return self._requests(hashes, block_size)

    def _requests(self, hashes: Hashes | None, block_size: int) -> Iterator[Request]:
        id = 0
        for start in range(0, len(self), _CHUNK):
            for arrival, prompt, output, limit, priority, client in self._rows(slice(start, start + _CHUNK)):
                keys = NO_KEYS if hashes is None else hashes.keys(id, prompt, block_size)
                yield Request(id, arrival, prompt, output, limit, priority, keys, client)
                id += 1

    def _request(
        self, hashes: Hashes | None, block_size: int, row: int, arrival: float, then: Then | None
    ) -> Request:
        _, prompt, output, limit, priority, client = next(self._rows(slice(row, row + 1)))
        keys = NO_KEYS if hashes is None else hashes.keys(row, prompt, block_size)
        return Request(row, arrival, prompt, output, limit, priority, keys, client, then)

    def _rows(self, part: slice) -> Iterator[tuple[float, int, int, int, int, int]]:
        return zip(
            self.arrival[part].tolist(),
            self.prompt[part].tolist(),
            self.output[part].tolist(),
            self.max_tokens[part].tolist(),
            _values(self.priority, part),
            _values(self.client, part),
            strict=False,  # an absent column repeats 0 without end
        )

    def __len__(self) -> int:
        return len(self.columns.arrival)

    @property
    def has_followers(self) -> bool:
        """Do some requests arrive when others have ended, so that only a run knows when?"""
        return self.columns.after is not None

    def arrival_in(self, arrived: Mapping[int, float]) -> Floats:
        """Arrivals in a run, in seconds; `arrived`: those that only the run knows, by id."""
        if not arrived:
            return self.arrival
        times = self.arrival.copy()
        times[list(arrived)] = list(arrived.values())
        return times

    @property
    def arrival(self) -> Floats:
        """Seconds from the first arrival; nan for a request that follows another."""
        return self.columns.arrival

    @property
    def prompt(self) -> Ints:
        """Tokens."""
        return self.columns.prompt

    @cached_property
    def output(self) -> Ints:
        """Tokens that are served: those of the trace, cut to `max_tokens`."""
        output = np.minimum(self.columns.output, self.max_tokens)
        output.setflags(write=False)
        return output

    @property
    def max_tokens(self) -> Ints:
        """The limit that each request is sent with."""
        return self.token_limit.values

    @property
    def priority(self) -> Ints | None:
        """None: the trace has none, and all are 0."""
        return self.columns.priority

    @property
    def client(self) -> Ints | None:
        """None: the trace has none, and all are 0."""
        return self.columns.client

    @property
    def has_prefixes(self) -> bool:
        """Does the trace say which prompts start alike?"""
        return self.columns.hashes is not None

    @property
    def num_cut(self) -> int:
        """Requests whose output is longer than their limit, and is cut to it."""
        return int(np.count_nonzero(self.columns.output > self.max_tokens))

    @property
    def notes(self) -> list[str]:
        """What was decided on reading and is not in the trace; to be printed once."""
        cut = [f"{self.num_cut} of {len(self)} outputs are cut to max_tokens"] if self.num_cut else []
        return [*self.columns.notes, self.token_limit.note, *cut]

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last; nan if requests follow others."""
        return math.nan if self.has_followers else float(self.arrival[-1])

    @property
    def rate(self) -> float:
        """Arrivals per second, over the gaps between them; infinite if all come at once.

        nan if requests follow others: the rate is then that at which they are served.
        """
        return _rate(self.arrival) if not self.has_followers else math.nan

    @property
    def gap_cv(self) -> float:
        """Standard deviation of the gaps over their mean: 1 for Poisson, 0 if all come at once.

        nan if requests follow others.
        """
        if self.has_followers:
            return math.nan
        return float(np.diff(self.arrival).std() / (self.span / (len(self) - 1))) if self.span else 0.0

    @property
    def prompt_spread(self) -> LengthSpread:
        """Of the prompt lengths."""
        return _spread(self.prompt)

    @property
    def output_spread(self) -> LengthSpread:
        """Of the output lengths that are served."""
        return _spread(self.output)

    def describe(self) -> str:
        """One line: how many, how fast, how long."""
        return (
            f"{self.name}: {counted(len(self), 'request')} {self._pace()}, "
            f"prompt {_text(self.prompt_spread)}, output {_text(self.output_spread)} tokens (mean/p50/p99)"
        )

    def _pace(self) -> str:
        if self.columns.after is None:
            return _pace(self.arrival)
        roots = self.arrival[self.columns.after < 0]
        rest = len(self) - len(roots)
        return f"({len(roots)} {_pace(roots)}, {rest} each after the end of another)"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that the requests hold; equal for equal workloads, whatever their names."""
        parts: list[Floats | Ints | None] = [self.arrival, self.prompt, self.output, self.max_tokens]
        parts += [self.priority, self.client]
        hashes = self.columns.hashes
        parts += [None, None] if hashes is None else [hashes.ids, hashes.offsets]
        if self.has_followers:
            parts += [self.columns.after, self.columns.think]
        sha = hashlib.sha256()
        for part in parts:
            sha.update(b"none" if part is None else len(part).to_bytes(8, "little") + part.tobytes())
        return sha.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<Workload {self.describe()}>"


def _values(column: Ints | None, part: slice) -> Iterator[int]:
    return repeat(0) if column is None else iter(column[part].tolist())


def _rate(times: Floats) -> float:
    span = float(times[-1])
    return (len(times) - 1) / span if span else math.inf


def _pace(times: Floats) -> str:
    span = float(times[-1])
    if span:
        return f"over {span:.1f} s ({_rate(times):.3g}/s)"
    return "all at once" if len(times) > 1 else "at 0 s"


def _spread(tokens: Ints) -> LengthSpread:
    p50, p99 = np.percentile(tokens, (50, 99))
    return LengthSpread(float(tokens.mean()), float(p50), float(p99))


def _text(spread: LengthSpread) -> str:
    return "/".join(f"{value:.0f}" for value in spread)


def _checked_hashes(hash_ids: Sequence[list[int]], prompts: Ints) -> Hashes:
    if len(hash_ids) != len(prompts):
        raise InputError(f"{len(hash_ids)} lists of hash_ids for {len(prompts)} requests; give one for each")
    for index, (ids, prompt) in enumerate(zip(hash_ids, prompts.tolist(), strict=True)):
        wrong = wrong_hashes(ids, prompt)
        if wrong is not None:
            raise InputError(f"request {index}: hash_ids {wrong}")
    return gather(hash_ids)
