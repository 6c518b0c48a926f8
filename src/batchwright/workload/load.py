"""A workload: requests as read-only columns, made into objects one at a time."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.request import NO_KEYS, Request
from batchwright.workload.columns import GREATEST, Columns, Floats, Ints, arrivals, lengths, whole
from batchwright.workload.prefix import Hashes, gather, wrong_hashes
from batchwright.workload.token_limit import MaxTokens, TokenLimit, token_limit

_CHUNK: Final = 8192  # requests whose numbers are Python objects at once


class Spread(NamedTuple):
    """Tokens.  Percentiles interpolate linearly between the sorted values."""

    mean: float
    p50: float
    p99: float


@dataclass(frozen=True, eq=False, repr=False)
class Workload:
    """Requests in order of arrival.  Two workloads are equal when their requests are.

    `columns` is what the trace says; `output` and `max_tokens` here are what is served.
    """

    name: str
    columns: Columns
    token_limit: TokenLimit

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
        """Read a trace, or make the built-in load of that name if there is no such file.

        `max_tokens`: the limit that clients send.  None: the trace's own where it has one, else
        its greatest output.  A number cuts longer outputs.  "exact" is an oracle.
        Raises InputError, with file and row, on a trace that is not whole and valid.
        """
        from batchwright.workload.formats import read_trace
        from batchwright.workload.generated import BUILT_IN

        name = os.fspath(path)
        if name in BUILT_IN and not os.path.isfile(name):
            return BUILT_IN[name]().with_max_tokens(max_tokens)
        found = read_trace(name, tuple(BUILT_IN), columns=columns, time_unit=time_unit, seed=seed)
        if isinstance(found, Workload):
            return found.with_max_tokens(max_tokens)
        return cls(os.path.basename(name), found, token_limit(found, max_tokens))

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
        name: str = "columns",
    ) -> Workload:
        """A workload of your own numbers, copied.  Arrivals in seconds, the first becomes 0.

        `max_tokens`: as for `open`, or one limit per request.  `hash_ids`: per request one hash
        per 512 prompt tokens, the last one for what is left.  Raises InputError.
        """
        times = arrivals(arrival)
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
        )
        rule = max_tokens if isinstance(max_tokens, int | str) else None
        return cls(name, columns, token_limit(columns, rule))

    def with_max_tokens(self, max_tokens: MaxTokens) -> Workload:
        """The same requests under another limit; outputs that were cut are whole again."""
        return Workload(self.name, self.columns, token_limit(self.columns, max_tokens))

    def head(self, count: int) -> Workload:
        """The first `count` requests, with the limits that they have here."""
        if not 0 < count <= len(self):
            raise InputError(f"{self.name}: {count} of {len(self)} requests asked for; give 1 to {len(self)}")
        return Workload(self.name, self.columns.head(count), self.token_limit.head(count))

    def requests(self, block_size: int = 16, prefix: bool = True) -> Iterator[Request]:
        """Fresh requests, one at a time, with ids from 0.

        `prefix`: give them keys for KV blocks of `block_size` tokens, where the trace has hashes.
        Raises InputError if such blocks do not fill a hash of the trace.
        """
        hashes = self.columns.hashes if prefix else None
        if hashes is not None:
            hashes.check_block_size(block_size)
        return self._requests(hashes, block_size)

    def _requests(self, hashes: Hashes | None, block_size: int) -> Iterator[Request]:
        id = 0
        for start in range(0, len(self), _CHUNK):
            for arrival, prompt, output, limit, priority, client in self._rows(slice(start, start + _CHUNK)):
                keys = NO_KEYS if hashes is None else hashes.keys(id, prompt, block_size)
                yield Request(id, arrival, prompt, output, limit, priority, keys, client)
                id += 1

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
    def arrival(self) -> Floats:
        """Seconds from the first arrival."""
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
        """Seconds from the first arrival to the last."""
        return float(self.arrival[-1])

    @property
    def rate(self) -> float:
        """Arrivals per second, over the gaps between them; infinite if all come at once."""
        return (len(self) - 1) / self.span if self.span else math.inf

    @property
    def gap_cv(self) -> float:
        """Standard deviation of the gaps over their mean: 1 for Poisson, 0 if all come at once."""
        return float(np.diff(self.arrival).std() / (self.span / (len(self) - 1))) if self.span else 0.0

    @property
    def prompt_spread(self) -> Spread:
        """Of the prompt lengths."""
        return _spread(self.prompt)

    @property
    def output_spread(self) -> Spread:
        """Of the output lengths that are served."""
        return _spread(self.output)

    def describe(self) -> str:
        """One line: how many, how fast, how long."""
        pace = f"over {self.span:.1f} s ({self.rate:.3g}/s)" if self.span else "all at once"
        return (
            f"{self.name}: {len(self)} requests {pace}, prompt {_text(self.prompt_spread)}, "
            f"output {_text(self.output_spread)} tokens (mean/p50/p99)"
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that the requests hold; equal for equal workloads, whatever their names."""
        parts: list[Floats | Ints | None] = [self.arrival, self.prompt, self.output, self.max_tokens]
        parts += [self.priority, self.client]
        hashes = self.columns.hashes
        parts += [None, None] if hashes is None else [hashes.ids, hashes.offsets]
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


def _spread(tokens: Ints) -> Spread:
    p50, p99 = np.percentile(tokens, (50, 99))
    return Spread(float(tokens.mean()), float(p50), float(p99))


def _text(spread: Spread) -> str:
    return "/".join(f"{value:.0f}" for value in spread)


def _checked_hashes(hash_ids: Sequence[list[int]], prompts: Ints) -> Hashes:
    if len(hash_ids) != len(prompts):
        raise InputError(f"{len(hash_ids)} lists of hash_ids for {len(prompts)} requests; give one for each")
    for index, (ids, prompt) in enumerate(zip(hash_ids, prompts.tolist(), strict=True)):
        wrong = wrong_hashes(ids, prompt)
        if wrong is not None:
            raise InputError(f"request {index}: hash_ids {wrong}")
    return gather(hash_ids)
