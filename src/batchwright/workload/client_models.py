"""Loads made of ServeGen client models; `client_draws` says how each client sends.

    servegen("m-small.tar.gz", rate=20)                       an hour of it at 20 requests/s
    servegen("deepseek-r1", start=28800, duration=600)        ten minutes from 8:00, as they were

Rates are those of the clients in the file; the scale that a `rate` needs is the same for all
clients and windows, so that the shares of the clients and the shape of the day stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np

from batchwright.errors import InputError
from batchwright.workload.checks import check_seed
from batchwright.workload.client_draws import Sent, joined, sent_by
from batchwright.workload.clients import ClientModel, read_clients
from batchwright.workload.columns import Columns
from batchwright.workload.load import Workload
from batchwright.workload.made import remade
from batchwright.workload.token_limit import token_limit

_USUAL_DURATION: Final = 3600.0  # seconds
_USUAL_N: Final = 20_000  # requests
_GREATEST_N: Final = 20_000_000  # requests of a load, or of one window: 1 GB of columns
_ONE_WINDOW: Final = 600.0  # seconds, where there is no second window to tell


@dataclass(frozen=True, eq=False, kw_only=True)
class _Plan:
    """`start`, `end`: seconds of the models' time.  `length`: of a window.  `share`: of each rate."""

    name: str
    clients: list[ClientModel]
    length: float
    start: float
    end: float
    share: float
    seed: int

    def windows(self) -> Iterator[int]:
        """Those that overlap the span."""
        for index, window in enumerate(self.clients[0].windows):
            if window.start < self.end and window.start + self.length > self.start:
                yield index

    def expected(self) -> float:
        """Requests in the span, at the rates of the files."""
        return sum(self._overlap(index) * self.rate(index) for index in self.windows())

    def rate(self, index: int) -> float:
        """Requests/s of all clients in a window of the files."""
        return sum(client.windows[index].rate for client in self.clients)

    def _overlap(self, index: int) -> float:
        start = self.clients[0].windows[index].start
        return min(start + self.length, self.end) - max(start, self.start)


@remade
def servegen(
    path: str | os.PathLike[str],
    *,
    rate: float | None = None,
    start: float | None = None,
    duration: float | None = None,
    n: int | None = None,
    seed: int = 0,
) -> Workload:
    """A load of the clients in a folder or tar of ServeGen.

    `rate`: requests/s in the mean over the span; None: as in the files.  `start`, `duration`:
    seconds of the models' time; None: the first window in which anybody sends, and an hour.
    `n`: at most so many requests; None: 20,000, or all if a duration was given.
    Raises InputError.
    """
    name = os.fspath(path)
    _check(rate, start, duration, n, seed)
    plan = _plan(name, rate, start, duration, seed)
    limit = _USUAL_N if n is None and duration is None else n
    _check_size(plan, limit)
    sent, num_empty = _draw(plan, limit)
    notes = [*_note_models(plan), *_note_span(plan, limit, n, len(sent.times))]
    if num_empty:
        notes.append(f"{num_empty} requests of 0 tokens are left out")
    columns = Columns(
        arrival=(sent.times - sent.times[0]) / 1e9,
        prompt=sent.prompt,
        output=sent.output,
        client=sent.client,
        notes=tuple(notes),
    )
    return Workload(os.path.basename(name.rstrip("/")) or name, columns, token_limit(columns, None))


def _plan(name: str, rate: float | None, start: float | None, duration: float | None, seed: int) -> _Plan:
    clients = read_clients(name)
    length = _window_length(name, clients[0])
    starts = [window.start for window in clients[0].windows]
    last = starts[-1] + length
    busy = [start for index, start in enumerate(starts) if any(c.windows[index].rate for c in clients)]
    if not busy:
        raise InputError(f"{name}: no client sends anything; give models with a rate over 0")
    first = busy[0] if start is None else start
    end = min(first + _USUAL_DURATION, last) if duration is None else first + duration
    if not (starts[0] <= first < last and end <= last):
        span = f"{starts[0]:.0f} to {last:.0f} s"
        raise InputError(
            f"{name}: seconds {first:g} to {end:g} are not all in its {span}; change start or duration"
        )
    plan = _Plan(name=name, clients=clients, length=length, start=first, end=end, share=1.0, seed=seed)
    expected = plan.expected()
    if not expected:
        raise InputError(
            f"{name}: no client sends anything from {first:g} to {end:g} s; change start or duration"
        )
    share = 1.0 if rate is None else rate * (end - first) / expected
    return _Plan(name=name, clients=clients, length=length, start=first, end=end, share=share, seed=seed)


