"""Dynamic batching: a batch starts when it is not full; nobody joins until it has ended.

`batches` solves the chain of requests waiting when a batch ends, for any service S(j) of a
batch of j; a window (the age of the oldest waiting request at which the batch starts) needs
to know too whether all that wait have come during that batch.  Waits are until the batch starts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from batchwright.errors import InputError
from batchwright.theory.checks import count, not_negative, positive, steady
from batchwright.theory.numbers import Floats, arrivals, erlang_by, stationary

STATES = 4000  # of a chain that is solved outright
SETTLED = 1e-8  # probability that a cut chain may hold in its last tenth
POINTS = 24  # of the quadrature over the age of the oldest


@dataclass(frozen=True)
class Batches:
    """`wait`: mean seconds until the batch starts.  `size`: mean requests of a batch.

    `sizes[j]`: share of the batches that start with j requests.
    """

    wait: float
    size: float
    sizes: Floats


@dataclass(frozen=True)
class _Start:
    """From one state: batches of j start with probability `sizes[j]`, `left` requests stay waiting.

    `idle`: seconds until then; `area`: requests times seconds of waiting until then.
    """

    sizes: Floats
    left: int
    idle: float
    area: float


def batches(
    rate: float,
    service: npt.ArrayLike,
    least: int = 1,
    window: float = 0.0,
    variance: npt.ArrayLike | None = None,
) -> Batches:
    """Batches that start with `least` to b requests, or `window` seconds after their oldest came.

    `service[j-1]`: mean seconds of a batch of j = 1..b.  `variance`: of those seconds (None: constant);
    arrivals in a random service are taken as negative binomial, exact to the second moment.
    `least` > 1 waits without a window; a window of 0 is greedy.
    Exact for constant service if the window is at most the shortest service (then whoever was
    left behind by a full batch is already older).  Source: embedded chain, Neuts 1967; Triton's rule for
    the oldest request.  Raises InputError at load >= 1, on both `least` and `window`, on a window too long.
    """
    seconds = np.asarray(service, float)
    spread = np.zeros(len(seconds)) if variance is None else np.asarray(variance, float)
    _check_batches(rate, seconds, spread, least, window)
    size = max(8 * len(seconds), 64)
    while True:
        chain = _Chain(rate, seconds, spread, least, window, size)
        law = stationary(chain.moves())
        if law[chain.tail].sum() < SETTLED:
            return chain.averages(law)
        if size >= STATES:
            load = rate * float(seconds[-1]) / len(seconds)
            raise InputError(f"load {load:.4g} needs more than {STATES} states; it is too near to 1")
        size = min(2 * size, STATES)


def _check_batches(rate: float, seconds: Floats, spread: Floats, least: int, window: float) -> None:
    positive("rate", rate)
    not_negative("window", window)
    if seconds.ndim != 1 or len(seconds) == 0 or len(spread) != len(seconds):
        raise InputError("service needs one time per batch size, and variance as many; give both for 1..b")
    for value in seconds.tolist():
        positive("service", value)
    count("least", least)
    if least > len(seconds):
        raise InputError(f"least is {least}, but service has {len(seconds)} batch sizes; lower it")
    if least > 1 and window > 0:
        raise InputError(f"least is {least} and window is {window}; a window starts any batch, leave one out")
    if window > seconds.min():
        raise InputError(
            f"window is {window} s, but the chain needs at most the shortest service, {seconds.min()} s; "
            "use formation for a server that is never the bottleneck"
        )
    steady(rate * float(seconds[-1]) / len(seconds), len(seconds) / float(seconds[-1]))


class _Chain:
    """States: 0..K requests wait when a batch ends; K + j: j wait, all younger than the window."""

    def __init__(
        self, rate: float, seconds: Floats, spread: Floats, least: int, window: float, size: int
    ) -> None:
        self.rate, self.seconds, self.spread, self.window = rate, seconds, spread, window
        self.most, self.least, self.size = len(seconds), least, size
        self.tail = slice(size - size // 10, size + 1)
        pairs = zip(seconds.tolist(), spread.tolist(), strict=True)
        self.fresh = [arrivals(rate * s, rate * rate * v, size) for s, v in pairs]
        young = range(1, self.most) if window > 0 else range(0)
        self.starts = [self._old(x) for x in range(size + 1)] + [self._young(x) for x in young]

    def _old(self, waiting: int) -> _Start:
        """The oldest is older than the window, or there is nobody."""
        if waiting >= self.least:
            size = min(waiting, self.most)
            return _Start(np.eye(1, self.most + 1, size)[0], waiting - size, 0.0, 0.0)
        if self.window > 0:
            first = self._timed(1, np.array([self.window]), np.ones(1))
            return _Start(first.sizes, 0, first.idle + 1 / self.rate, first.area)
        missing = np.arange(waiting, self.least)
        idle, area = len(missing) / self.rate, missing.sum() / self.rate
        return _Start(np.eye(1, self.most + 1, self.least)[0], 0, idle, area)

    def _young(self, waiting: int) -> _Start:
        """All have come within the window: the oldest of uniform ages U^(1/j) of it."""
        nodes, weights = np.polynomial.legendre.leggauss(POINTS)
        u, weight = (nodes + 1) / 2, weights / 2
        return self._timed(waiting, self.window * (1 - u ** (1 / waiting)), weight)

    def _timed(self, waiting: int, left: Floats, weight: Floats) -> _Start:
        """`waiting` wait, and the window ends in `left` seconds, or when the batch is full."""
        missing = self.most - waiting
        if missing == 0:
            return _Start(np.eye(1, self.most + 1, self.most)[0], 0, 0.0, 0.0)
        come = erlang_by(missing, self.rate, left) @ weight  # P(k have come before the end), k = 1..
        sizes = np.zeros(self.most + 1)
        sizes[waiting:] = -np.diff(np.concatenate(([1.0], come, [0.0])))
        present = waiting + np.arange(missing)
        return _Start(sizes, 0, float(come.sum()) / self.rate, float(present @ come) / self.rate)

    def moves(self) -> Floats:
        """Transition probabilities."""
        count = len(self.starts)
        moves = np.zeros((count, count))
        for state, start in enumerate(self.starts):
            for size in np.flatnonzero(start.sizes).tolist():
                moves[state] += start.sizes[size] * self._after(start.left, size, count)
        return moves

    def _after(self, left: int, size: int, count: int) -> Floats:
        """The law of the state when a batch of `size` has ended that left `left` waiting."""
        law = np.zeros(count)
        law[left : self.size + 1] = self.fresh[size - 1][: self.size + 1 - left]
        law[self.size] += max(1 - law.sum(), 0.0)
        young = count - self.size - 1
        if left == 0 and young:
            all_young = (self.window / self.seconds[size - 1]) ** np.arange(1, young + 1)
            law[self.size + 1 :] = law[1 : young + 1] * all_young
            law[1 : young + 1] *= 1 - all_young
        return law

    def averages(self, law: Floats) -> Batches:
        """Renewal reward over the cycles from one end of a batch to the next."""
        sizes = sum((p * s.sizes for p, s in zip(law, self.starts, strict=True)), np.zeros(self.most + 1))
        mean = float(np.arange(self.most + 1) @ sizes)
        area = sum(p * self._area(start) for p, start in zip(law.tolist(), self.starts, strict=True))
        return Batches(float(area) / mean, mean, np.asarray(sizes))

    def _area(self, start: _Start) -> float:
        squares = self.seconds**2 + self.spread
        during = start.left * self.seconds + self.rate * squares / 2
        return start.area + float(start.sizes[1:] @ during)


def formation(rate: float, size: int, window: float) -> tuple[float, float]:
    """(mean batch, mean wait in seconds) where the server never makes a batch wait.

    The window runs from the first arrival; the batch starts then, or when it has `size`.  With
    G_k = P(Erlang(k, rate) <= window): batch 1 + sum G_k, wait sum k G_k / (rate batch), k < size.
    Source: renewal reward; Triton's and TF Serving's batch timeout.
    """
    positive("rate", rate)
    count("size", size)
    not_negative("window", window)
    come = erlang_by(size - 1, rate, np.array([window]))[:, 0]
    batch = 1 + float(come.sum())
    return batch, float(np.arange(1, size) @ come) / (rate * batch)


@dataclass(frozen=True)
class Greedy:
    """`latency`: mean seconds, the own batch included; `batch`: mean requests of a batch.

    `idle`: share of the batches that follow an idle time.
    """

    latency: float
    batch: float
    idle: float


def greedy_latency_bound(rate: float, base: float, each: float) -> float:
    """The most that `greedy` can be: min(phi0, phi1), within 0.1 % of it from rate * each = 0.3 on.

        phi0 = (each + base) / (2 (1 - r)) (1 + 2 rate base + (1 - rate base) / (1 + r)),  r = rate each
        phi1 = 3 base / (2 (1 - r)) + each / 2 (r + 2) / (1 - r^2)

    A batch of any size j takes base + each j seconds.  Source: Inoue 2021, Performance Evaluation 147
    (arXiv 1912.06322), theorem 2.  Raises InputError if rate * each >= 1.
    """
    r = _greedy_load(rate, base, each)
    first = (each + base) / (2 * (1 - r)) * (1 + 2 * rate * base + (1 - rate * base) / (1 + r))
    second = 3 * base / (2 * (1 - r)) + each / 2 * (r + 2) / (1 - r * r)
    return min(first, second)


def greedy(rate: float, base: float, each: float) -> Greedy:
    """Batches without limit that start whenever the server is free: exact, from the chain.

    latency = each + base + (1 + 2r)(E[B^2] - E[B]) / (2 rate E[B]), r = rate each; E[B] = (rate base +
    P(B follows an idle time)) / (1 - r).  An engine with slots without limit and outputs of one token.
    Source: Inoue 2021.  Raises InputError if rate * each >= 1, or too near to it.
    """
    r = _greedy_load(rate, base, each)
    sizes = stationary(_greedy_moves(rate, base, each, _greedy_states(rate, base, r)))
    j = np.arange(len(sizes))
    if sizes[-len(sizes) // 10 :].sum() > SETTLED:
        raise InputError(f"load {r:.4g} needs more than {STATES} states; it is too near to 1")
    mean, square = float(j @ sizes), float((j * j) @ sizes)
    latency = each + base + (1 + 2 * r) * (square - mean) / (2 * rate * mean)
    return Greedy(latency, mean, mean * (1 - r) - rate * base)


def _greedy_load(rate: float, base: float, each: float) -> float:
    positive("rate", rate)
    positive("base", base)
    not_negative("each", each)
    steady(rate * each, 1 / each if each else float("inf"))
    return rate * each


def _greedy_states(rate: float, base: float, r: float) -> int:
    mean = max(1.0, rate * base / (1 - r))
    return min(int(40 + mean + 14 * (mean / (1 - r * r)) ** 0.5 + 30 / (1 - r)), STATES)


def _greedy_moves(rate: float, base: float, each: float, size: int) -> Floats:
    """From batches of j to the next one's: those who came meanwhile, or the first after an idle time."""
    moves = np.zeros((size + 1, size + 1))
    for j in range(1, size + 1):
        moves[j] = arrivals(rate * (base + each * j), 0.0, size)
        moves[j, 1] += moves[j, 0]
        moves[j, 0] = 0.0
        moves[j, size] += max(1 - moves[j].sum(), 0.0)
    moves[0, 1] = 1.0
    return moves
