"""Static and dynamic batching as rules of admission, in a scheduler that does the rest.

A rule says how many of the waiting requests may join now; tokens and KV stay with the scheduler.
The same rules cap the admission of vLLM's own scheduler (`engines.vllm`) and that of our `vllm`
policy (`CappedVllm`), so that the simulation predicts what they do in vLLM.

Whoever has been let in is admitted as tokens and KV blocks allow, in this step or a later one.  For
the rule it runs from then to its end, preempted or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import PolicyError
from batchwright.policies.check import batch_size, check_count, check_number
from batchwright.policies.dynamic import Dynamic, starting
from batchwright.policies.vllm import Vllm, VllmRun
from batchwright.request import Request


class Host(Protocol):
    """A scheduler whose admission is capped.  Times in seconds, on one clock."""

    @property
    def now(self) -> float: ...
    @property
    def num_seated(self) -> int: ...  # have a seat, or had one until they were preempted
    @property
    def num_unseated(self) -> int: ...  # have never had one
    def arrivals(self) -> list[float]: ...  # of the latter, in the order in which they will get one
    def wake_at(self, seconds: float) -> None: ...


class View:
    """What a rule sees.  Times in seconds, on one clock."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.let_in = 0  # by the rule, and without a seat yet

    @property
    def now(self) -> float:
        return self._host.now

    @property
    def num_running(self) -> int:
        """Those that have been let in and have not ended."""
        return self._host.num_seated + self.let_in

    @property
    def num_waiting(self) -> int:
        """Those that have not been let in; at least 1 when a rule is asked."""
        return self._host.num_unseated - self.let_in

    @property
    def oldest(self) -> float:
        """When the one came that has waited longest."""
        return min(self._host.arrivals()[self.let_in :])

    @property
    def newest(self) -> float:
        """When the last one came."""
        return max(self._host.arrivals()[self.let_in :])

    def wake_at(self, seconds: float) -> None:
        """Ask again then, at the latest."""
        self._host.wake_at(seconds)


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
        size = batch_size("static", "batch_size", self.batch_size, max_num_seqs)
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
        object.__setattr__(self, "preferred_sizes", self._policy.preferred_sizes)

    @property
    def _policy(self) -> Dynamic:
        return Dynamic(self.max_batch_size, self.window, self.preferred_sizes)

    def begin(self, max_num_seqs: int) -> Rule:
        size, preferred = self._policy.sizes(max_num_seqs)
        return DynamicRule(size, float(self.window), preferred)


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
        ready = min(view.num_waiting, self.max_batch_size)
        size = starting(ready, self.window, view.now >= deadline, self.preferred)
        if size == 0:
            view.wake_at(deadline)
        return size


class Cap:
    """How many may have a seat in `host`: those that run, and those that `rule` has let in since."""

    def __init__(self, rule: Rule, host: Host) -> None:
        self._rule: Callable[[View], object] = rule  # the user's, so its answer is checked
        self._host = host
        self._view = View(host)

    def seats(self) -> int:
        """What the scheduler may fill now.  Raises PolicyError if the rule answers no count."""
        view = self._view
        view.let_in = min(view.let_in, self._host.num_unseated)  # one whose client has gone takes no seat
        if view.num_waiting > 0:
            joining = self._rule(view)
            if not isinstance(joining, int) or joining < 0:
                raise PolicyError(
                    f"the rule of admission lets {joining!r} requests in; give a whole number of at least 0"
                )
            view.let_in += min(joining, view.num_waiting)
        return view.num_running

    def seated(self, count: int) -> None:
        """So many have got their first seat; one may have overtaken a preempted request, by priority."""
        self._view.let_in = max(self._view.let_in - count, 0)


@ordinary
@dataclass(frozen=True)
class CappedVllm:
    """vLLM's scheduler with its admission capped, as by `engines.vllm`."""

    admission: Admission
    vllm: Vllm = field(default_factory=Vllm)

    def begin(self, batch: Batch) -> Policy:
        run = self.vllm.begin(batch)
        assert isinstance(run, VllmRun)
        return CappedRun(run, self.admission.begin(run.seats), batch)


class CappedRun:
    """`CappedVllm` on one batch."""

    def __init__(self, run: VllmRun, rule: Rule, batch: Batch) -> None:
        self.run = run
        self.most = run.seats
        self.host = BatchHost(batch)
        self.cap = Cap(rule, self.host)

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        self.host.look()
        self.run.seats = min(self.most, self.cap.seats())
        self.run(b)
        for r in b.chunks:
            if r.admitted == b.tick_count and r.preemptions == 0:
                self.cap.seated(1)
        if b.has_preempted:
            self.host.may_have_preempted = True


class BatchHost:
    """A batch whose admission is capped."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.may_have_preempted = False  # has anybody ever lost a seat?
        self.num_preempted = 0  # of those that wait

    def look(self) -> None:
        """Count the preempted ones anew."""
        if self.may_have_preempted:
            self.num_preempted = self.batch.num_waiting - len(self._unseated())

    def _unseated(self) -> list[Request]:
        return [r for r in self.batch.waiting.head(self.batch.num_waiting) if r.preemptions == 0]

    @property
    def now(self) -> float:
        return self.batch.now

    @property
    def num_seated(self) -> int:
        return len(self.batch.running) + self.num_preempted

    @property
    def num_unseated(self) -> int:
        return self.batch.num_waiting - self.num_preempted

    def arrivals(self) -> list[float]:
        return [r.arrival for r in self._unseated()]

    def wake_at(self, seconds: float) -> None:
        self.batch.wake_at(seconds)
