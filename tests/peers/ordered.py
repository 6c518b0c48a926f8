"""Orders of the waiting, within vLLM and within the policies that reserve, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import reference
from batchwright.conformance import VLLM_FLAGS
from batchwright.policies import Edf, Fcfs, Lpm, Orca, Ordered, Priority, Sjf, Srpt, Static, Vllm, Vtc
from peers import Reference
from reference import Plan, Row
from strategies import CLIENTS

KIND = Ordered
BAD: dict[str, tuple[Any, ...]] = {
    "order": (3, "sjf", Vllm(), Sjf, True),
    "policy": (3, "vllm", Ordered(), Vllm),
}
Key = Callable[[Row], tuple[float, ...]]


def settings(random: Random) -> Ordered:
    order = random.choice(
        [None, Fcfs(), Priority(), Sjf(), Sjf(0.5, 3), Sjf("exact"), Srpt(1.0), Lpm(7), Vtc(1.0, 4.0),
         Edf(0.25), Edf((0.5, 2.0))]
    )  # fmt: skip
    return Ordered(order, random.choice([None, Vllm(max_num_seqs=4), Static(8), Orca()]))


def drawn(random: Random, config: dict[str, Any]) -> tuple[Any, Reference]:
    order, key = random.choice(ORDERS)
    if key is not None and random.random() < 0.4:
        size = min(random.choice([1, 2, 3]), config["max_num_seqs"])
        orca = (Orca(size), reference._Orca, (size,))
        static = (Static(size, False), reference._Static, (size, False, False))
        within, kind, arguments = random.choice([orca, static])
        return Ordered(order, within), lambda config: sorted_by(kind)(key, config, *arguments)
    own = config | {"policy": "fcfs"}
    if isinstance(order, Srpt):
        own |= {"async_scheduling": False}
    flags = {flag: own[flag] for flag in VLLM_FLAGS if flag in own}
    within = Vllm(async_scheduling=own["async_scheduling"], **flags)
    kind = {Vtc: FairReference, Lpm: PrefixReference, Srpt: SrptReference}.get(type(order), KeyReference)
    return Ordered(order, within), lambda config: kind(order, key, own)


def by_limit(row: Row) -> tuple[float, ...]:
    return (row.max_tokens - row.sampled, row.arrival, row.index)


def by_deadline(row: Row) -> tuple[float, ...]:
    return (row.arrival + 4.0, row.arrival, row.index)


ORDERS: list[tuple[Any, Key | None]] = [  # without oracles, which a live engine refuses
    (Priority(), lambda row: (row.priority, row.arrival, row.index)),
    (Sjf(), by_limit),
    (Edf(4.0), by_deadline),
    (Srpt(), None),
    (Vtc(1.0, 2.0), None),
    (Vtc(0.0, 1.0), None),
    (Lpm(3), None),
    (Lpm(), None),
]


def sorted_by(kind: Any) -> Any:
    class Sorted(kind):
        def __init__(self, key: Key, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.key = key

        def plan(self, now: float, draining: bool) -> Any:
            self.waiting.sort(key=self.key)
            return super().plan(now, draining)

    return Sorted


class KeyReference(reference.VllmReference):
    """vLLM that admits the least key first."""

    def __init__(self, order: Any, key: Key | None, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.order, self.key = order, key
        self.most_seats: int = config["max_num_seqs"]

    def head(self) -> Row:
        assert self.key is not None
        return min(self.waiting, key=self.key)


class SrptReference(KeyReference):
    """Synchronous.  Who has most left makes room, in a step of its own, in which no prompt goes on."""

    def head(self) -> Row:
        return min(self.waiting, key=by_limit)

    def schedule(self) -> Plan:
        if self.waiting and len(self.running) >= self.most_seats and self.decodes_fit():
            longest = max(self.running, key=by_limit)
            if by_limit(self.head())[0] < by_limit(longest)[0]:
                return self.without(longest)
        return super().schedule()

    def decodes_fit(self) -> bool:
        decodes = [row for row in self.running if not row.is_prefilling]
        need = [self.count(row.computed + 1) - len(row.blocks) for row in decodes]
        return sum(need) <= len(self.pool.free)

    def without(self, victim: Row) -> Plan:
        plan = Plan(preempted=[victim])
        self.preempt(victim)
        decodes = [row for row in self.running if not row.is_prefilling]
        for row in decodes:
            assert self.grow(row, 1)
        plan.parts = [self.advance(row, 1) for row in decodes]
        return plan


class EventReference(KeyReference):
    """An order that is made anew when something has happened."""

    def __init__(self, order: Any, key: Key | None, config: dict[str, Any]) -> None:
        super().__init__(order, key, config)
        self.is_stale = True
        self.seen: list[Row] = []
        self.last: tuple[int, int] = (0, 0)

    def enqueue(self, row: Row) -> None:
        super().enqueue(row)
        self.seen.append(row)
        self.is_stale = True

    def schedule(self) -> Plan:
        now = (sum(row.sampled == row.output for row in self.seen), len(self.running))
        if self.is_stale or now != self.last:
            self.look()
        self.last = now
        decodes = {row for row in self.running if not row.is_prefilling and row.sampled < row.output}
        plan = super().schedule()
        held = decodes - {part.row for part in plan.parts}
        self.is_stale = bool(plan.preempted or held or any(part.is_prefill for part in plan.parts))
        return plan

    def look(self) -> None:
        raise NotImplementedError


class FairReference(EventReference):
    """Virtual token counters, of all requests anew whenever somebody is admitted."""

    def __init__(self, order: Vtc, key: Key | None, config: dict[str, Any]) -> None:
        super().__init__(order, key, config)
        self.charged: Counter[int] = Counter()
        self.tokens: Counter[int] = Counter()
        self.left_last: int | None = None

    def look(self) -> None:
        self.tokens = Counter()
        for row in self.seen:
            self.tokens[row.index % CLIENTS] += row.sampled

    def counter(self, client: int) -> float:
        return self.charged[client] + self.order.output_weight * self.tokens[client]

    def enqueue(self, row: Row) -> None:
        client = row.index % CLIENTS
        waiting = {other.index % CLIENTS for other in self.waiting}
        super().enqueue(row)
        self.look()
        if client in waiting:
            return
        others = waiting or ({self.left_last} if self.left_last is not None else set())
        if others:
            least = min(self.counter(other) for other in others)
            self.charged[client] += max(least - self.counter(client), 0)

    def head(self) -> Row:
        """The counters, then who came first; within a client the preempted in front."""
        heads: dict[int, Row] = {}
        for row in self.waiting:
            heads.setdefault(row.index % CLIENTS, row)
        return min(heads.values(), key=self.turn)

    def turn(self, row: Row) -> tuple[float, ...]:
        return (self.counter(row.index % CLIENTS), row.arrival, row.index)

    def admit(self, row: Row, hit: list[int], tokens: int) -> None:
        super().admit(row, hit, tokens)
        client = self.left_last = row.index % CLIENTS
        if row.preemptions == 0:
            self.charged[client] += self.order.prompt_weight * row.prompt


class PrefixReference(EventReference):
    """Longest cached prefix first, as the cache was when something happened last."""

    def __init__(self, order: Lpm, key: Key | None, config: dict[str, Any]) -> None:
        super().__init__(order, key, config)
        self.ranks: dict[Row, int] = {}

    def look(self) -> None:
        few = len(self.waiting) <= self.order.most
        self.ranks = {row: len(self.lookup(row)) if few else 0 for row in self.waiting}

    def head(self) -> Row:
        return min(self.waiting, key=self.turn)

    def turn(self, row: Row) -> tuple[float, ...]:
        return (-self.ranks[row], self.waiting.index(row))