def _window_length(name: str, client: ClientModel) -> float:
    lengths = set(np.diff([window.start for window in client.windows]).tolist()) or {_ONE_WINDOW}
    if len(lengths) > 1 or min(lengths) <= 0:
        raise InputError(f"{name}: its windows are not of one length; give windows at equal distances")
    return float(lengths.pop())


def _draw(plan: _Plan, limit: int | None) -> tuple[Sent, int]:
    """The requests of the span, and how many of no tokens were left out."""
    parts: list[Sent] = []
    num_found = num_empty = 0
    for index in plan.windows():
        sent = _inside(plan, _window(plan, index))
        is_served = (sent.prompt > 0) & (sent.output > 0)
        parts.append(Sent(*(column[is_served] for column in sent)))
        num_empty += len(is_served) - len(parts[-1].times)
        num_found += len(parts[-1].times)
        if limit is not None and num_found >= limit:
            break
    if not num_found:
        raise InputError(
            f"{plan.name}: no request came of it; raise the rate or the duration, or change the seed"
        )
    sent = Sent(*(np.concatenate(columns)[:limit] for columns in zip(*parts, strict=True)))
    return sent, num_empty


def _window(plan: _Plan, index: int) -> Sent:
    return joined([sent_by(client, index, plan.length, plan.share, plan.seed) for client in plan.clients])


def _inside(plan: _Plan, sent: Sent) -> Sent:
    first, end = np.searchsorted(sent.times, (plan.start * 1e9, plan.end * 1e9))
    return Sent(*(column[first:end] for column in sent))


def _note_models(plan: _Plan) -> Iterator[str]:
    models = f"ServeGen models of {len(plan.clients)} clients in windows of {plan.length:g} s"
    yield f"{models}: gaps by Gamma or Weibull laws with their CV, prompt and output drawn apart"
    names = {name for client in plan.clients for texts in client.texts.values() for name in texts}
    if "text_tokens" in names:
        yield "a prompt is its text and its images, audio and videos in tokens; encoding them takes no time"
    if "reason_ratio" in names:
        yield "reason_ratio is not read: reasoning and answer are one output"


def _note_span(plan: _Plan, limit: int | None, n: int | None, found: int) -> Iterator[str]:
    seconds = plan.end - plan.start
    rate = plan.expected() / seconds
    scaled = "" if plan.share == 1 else f", scaled to {rate * plan.share:.4g}"
    yield f"seconds {plan.start:g} to {plan.end:g} of the models, {rate:.4g} requests/s in the mean{scaled}"
    if found == limit and n is None:
        yield f"only the first {limit} requests (neither n nor a duration was given)"


def _check(rate: float | None, start: float | None, duration: float | None, n: int | None, seed: int) -> None:
    for name, value, least in (
        ("rate", rate, "over 0"),
        ("duration", duration, "over 0"),
        ("start", start, "at least 0"),
    ):
        if value is None:
            continue
        is_number = isinstance(value, int | float) and isfinite(value)
        if not is_number or value < 0 or (value == 0 and least == "over 0"):
            raise InputError(f"{name} is {value!r}; give a number {least}")
    if n is not None and (type(n) is not int or not 0 < n <= _GREATEST_N):
        raise InputError(f"n is {n!r}; give a whole number of 1 to {_GREATEST_N}")
    check_seed(seed)


def _check_size(plan: _Plan, limit: int | None) -> None:
    """Neither the load nor one window may be more than memory holds."""
    most = max(plan.rate(index) for index in plan.windows()) * plan.length * plan.share
    if most > _GREATEST_N:
        raise InputError(
            f"{plan.name}: about {most:.3g} requests in one window, over {_GREATEST_N}; lower the rate"
        )
    wanted = plan.expected() * plan.share
    if limit is None and wanted > _GREATEST_N:
        raise InputError(
            f"{plan.name}: about {wanted:.3g} requests, over {_GREATEST_N}; give n, or lower the rate"
        )
