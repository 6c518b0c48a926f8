"""Shortest first, by predicted output length: `sjf` at admission, `srpt` with preemption.

    key    predicted - generated tokens, at least 0; then who came first

The prediction is that of `max_tokens` (the default: the limit that the client sent), of a predictor
with a lognormal error of `sigma` (`prediction`), of an oracle (sigma `exact`), or of the user's own
callable.  `srpt` also preempts while no seat is free: the running request that has most left, if one
that waits has less.  Who is preempted recomputes, and keeps its tokens.

Source: Schrage and Miller 1966 (SJF and SRPT); Mitzenmacher, ITCS 2020 (predictions).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.batch import LEAVE, Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import InputError
from batchwright.policies.check import check_count, check_number
from batchwright.policies.kv import sampled
from batchwright.prediction import Lengths, Predictor
from batchwright.request import DECODING, PREFILLING, Request

EXACT: Final = "exact"
MOST_SIGMA: Final = 10.0


@ordinary
@dataclass(frozen=True)
class Sjf:
    """`sigma`: of the predictor's lognormal error, or "exact", an oracle; `seed`: of its draws.

    `predict`: tokens of output that the user's own predictor expects of a request.  Without both the
    prediction is `max_tokens`.  Raises InputError on a value that cannot be.
    """

    sigma: float | str | None = None
    seed: int = 0
    predict: Predictor | None = None

    def __post_init__(self) -> None:
        _check(type(self).__name__.lower(), self)

    @property
    def note(self) -> str:
        """What has to be said of the predictions."""
        return _note(self.sigma, self.seed)

    def begin(self, batch: Batch, ask: Policy) -> Policy:
        batch.predictor = _predictor(self)
        batch.order_by(by_remaining)
        return ask


@ordinary
@dataclass(frozen=True)
class Srpt:
    """As `Sjf`, and who has most left makes room for one that has less.

    Raises InputError on a value that cannot be, or in a batch whose requests leave together.
    """

    sigma: float | str | None = None
    seed: int = 0
    predict: Predictor | None = None

    def __post_init__(self) -> None:
        _check(type(self).__name__.lower(), self)

    @property
    def note(self) -> str:
        """What has to be said of the predictions."""
        return _note(self.sigma, self.seed)

    def begin(self, batch: Batch, ask: Policy) -> Policy:
        if batch.on_end != LEAVE:
            raise InputError("srpt: preempts nobody in a batch whose requests leave together; use sjf")
        batch.predictor = _predictor(self)
        batch.order_by(by_remaining)
        return SrptRun(ask)


class SrptRun:
    """Makes room for shorter requests, then asks the policy within."""

    def __init__(self, ask: Policy) -> None:
        self.ask = ask

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        if b.num_waiting > 0 and b.num_running >= b.max_running and b.spare_blocks >= 0:
            self.make_room(b, b.waiting.first())
        if b.edits == 0:
            self.ask(b)

    def make_room(self, b: Batch, r: Request) -> None:
        """Preempt the one that has most left, if `r` has less; `r` is admitted in the next step."""
        running = [one for one in b.running if one.state in (DECODING, PREFILLING)]
        if not running:
            return
        longest = max(running, key=lambda one: (remaining(b, one), one.arrival, one.id))
        if remaining(b, r) < remaining(b, longest):
            b.preempt(longest)


def by_remaining(r: Request) -> tuple[float, ...]:
    """Who has least left, by prediction, then who came first.  For requests that wait."""
    return (max(r.predicted - r.generated, 0.0), r.arrival, r.id)


def remaining(b: Batch, r: Request) -> float:
    """Tokens of output that `r` still lacks, by prediction, whether it waits or runs."""
    return max(r.predicted - sampled(b, r), 0.0)


def _limit(r: Request) -> float:
    return float(r.max_tokens)


def _predictor(flags: Sjf | Srpt) -> Predictor:
    if flags.predict is not None:
        return flags.predict
    if flags.sigma is None:
        return _limit
    return Lengths(0.0 if isinstance(flags.sigma, str) else float(flags.sigma), flags.seed)


def _check(name: str, flags: Sjf | Srpt) -> None:
    if flags.sigma is not None and flags.sigma != EXACT:
        check_number(name, flags, "sigma", 0.0, MOST_SIGMA)
    check_count(name, flags, "seed", least=0)
    if flags.predict is not None and not callable(flags.predict):
        raise InputError(f"{name}: predict is {flags.predict!r}, but must be a function of a request")
    if flags.predict is not None and flags.sigma is not None:
        raise InputError(f"{name}: sigma and predict are both given; leave one of them out")


def _note(sigma: float | str | None, seed: int) -> str:
    if sigma is None:
        return ""
    if sigma == EXACT or sigma == 0:
        return "knows how long every output will be: an oracle"
    return f"predicts outputs with a lognormal error of sigma {sigma:g} (seed {seed}), half of them too short"
