"""Compare policies on one workload: the same requests, limits and cost for all (see `settled`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from batchwright.client_report import client_table
from batchwright.cluster import Cluster, MakesCluster, Replicas, counting_engine
from batchwright.cluster import server as server_of
from batchwright.contract import Begins, Policy
from batchwright.cost import CostModel
from batchwright.errors import InputError, nearest
from batchwright.interval import Interval
from batchwright.limits import Limits
from batchwright.plain_table import WIDTH, table_text
from batchwright.policies import AUTO, Ordered, Static
from batchwright.replications import Estimates, check_loads, loads, loads_of_all_lengths, method_of, num_loads
from batchwright.report import prose, tables
from batchwright.report_json import as_json
from batchwright.run import ReplicatedRun, Run
from batchwright.settled import settle
from batchwright.simulator import Simulator
from batchwright.slo import Slo, read_slo
from batchwright.workload import Workload

SLICES = 200  # of the arrivals, after which progress is reported

DEFAULTS: Final = {"static": "static", "dynamic": "dynamic", "continuous": "continuous"}

Served = Policy | Begins | MakesCluster  # on one server, or on several
Progress = Callable[[str, float], None]  # policy, share of the arrivals that have come
Guard = Callable[[str], AbstractContextManager[None]]  # policy


def _no_guard(policy: str) -> AbstractContextManager[None]:
    return nullcontext()


class UnknownRunError(InputError, KeyError):
    """No run has this name."""

    __str__ = Exception.__str__  # KeyError would show it in quotes


@dataclass(frozen=True, repr=False)
class Runs(Mapping[str, Run]):
    """The runs of a comparison on its first load, by the name of the policy.

    `limits`: those that were used.  `estimates`: of all loads that were run, with intervals.
    """

    load: Workload
    limits: Limits
    runs: dict[str, Run]
    estimates: Estimates

    def __getitem__(self, name: str) -> Run:
        if name not in self.runs:
            raise UnknownRunError(f"no run is called {name!r}{nearest(name, self.runs)}")
        return self.runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        return f"<Runs of {', '.join(self.runs)} on {self.load.name}; print(runs) shows the table>"

    def __str__(self) -> str:
        return self.table()

    @property
    def slo(self) -> Slo | None:
        """What attainment and goodput are of."""
        return self.estimates.slo

    def difference(self, a: str, b: str, metric: str) -> Interval:
        """How much higher `metric`, such as `ttft_s.p99`, is for `a` than for `b`, paired, at 95 %."""
        return self.estimates.difference(a, b, metric)

    def winner(self, metric: str) -> str | None:
        """The policy that is clearly better than every other one; None if there is none."""
        return self.estimates.winner(metric)

    def table(self) -> str:
        """The numbers side by side, what they alone do not say, and one paragraph, as text."""
        of_clients = client_table(self.runs)
        shown = [*tables(self.estimates, WIDTH), *([] if of_clients is None else [of_clients])]
        return "\n\n".join([*map(table_text, shown), prose(self.estimates, WIDTH)])

    def to_json(self) -> dict[str, Any]:
        """The numbers, with units in the names; the schema is in docs/json.md."""
        return as_json(self.load, self.limits, self.estimates)


def compare(
    load: Workload,
    cost: CostModel,
    limits: Limits | None = None,
    policies: Mapping[str, Served | str] | None = None,
    progress: Progress | None = None,
    *,
    repeat: int = 1,
    slo: Slo | str | None = None,
    guard: Guard = _no_guard,
) -> Runs:
    """Run every policy on `load`.  A policy may be its text, such as `vllm@0.19`, or replicas of one.

    What `limits` leaves open is taken from the cost and the loads (see `settle`).
    `repeat`: so many loads in all, made with other seeds; beside a trace, so many resamples of it.
    `guard`: a context in which the policy of that name runs.
    Raises LimitError if the KV cache cannot hold one request, InputError if no policy is given.
    """
    chosen = DEFAULTS if policies is None else policies
    if not chosen:
        raise InputError("no policy is given; give some by name, or None for static, dynamic and continuous")
    check_loads(load, repeat)
    objectives = read_slo(slo) if isinstance(slo, str) else slo
    made = {name: server_of(policy) if isinstance(policy, str) else policy for name, policy in chosen.items()}
    engine = counting_engine(made.values())
    settled = settle(limits or Limits(), cost, loads_of_all_lengths(load, repeat), engine)
    return _Comparison(cost, settled, made, objectives, guard).run(load, repeat, progress)


class _Comparison:
    """The policies of a comparison, and what they gave so far."""

    def __init__(
        self,
        cost: CostModel,
        limits: Limits,
        policies: dict[str, Served],
        slo: Slo | None,
        guard: Guard,
    ) -> None:
        self.cost = cost
        self.limits = limits
        self.policies = policies
        self.slo = slo
        self.guard = guard
        self.values: dict[str, list[dict[str, float]]] = {name: [] for name in policies}

    def run(self, load: Workload, repeat: int, progress: Progress | None) -> Runs:
        number = num_loads(load, repeat)
        first: dict[str, Run] = {}
        first_skip = 0
        digest = sha256()
        for i, replicate in enumerate(loads(load, repeat)):
            part = None if progress is None else _part_of(progress, i, number)
            found = self._runs(replicate, part)
            skip = self._estimate(found)
            digest.update(replicate.digest.encode())
            if i == 0:
                first, first_skip = found, skip
        method = method_of(load, repeat)
        estimates = Estimates(method, self.values, first, first_skip, digest.hexdigest(), self.slo)
        for one in first.values():
            one.siblings = estimates
        return Runs(load, self.limits, first, estimates)

    def _runs(self, load: Workload, progress: Progress | None) -> dict[str, Run]:
        """One run of every policy; a batch size that is found on the first load stays."""
        found = {}
        for name, policy in self.policies.items():
            with self.guard(name):
                found[name] = run(name, policy, load, self.cost, self.limits, progress)
            self.policies[name] = found[name].policy or policy
        return found

    def _estimate(self, runs: dict[str, Run]) -> int:
        """All leave out the same first requests, the most that one of them needs as warm-up."""
        skip = max(run.warm_up() for run in runs.values())
        for name, run in runs.items():
            self.values[name].append(run.estimates(self.slo, skip))
        return skip


def run(
    name: str,
    policy: Served,
    load: Workload,
    cost: CostModel,
    limits: Limits,
    progress: Progress | None = None,
) -> Run:
    """Run one policy on `load`; `static(batch_size="auto")` with its best batch size."""
    if isinstance(policy, Static) and policy.batch_size == AUTO:
        return _best_static(name, policy, load, cost, limits, progress)
    simulator = _simulator(policy, cost, limits)
    simulator.feed(load.requests(limits.block_size, prefix=limits.enable_prefix_caching))
    if progress is not None and not load.has_followers:
        for i in range(1, SLICES):
            simulator.advance(load.span * i / SLICES)
            progress(name, i / SLICES)
    simulator.advance()
    if progress is not None:
        progress(name, 1.0)
    if isinstance(simulator, Cluster):
        found: Run = ReplicatedRun(name, load, simulator)
    else:
        found = Run(name, load, simulator)
    found.policy = policy
    if isinstance(policy, Ordered | Replicas) and policy.note:
        found.note = f"{found.note or name}{'; ' if found.note else ': '}{policy.note}"
    return found


def _simulator(policy: Served, cost: CostModel, limits: Limits) -> Simulator | Cluster:
    if isinstance(policy, MakesCluster):
        return policy.cluster(cost, limits)
    return Simulator(policy, cost, limits)


def _best_static(
    name: str,
    policy: Static,
    load: Workload,
    cost: CostModel,
    limits: Limits,
    progress: Progress | None,
) -> Run:
    """The run with the lowest mean E2E over batch sizes 1, 2, 4... and `max_num_seqs`."""
    sizes = [1 << i for i in range(limits.max_num_seqs.bit_length())]
    if sizes[-1] < limits.max_num_seqs:
        sizes.append(limits.max_num_seqs)
    best: Run | None = None
    for i, size in enumerate(sizes):
        part = None if progress is None else _part_of(progress, i, len(sizes))
        found = run(name, replace(policy, batch_size=size), load, cost, limits, part)
        if best is None or found.summary.e2e.mean < best.summary.e2e.mean:
            best, chosen = found, size
    assert best is not None
    tried = ", ".join(str(size) for size in sizes)
    best.note = f"{name}: batch_size is {chosen}, which has the lowest mean E2E of {tried}"
    return best


def _part_of(progress: Progress, part: int, parts: int) -> Progress:
    return lambda name, share: progress(name, (part + share) / parts)
