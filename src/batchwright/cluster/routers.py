"""Routers by name: which replica gets a request that comes.

    round_robin     one after the other
    random          any, all alike
    least_loaded    the one with the least load
    power_of_two    the one with the less load of two drawn at random
    prefix_aware    the one with the longest cached prefix, unless the load is too uneven
    central         none: requests wait in one queue, and a replica takes the next when it has a seat

The load of a replica is its `requests` (sent there, not ended: least connections) or its `tokens`
(those that prefills have still to compute there).  Equal loads go to the lower number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random as Generator
from typing import Final

from batchwright.cluster.replica import Replica
from batchwright.config import ordinary
from batchwright.policies.check import check_choice, check_count, check_number
from batchwright.request import Request

MEASURES: Final = ("requests", "tokens")
NOBODY: Final = -1  # the request waits in the central queue


@ordinary
@dataclass(frozen=True, kw_only=True)
class RoundRobin:
    """Replicas 0, 1, 2 ... and 0 again, whatever their load.  It reads none of them."""

    def begin(self, num_replicas: int) -> RoundRobinRun:
        return RoundRobinRun(num_replicas)


class RoundRobinRun:
    """Round robin in one run."""

    def __init__(self, num_replicas: int) -> None:
        self.num_replicas = num_replicas
        self.last = -1

    def __call__(self, r: Request, replicas: Sequence[Replica]) -> int:
        self.last += 1
        if self.last == self.num_replicas:
            self.last = 0
        return self.last


@ordinary
@dataclass(frozen=True, kw_only=True)
class Random:
    """Any replica, each as likely as the others.  It reads none of them.  Raises InputError on a bad seed."""

    seed: int = 0

    def __post_init__(self) -> None:
        check_count("random", self, "seed", least=0)

    def begin(self, num_replicas: int) -> RandomRun:
        return RandomRun(self.seed, num_replicas)


class RandomRun:
    """Random routing in one run."""

    def __init__(self, seed: int, num_replicas: int) -> None:
        self.random = Generator(seed)
        self.num_replicas = num_replicas

    def __call__(self, r: Request, replicas: Sequence[Replica]) -> int:
        return self.random.randrange(self.num_replicas)


@ordinary
@dataclass(frozen=True, kw_only=True)
class LeastLoaded:
    """The replica with the least load, in `requests` or `tokens`.  Raises InputError on another measure.

    Source: least connections, as in HAProxy; Splitwise (Patel et al., ISCA 2024) joins the shortest queue
    by tokens.
    """

    measure: str = "requests"

    def __post_init__(self) -> None:
        check_choice("least_loaded", self, "measure", MEASURES)

    def begin(self, num_replicas: int) -> LeastLoadedRun:
        return LeastLoadedRun(self.measure)


class LeastLoadedRun:
    """Least load in one run."""

    def __init__(self, measure: str) -> None:
        self.measure = measure

    def __call__(self, r: Request, replicas: Sequence[Replica]) -> int:
        return least_loaded(replicas, self.measure)


@ordinary
@dataclass(frozen=True, kw_only=True)
class PowerOfTwo:
    """The least loaded of `choices` different replicas that are drawn at random; only these are read.

    Source: Mitzenmacher 2001; SGLang's router has it under this name.  Raises InputError on a bad value.
    """

    choices: int = 2
    measure: str = "requests"
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("power_of_two", self, "choices", least=2)
        check_choice("power_of_two", self, "measure", MEASURES)
        check_count("power_of_two", self, "seed", least=0)

    def begin(self, num_replicas: int) -> PowerOfTwoRun:
        return PowerOfTwoRun(self, num_replicas)


class PowerOfTwoRun:
    """The power of two choices in one run."""

    def __init__(self, flags: PowerOfTwo, num_replicas: int) -> None:
        self.random = Generator(flags.seed)
        self.measure = flags.measure
        self.all = range(num_replicas)
        self.choices = min(flags.choices, num_replicas)

    def __call__(self, r: Request, replicas: Sequence[Replica]) -> int:
        drawn = self.random.sample(self.all, self.choices)
        return least_loaded([replicas[index] for index in drawn], self.measure)


@ordinary
@dataclass(frozen=True, kw_only=True)
class PrefixAware:
    """The replica with the longest cached prefix, if enough of the prompt is cached and loads are even.

    Loads, in requests, are uneven if the greatest is over the least by more than
    `balance_abs_threshold` and over `balance_rel_threshold` times the least: then, and if no more than
    a share `cache_threshold` of the prompt is cached anywhere, the least loaded gets it.

    Source: the cache_aware policy of SGLang's Model Gateway and its defaults; it asks a tree of what it has
    sent where a prefix is, and here the caches themselves are asked, as with KV events.
    Raises InputError on a bad value.
    """

    cache_threshold: float = 0.3
    balance_abs_threshold: int = 64
    balance_rel_threshold: float = 1.5

    def __post_init__(self) -> None:
        check_number("prefix_aware", self, "cache_threshold", 0.0, 1.0)
        check_count("prefix_aware", self, "balance_abs_threshold", least=0)
        check_number("prefix_aware", self, "balance_rel_threshold", 1.0, 1e6)

    def begin(self, num_replicas: int) -> PrefixAwareRun:
        return PrefixAwareRun(self)


class PrefixAwareRun:
    """Prefix-aware routing in one run."""

    def __init__(self, flags: PrefixAware) -> None:
        self.flags = flags

    def __call__(self, r: Request, replicas: Sequence[Replica]) -> int:
        if r.prefix and not self._is_uneven(replicas):
            cached = [replica.cached_tokens(r) for replica in replicas]
            longest = max(cached)
            if longest > self.flags.cache_threshold * r.prompt:
                return least_loaded([replicas[i] for i, tokens in enumerate(cached) if tokens == longest])
        return least_loaded(replicas)

    def _is_uneven(self, replicas: Sequence[Replica]) -> bool:
        loads = [replica.num_requests for replica in replicas]
        least, greatest = min(loads), max(loads)
        flags = self.flags
        return (
            greatest - least > flags.balance_abs_threshold and greatest > flags.balance_rel_threshold * least
        )


@ordinary
@dataclass(frozen=True, kw_only=True)
class Central:
    """One queue for all: a replica takes the next while it has a seat, and leaves nobody waiting there.

    First come, first served.  If several have a seat, the one with the fewest requests takes it.
    """

    def begin(self, num_replicas: int) -> CentralQueue:
        return CentralQueue()


class CentralQueue:
    """The central queue in one run: it names a replica with a free seat, or nobody."""

    def __call__(self, r: Request, replicas: Sequence[Replica]) -> int:
        if r.prompt >= replicas[0].limits.longest:
            return 0  # whoever gets it refuses it, and that at once
        free = [replica for replica in replicas if replica.has_seat]
        return least_loaded(free) if free else NOBODY


def load(replica: Replica, measure: str = "requests") -> int:
    """What `replica` has to do, in requests or in tokens."""
    return replica.num_requests if measure == "requests" else replica.pending_tokens


def least_loaded(replicas: Sequence[Replica], measure: str = "requests") -> int:
    """The index of the replica with the least load, and the least index."""
    best, least = -1, 0
    for replica in replicas:
        found = load(replica, measure)
        if best < 0 or found < least or (found == least and replica.index < best):
            best, least = replica.index, found
    return best


ROUTERS: Final[dict[str, type]] = {
    "round_robin": RoundRobin,
    "random": Random,
    "least_loaded": LeastLoaded,
    "power_of_two": PowerOfTwo,
    "prefix_aware": PrefixAware,
    "central": Central,
}
