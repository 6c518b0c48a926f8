"""What a load looks like, before any policy: how fast, how bursty, how long, how alike.

    rate          (n - 1) / span, requests per second
    CV of gaps    standard deviation over mean: 1 for Poisson arrivals, 0 for a clock
    together      share of the gaps that are 0, which a clock that ticks coarsely makes
    dispersion    variance over mean of the counts in windows of w seconds: 1 for Poisson at any w;
                  it keeps growing with w where bursts are long
    stretch       E[max of B] / mean of the lengths: what a static batch of B waits for (`longest`)
    reuse         share of full blocks that an endless prefix cache finds again (`reuse`)

Lengths are those that are served, so cut to max_tokens.  Percentiles interpolate linearly
between the sorted values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from batchwright.workload.columns import Floats, Ints
from batchwright.workload.load import Workload
from batchwright.workload.longest import stretch
from batchwright.workload.reuse import block_reuse, entry_reuse

BATCH_SIZES: Final = (8, 32, 128)
BLOCK_SIZES: Final = (512, 16)
_WINDOWS: Final = (1.0, 10.0, 60.0, 600.0)  # seconds
_FEWEST_WINDOWS, _MOST_WINDOWS = 20, 1_000_000
_SHORTEST: Final = 1e-9  # seconds; all that comes within a nanosecond comes at once
_BARS: Final = 60  # of the rate over time
_LENGTH_BINS: Final = 9
SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens.  `stretch`: E[max of B] / mean for each B of BATCH_SIZES.

    `histogram`: least and greatest length of a bin, and its requests.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: int
    stretch: tuple[float, ...]
    histogram: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """`dispersion`: window in seconds, variance over mean of its counts.

    `rate_over_time`: requests per second in bars of `bar_s` seconds.
    """

    span_s: float
    rate: float
    gap_cv: float
    together: float
    dispersion: tuple[tuple[float, float], ...]
    bar_s: float
    rate_over_time: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Reuse:
    """`hash_tokens`: of one hash of the trace.  `blocks`: block size, share found again or None."""

    hash_tokens: int
    entries: float | None
    blocks: tuple[tuple[int, float | None], ...]


@dataclass(frozen=True, kw_only=True)
class Clients:
    """`busiest_share`: of the requests, by the client that sent most."""

    count: int
    busiest_share: float


@dataclass(frozen=True, kw_only=True)
class Description:
    """All of it.  None: the load has no such thing.

    `num_followers`: requests that wait for the end of another, so that nobody knows before a run
    when they arrive.  Where there are any, `arrivals` is None, as it is if all come at once.
    """

    name: str
    num_requests: int
    num_followers: int
    arrivals: Arrivals | None
    prompt: Lengths
    output: Lengths
    total: Lengths
    reuse: Reuse | None
    clients: Clients | None
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As plain values, units in the names; what goes by a size or a window stands under it."""
        reuse = self.reuse
        return {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "num_requests": self.num_requests,
            "num_followers": self.num_followers,
            "arrivals": None if self.arrivals is None else _arrivals_json(self.arrivals),
            "prompt_tokens": _lengths_json(self.prompt),
            "output_tokens": _lengths_json(self.output),
            "total_tokens": _lengths_json(self.total),
            "reuse": None if reuse is None else {**asdict(reuse), "blocks": _by_size(reuse.blocks)},
            "clients": None if self.clients is None else asdict(self.clients),
            "notes": list(self.notes),
        }


def _arrivals_json(found: Arrivals) -> dict[str, Any]:
    return {
        "span_s": found.span_s,
        "rate_per_s": found.rate,
        "gap_cv": found.gap_cv,
        "together": found.together,
        "dispersion": _by_size(found.dispersion),
        "bar_s": found.bar_s,
        "rate_over_time_per_s": list(found.rate_over_time),
    }


def _lengths_json(found: Lengths) -> dict[str, Any]:
    pairs = tuple(zip(BATCH_SIZES, found.stretch, strict=True))
    return {**asdict(found), "stretch": _by_size(pairs), "histogram": list(map(list, found.histogram))}


def _by_size(pairs: Iterable[tuple[float, float | None]]) -> dict[str, float | None]:
    return {f"{size:g}": value for size, value in pairs}


def describe(load: Workload) -> Description:
    """Everything that can be said of `load` without a server."""
    return Description(
        name=load.name,
        num_requests=len(load),
        num_followers=int(np.isnan(load.arrival).sum()),
        arrivals=_arrivals(load),
        prompt=_lengths(load.prompt),
        output=_lengths(load.output),
        total=_lengths(load.prompt + load.output),
        reuse=_reuse(load),
        clients=_clients(load.client),
        notes=tuple(load.notes),
    )


def _arrivals(load: Workload) -> Arrivals | None:
    if np.isnan(load.arrival).any() or load.span < _SHORTEST:
        return None
    bars, edges = np.histogram(load.arrival, min(_BARS, len(load)), (0.0, load.span))
    return Arrivals(
        span_s=load.span,
        rate=load.rate,
        gap_cv=load.gap_cv,
        together=float((np.diff(load.arrival) == 0).mean()),
        dispersion=tuple(_dispersion(load.arrival, load.span)),
        bar_s=float(edges[1]),
        rate_over_time=tuple((bars / edges[1]).tolist()),
    )


def _dispersion(arrival: Floats, span: float) -> Iterator[tuple[float, float]]:
    """For each window that fits often enough, but not too often to count, over whole windows only."""
    for window in _WINDOWS:
        num_windows = int(span / window)
        if _FEWEST_WINDOWS <= num_windows <= _MOST_WINDOWS:
            places = (arrival[arrival < num_windows * window] / window).astype(np.int64)
            counts = np.bincount(places, minlength=num_windows)[:num_windows]
            yield window, float(counts.var() / counts.mean())


def _lengths(tokens: Ints) -> Lengths:
    p50, p90, p95, p99 = np.percentile(tokens, (50, 90, 95, 99)).tolist()
    return Lengths(
        mean=float(tokens.mean()),
        p50=p50,
        p90=p90,
        p95=p95,
        p99=p99,
        max=int(tokens.max()),
        stretch=tuple(stretch(tokens, batch_size) for batch_size in BATCH_SIZES),
        histogram=tuple(_histogram(tokens)),
    )


def _histogram(tokens: Ints) -> Iterator[tuple[int, int, int]]:
    """Bins from one power of 2 to the next; all below the last few are one bin."""
    last = int(tokens.max()).bit_length() - 1
    first = max(last - _LENGTH_BINS + 1, int(tokens.min()).bit_length() - 1)
    exponents = np.maximum(np.frexp(tokens)[1] - 1, first)
    counts = np.bincount(exponents - first, minlength=last - first + 1)
    for place, count in enumerate(counts.tolist()):
        low = 1 if place == 0 and int(tokens.min()) < 1 << first else 1 << (first + place)
        yield low, (2 << (first + place)) - 1, count


def _reuse(load: Workload) -> Reuse | None:
    hashes = load.columns.hashes
    if hashes is None:
        return None
    blocks = tuple((size, block_reuse(hashes, load.prompt, size)) for size in BLOCK_SIZES)
    return Reuse(hash_tokens=hashes.tokens, entries=entry_reuse(hashes, load.prompt), blocks=blocks)


def _clients(client: Ints | None) -> Clients | None:
    if client is None:
        return None
    counts = np.unique(client, return_counts=True)[1]
    return Clients(count=len(counts), busiest_share=float(counts.max() / len(client)))
