"""Static and dynamic batching as rules of admission, in a scheduler that does the rest.

A rule says how many of the waiting requests may join now; tokens and KV stay with the scheduler.
The same rules cap the admission of vLLM's own scheduler (`engines.vllm`) and that of our `vllm`
policy (`CappedVllm`), so that the simulation predicts what they do in vLLM.

Whoever has been let in is admitted as tokens and KV blocks allow, in this step or a later one, and
is one of those that run until its end, preempted or not; a rule is asked again when all whom it
let in have got their seats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import LimitError, PolicyError
from batchwright.policies.check import DEFAULT_BATCH, check_count, check_number, check_sizes
from batchwright.policies.dynamic import starting
from batchwright.policies.vllm import Vllm, VllmRun
from batchwright.request import Request


class View(Protocol):
    """What a rule sees.  Times in seconds, on one clock; a preempted request runs, and does not wait."""

    @property
    def now(self) -> float: ...
    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting(self) -> int: ...  # at least 1, when a rule is asked
    @property
    def oldest(self) -> float: ...  # when the first of those that wait came
    @property
    def newest(self) -> float: ...  # and the last of them

    def wake_at(self, seconds: float) -> None:
        """Ask again then, at the latest."""


Rule = Callable[[View], int]  # how many of the waiting may join now; more than wait is all


class Admission(Protocol):
    """The settings of a rule."""

    def begin(self, max_num_seqs: int) -> Rule:
        """The rule where at most so many requests run.  Raises LimitError if that is too few."""


@ordinary
@dataclass(frozen=True)
class StaticAdmission:
    """A batch starts when the one before has ended and `batch_size` requests wait.

    `idle`: seconds without a new request after which a smaller batch starts: a server never knows
    that no more requests can come.  No row is padded, and a request leaves when it ends.
    Raises InputError on a value that cannot be.
    """

    batch_size: int | None = None
    idle: float = 5.0

    def __post_init__(self) -> None:
        check_count("static", self, "batch_size", optional=True)
        check_number("static", self, "idle", 0.0, 1e6)

    def begin(self, max_num_seqs: int) -> Rule:
        size = _size("static", "batch_size", self.batch_size, max_num_seqs)
        return StaticRule(size, float(self.idle))


class StaticRule:
    """`StaticAdmission` at work."""

    def __init__(self, batch_size: int, idle: float) -> None:
        self.batch_size = batch_size
        self.idle = idle

    def __call__(self, view: View) -> int:
        if view.num_running > 0:
            return 0
        if view.num_waiting >= self.batch_size:
            return self.batch_size
        deadline = view.newest + self.idle
        if view.now >= deadline:
            return view.num_waiting
        view.wake_at(deadline)
        return 0


@ordinary
@dataclass(frozen=True)
class DynamicAdmission:
    """A batch starts when the one before has ended and it is full, or its window is over.

    The settings and the rule are those of the policy `dynamic`.
    Raises InputError on a value that cannot be.
    """

    max_batch_size: int | None = None
    window: float = 0.25
    preferred_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_count("dynamic", self, "max_batch_size", optional=True)
        check_number("dynamic", self, "window", 0.0, 1e6)
        most = DEFAULT_BATCH if self.max_batch_size is None else self.max_batch_size
        sizes = check_sizes("dynamic", self, "preferred_sizes", most)
        object.__setattr__(self, "preferred_sizes", sizes)

    def begin(self, max_num_seqs: int) -> Rule:
        size = _size("dynamic", "max_batch_size", self.max_batch_size, max_num_seqs)
        sizes = [preferred for preferred in sorted(self.preferred_sizes) if preferred <= size] or [size]
        return DynamicRule(size, float(self.window), sizes)


class DynamicRule:
    """`DynamicAdmission` at work."""

    def __init__(self, max_batch_size: int, window: float, preferred: list[int]) -> None:
        self.max_batch_size = max_batch_size
        self.window = window
        self.preferred = preferred  # ascending

    def __call__(self, view: View) -> int:
        if view.num_running > 0:
            return 0
        deadline = view.oldest + self.window
        size = starting(view.num_waiting, view.now >= deadline, self.max_batch_size, self.preferred)
        if size == 0:
            view.wake_at(deadline)
        return size


def _size(family: str, name: str, value: int | None, max_num_seqs: int) -> int:
    if value is None:
        return min(DEFAULT_BATCH, max_num_seqs)
    if value > max_num_seqs:
        raise LimitError(
            f"{family}: {name} {value} is over max_num_seqs {max_num_seqs}; lower it or raise max_num_seqs"
        )
    return value


class Cap:
    """How many may have a seat: those that run, and those that `rule` has let in since."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.let_in = 0  # of those that wait

    def seats(self, view: View) -> int:
        """What the scheduler may fill now; asks the rule if everyone whom it let in has a seat."""
        waiting = view.num_waiting
        self.let_in = min(self.let_in, waiting)  # one whose client has gone takes no seat
        if self.let_in == 0 and waiting > 0:
            self.let_in = min(self._asked(view), waiting)
        return view.num_running + self.let_in

    def seated(self, count: int) -> None:
        """So many of those let in have got their seats."""
        self.let_in -= count

    def _asked(self, view: View) -> int:
        joining: object = self.rule(view)
        if not isinstance(joining, int) or joining < 0:
            raise PolicyError(
                f"the rule of admission lets {joining!r} requests in; give a whole number of at least 0"
            )
        return joining


@ordinary
@dataclass(frozen=True)
class CappedVllm:
    """vLLM's scheduler with its admission capped, as by `engines.vllm`."""

    admission: Admission
    vllm: Vllm = field(default_factory=Vllm)

    def begin(self, batch: Batch) -> Policy:
        run = self.vllm.begin(batch)
        assert isinstance(run, VllmRun)
        return CappedRun(run, Cap(self.admission.begin(run.seats)), BatchView(batch))


class CappedRun:
    """`CappedVllm` on one batch."""

    def __init__(self, run: VllmRun, cap: Cap, view: BatchView) -> None:
        self.run = run
        self.most = run.seats
        self.cap = cap
        self.view = view

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        self.view.look()
        self.run.seats = min(self.most, self.cap.seats(self.view))
        self.run(b)
        for r in b.chunks:
            if r.admitted == b.tick_count and r.preemptions == 0:
                self.cap.seated(1)
        if b.has_preempted:
            self.view.may_be_preempted = True


class BatchView:
    """A batch, as rules see it."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.may_be_preempted = False  # has anybody ever been?
        self.num_preempted = 0

    def look(self) -> None:
        """Count the preempted ones anew."""
        if self.may_be_preempted:
            self.num_preempted = self.batch.num_waiting - len(self._new())

    def _new(self) -> list[Request]:
        """Those that wait for their first seat."""
        return [r for r in self.batch.waiting.head(self.batch.num_waiting) if r.preemptions == 0]

    @property
    def now(self) -> float:
        return self.batch.now

    @property
    def num_running(self) -> int:
        return len(self.batch.running) + self.num_preempted

    @property
    def num_waiting(self) -> int:
        return self.batch.num_waiting - self.num_preempted

    @property
    def oldest(self) -> float:
        return min([r.arrival for r in self._new()])

    @property
    def newest(self) -> float:
        return max([r.arrival for r in self._new()])

    def wake_at(self, seconds: float) -> None:
        self.batch.wake_at(seconds)
