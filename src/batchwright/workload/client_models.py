"""Loads made of ServeGen client models; `client_draws` says how each client sends.

    servegen("m-small.tar.gz", rate=20)                       an hour of it at 20 requests/s
    servegen("deepseek-r1", start=28800, duration=600)        ten minutes from 8:00, as they were

Rates are those of the clients in the file; the scale that a `rate` needs is the same for all
clients and windows, so that the shares of the clients and the shape of the day stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isfinite
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
_GREATEST_N: Final = 20_000_000  # requests; 1 GB of columns
_ONE_WINDOW: Final = 600.0  # seconds, where there is no second window to tell


@dataclass(frozen=True, eq=False, kw_only=True)
class _Plan:
    """`start`, `end`: seconds of the models' time, over which the rate is meant; `until`: the end at most.

    `length`: of a window.  `share`: of each rate.
    """

    name: str
    clients: list[ClientModel]
    length: float
    start: float
    end: float
    until: float
    seed: int
    share: float = 1.0

    def windows(self) -> Iterator[int]:
        """Those that overlap the time from `start` to `until`."""
        for index, window in enumerate(self.clients[0].windows):
            if window.start < self.until and window.start + self.length > self.start:
                yield index

    def expected(self, end: float) -> float:
        """Requests from `start` to `end`, at the rates of the files."""
        return sum(self._overlap(index, end) * self.rate(index) for index in self.windows())

    def rate(self, index: int) -> float:
        """Requests/s of all clients in a window of the files."""
        return sum(client.windows[index].rate for client in self.clients)

    def _overlap(self, index: int, end: float) -> float:
        start = self.clients[0].windows[index].start
        return max(min(start + self.length, end) - max(start, self.start), 0.0)


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

    `rate`: requests/s in the mean over the load, all clients and windows scaled alike; None: as in
    the files.  `start`, `duration`: seconds of the models' time.  `n`: at most so many requests.
    Defaults: the first window in which anybody sends; as long as `n` takes, else an hour and
    20,000 requests at most.  Raises InputError.
    """
    name = os.fspath(path)
    _check(rate, start, duration, n, seed)
    plan = _plan(name, rate, start, duration, n, seed)
    limit = _USUAL_N if n is None and duration is None else n
    sent, num_empty = _draw(plan, limit)
    is_cut = len(sent.times) == limit
    notes = [*_note_models(plan), _note_span(plan, float(sent.times[-1]) / 1e9 if is_cut else plan.until)]
    if is_cut and n is None:
        notes.append(f"only the first {limit} requests (neither n nor a duration was given)")
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


def _plan(
    name: str, rate: float | None, start: float | None, duration: float | None, n: int | None, seed: int
) -> _Plan:
    clients = read_clients(name)
    length = _window_length(name, clients[0])
    starts = [window.start for window in clients[0].windows]
    last = starts[-1] + length
    first = _first_busy(name, clients) if start is None else start
    seconds, until = _span(last - first, rate, duration, n)
    if not (starts[0] <= first < last and first + until <= last):
        wanted, span = f"{first:g} to {first + until:g}", f"{starts[0]:.0f} to {last:.0f} s"
        raise InputError(f"{name}: seconds {wanted} are not all in its {span}; change start or duration")
    end, until = first + seconds, first + until
    plan = _Plan(name=name, clients=clients, length=length, start=first, end=end, until=until, seed=seed)
    expected = plan.expected(end)
    if not expected:
        span = f"{first:g} to {end:g} s"
        raise InputError(f"{name}: no client sends anything from {span}; change start or duration")
    return plan if rate is None else replace(plan, share=rate * seconds / expected)


def _first_busy(name: str, clients: list[ClientModel]) -> float:
    """The start of the first window in which anybody sends."""
    for index, window in enumerate(clients[0].windows):
        if any(client.windows[index].rate for client in clients):
            return window.start
    raise InputError(f"{name}: no client sends anything; give models with a rate over 0")


def _span(left: float, rate: float | None, duration: float | None, n: int | None) -> tuple[float, float]:
    """Seconds over which the rate is meant, and that the load may take at most."""
    if duration is not None:
        return duration, duration
    if n is not None:
        return (left if rate is None else min(n / rate, left)), left
    seconds = min(left, _USUAL_DURATION, inf if rate is None else _USUAL_N / rate)
    return seconds, seconds


def _window_length(name: str, client: ClientModel) -> float:
    lengths = set(np.diff([window.start for window in client.windows]).tolist()) or {_ONE_WINDOW}
    if len(lengths) > 1 or min(lengths) <= 0:
        raise InputError(f"{name}: its windows are not of one length; give windows at equal distances")
    return float(lengths.pop())


def _draw(plan: _Plan, limit: int | None) -> tuple[Sent, int]:
    """The requests of the plan, and how many of no tokens were left out."""
    parts: list[Sent] = []
    num_found = num_empty = 0
    for index in plan.windows():
        if num_found + plan.rate(index) * plan.length * plan.share > _GREATEST_N:
            raise InputError(f"{plan.name}: over {_GREATEST_N} requests; lower the rate, the duration or n")
        sent = _inside(plan, _window(plan, index))
        is_served = (sent.prompt > 0) & (sent.output > 0)
        parts.append(Sent(*(column[is_served] for column in sent)))
        num_empty += len(is_served) - len(parts[-1].times)
        num_found += len(parts[-1].times)
        if limit is not None and num_found >= limit:
            break
    if not num_found:
        reason = "no request came of it; raise the rate or the duration, or change the seed"
        raise InputError(f"{plan.name}: {reason}")
    return Sent(*(np.concatenate(columns)[:limit] for columns in zip(*parts, strict=True))), num_empty


def _window(plan: _Plan, index: int) -> Sent:
    return joined([sent_by(client, index, plan.length, plan.share, plan.seed) for client in plan.clients])


def _inside(plan: _Plan, sent: Sent) -> Sent:
    first, end = np.searchsorted(sent.times, (plan.start * 1e9, plan.until * 1e9))
    return Sent(*(column[first:end] for column in sent))


def _note_models(plan: _Plan) -> Iterator[str]:
    count = len(plan.clients)
    models = f"ServeGen models of {count} client{'s' if count > 1 else ''} in windows of {plan.length:g} s"
    yield f"{models}: gaps by Gamma or Weibull laws with their CV, prompt and output drawn apart"
    names = {name for client in plan.clients for texts in client.texts.values() for name in texts}
    if "text_tokens" in names:
        yield "a prompt is its text and its images, audio and videos in tokens; encoding them takes no time"
    if "reason_ratio" in names:
        yield "reason_ratio is not read: reasoning and answer are one output"


def _note_span(plan: _Plan, end: float) -> str:
    end = end if end > plan.start else plan.until  # a request at the very start is no span
    rate = plan.expected(end) / (end - plan.start)
    scaled = "" if plan.share == 1 else f", scaled to {rate * plan.share:.4g}"
    span = f"seconds {plan.start:g} to {_seconds(end)} of the models"
    return f"{span}, {rate:.4g} requests/s in the mean{scaled}"


def _seconds(end: float) -> str:
    return f"{end:.0f}" if end >= 100 else f"{end:.3g}"


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
