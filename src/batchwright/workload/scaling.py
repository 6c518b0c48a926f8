"""Loads made of others: at another rate, with other lengths, a part of one, or one several times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from batchwright.errors import InputError
from batchwright.request import LONGEST
from batchwright.workload.bootstrap import apart, gaps_before
from batchwright.workload.checks import GREATEST_N, check_rate, check_seed, check_whole, is_finite
from batchwright.workload.columns import LONGEST_SPAN, Columns, Floats, Ints
from batchwright.workload.made import Made, changed
from batchwright.workload.streams import ARRIVALS, SAMPLE, stream, sum_gaps
from batchwright.workload.token_limit import token_limit

if TYPE_CHECKING:
    from batchwright.workload.load import Workload

_GREATEST_FACTOR: Final = 1e6


def at_rate(load: Workload, rate: float) -> Workload:
    """The same requests at `rate` per second; see `Workload.at_rate`."""
    check_rate("rate", rate)
    _refuse_followers(load, "has no rate of its own: change its clients, think time or sessions")
    if len(load) == 1:
        raise InputError(f"{load.name}: a single request has no rate; give at least 2")
    if load.span == 0:
        return _spread_out(load, rate)
    note = f"time is scaled from {load.rate:.4g} to {rate:g} requests/s"
    arrival = _checked(load.arrival * (load.rate / rate))
    return changed(load, at_rate, rate, columns=replace(load.columns, arrival=arrival).noted(note))


def _spread_out(load: Workload, rate: float) -> Workload:
    """Poisson arrivals for a load that comes all at once."""
    if load.made is None:
        return spread_out(load=load, rate=rate, seed=load.seed)
    return changed(load, at_rate, rate, columns=_poisson(load, rate, load.seed))


def spread_out(*, load: Workload, rate: float, seed: int) -> Workload:
    """`load`, which comes all at once, with Poisson arrivals made from `seed`."""
    made = Made(function=spread_out, arguments={"load": load, "rate": rate})
    return replace(load, columns=_poisson(load, rate, seed), made=made, seed=seed)


def _poisson(load: Workload, rate: float, seed: int) -> Columns:
    arrival = sum_gaps(stream(seed, ARRIVALS).exponential(1 / rate, len(load) - 1))
    note = f"Poisson arrivals at {rate:g} requests/s instead of all at once"
    return replace(load.columns, arrival=arrival, has_arrivals=True).noted(note)


def scaled(load: Workload, rate: float, time: float, prompt: float, output: float) -> Workload:
    """The same requests with rate, times and lengths multiplied; see `Workload.scaled`."""
    factors = {"rate": rate, "time": time, "prompt": prompt, "output": output}
    for name, factor in factors.items():
        _check_factor(name, factor)
    said = [f"{name} x {factor:g}" for name, factor in factors.items() if factor != 1]
    columns = load.columns
    if columns.hashes is not None and columns.hashes.covered is not None and not prompt == output == 1:
        raise InputError(
            f"{load.name}: a prompt of a session holds the answers before it, so its lengths cannot be "
            "scaled apart; give sessions() other lengths"
        )
    think = None if columns.think is None else columns.think * (time / rate)
    columns = replace(columns, arrival=_checked(columns.arrival * (time / rate)), think=think)
    columns = _scale_outputs(_scale_prompts(load.name, columns, prompt), output)
    limit = load.token_limit if output == 1 else token_limit(columns, load.token_limit.asked)
    if said:
        columns = columns.noted(f"scaled: {', '.join(said)}")
    return changed(load, scaled, rate, time, prompt, output, columns=columns, limit=limit)


def _scale_prompts(name: str, columns: Columns, factor: float) -> Columns:
    prompt, hashes = _times(columns.prompt, factor), columns.hashes
    if hashes is not None and factor > 1:
        raise InputError(
            f"{name}: prompts with prefix hashes cannot grow by {factor:g}, for nobody knows what the new "
            "tokens share; scale them by at most 1"
        )
    if hashes is not None:
        counts = np.minimum(-(-prompt // hashes.tokens), hashes.counts)
        hashes = hashes.first(counts, np.arange(len(prompt)))
    return replace(columns, prompt=prompt, hashes=hashes)


def _scale_outputs(columns: Columns, factor: float) -> Columns:
    limit = columns.max_tokens
    return replace(
        columns,
        output=_times(columns.output, factor),
        max_tokens=None if limit is None else _times(limit, factor),
    )


def between(load: Workload, start: float, end: float) -> Workload:
    """The requests that arrive in a window; see `Workload.between`."""
    if not start < end:
        raise InputError(f"{load.name}: from {start} s to {end} s is no time; give a start before the end")
    until = "its end" if end == inf else f"{end:g} s"
    first = _root_arrivals(load)
    rows = ((first >= start) & (first < end)).nonzero()[0]
    if len(rows) == 0:
        raise InputError(
            f"{load.name}: no request arrives from {start:g} s to {until}; its arrivals are from 0 to "
            f"{first.max():g} s"
        )
    note = f"only the {len(rows)} requests of {len(load)} from {start:g} s to {until}, which start at 0"
    return _part(load, rows, between, start, end, note=note)


def sample(load: Workload, share: float, seed: int) -> Workload:
    """A random part; see `Workload.sample`."""
    check_seed(seed)
    if not is_finite(share) or not 0 < share <= 1:
        raise InputError(f"{load.name}: a share of {share!r} is asked for; give a number over 0, up to 1")
    roots, place = np.unique(_roots(load), return_inverse=True)
    count = max(round(share * len(roots)), 1)
    is_chosen = np.zeros(len(roots), np.bool_)
    is_chosen[stream(seed, SAMPLE).permutation(len(roots))[:count]] = True
    rows = is_chosen[place.reshape(-1)].nonzero()[0]
    note = f"a sample of {len(rows)} requests of {len(load)}, seed {seed}"
    return _part(load, rows, sample, share, seed, note=note)


def tiled(load: Workload, times: int) -> Workload:
    """The requests several times; see `Workload.tiled`."""
    _refuse_followers(load, "cannot be repeated: make it with a greater n")
    check_whole("times", times, 1, GREATEST_N // len(load))
    rows = np.tile(np.arange(len(load)), times)
    period = load.span + float(gaps_before(load.arrival)[0])
    arrival = np.repeat(period * np.arange(times), len(load)) + load.arrival[rows]
    columns = load.columns.take(rows)
    hashes = None if columns.hashes is None else apart(columns.hashes, rows, load.columns.hashes)
    columns = replace(columns, arrival=_checked(arrival), hashes=hashes)
    if times > 1:
        columns = columns.noted(f"the {len(load)} requests come {times} times, every {period:.4g} s")
    return changed(load, tiled, times, columns=columns, limit=load.token_limit.take(rows))


# --- inside ---------------------------------------------------------------------------


def _part(
    load: Workload, rows: Ints, change: Callable[..., Workload], *arguments: float, note: str
) -> Workload:
    columns = load.columns.take(rows)
    known = columns.arrival[~np.isnan(columns.arrival)]
    columns = replace(columns, arrival=columns.arrival - known[0])
    if len(rows) < len(load):
        columns = columns.noted(note)
    return changed(load, change, *arguments, columns=columns, limit=load.token_limit.take(rows))


def _roots(load: Workload) -> Ints:
    """For each request the first one of those that it follows, itself if it follows none."""
    rows = np.arange(len(load))
    after = load.columns.after
    if after is None:
        return rows
    before = np.where(after < 0, rows, after)
    while (before[before] != before).any():  # twice as far back every time
        before = before[before]
    return before


def _root_arrivals(load: Workload) -> Floats:
    times: Floats = load.arrival[_roots(load)]
    return times


def _refuse_followers(load: Workload, why: str) -> None:
    if load.has_followers:
        raise InputError(f"{load.name}: requests follow others, so it {why}")


def _check_factor(name: str, factor: float) -> None:
    if not is_finite(factor) or not 0 < factor <= _GREATEST_FACTOR:
        raise InputError(f"{name} is to be multiplied by {factor!r}; give a number over 0, up to 1e6")


def _times(tokens: Ints, factor: float) -> Ints:
    if factor == 1:
        return tokens
    result = np.maximum(np.rint(tokens * factor), 1)
    if result.max() > LONGEST:
        raise InputError(
            f"a length of {int(tokens.max())} tokens times {factor:g} is over {LONGEST}; lower the factor"
        )
    tokens = result.astype(np.int64)
    return tokens


def _checked(arrival: Floats) -> Floats:
    last = float(np.nanmax(arrival))
    if last > LONGEST_SPAN:
        late = f"the last request would come at {last:.3g} s, over {LONGEST_SPAN:.3g} s"
        raise InputError(f"{late}; raise the rate, or take fewer")
    return arrival
