"""Several replicas behind a router: one replica is a plain simulator, and looking changes nothing."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import sha256
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest

from batchwright import Constant, Limits, Linear, Request, Simulator
from batchwright.cluster import ROUTERS, Cluster, Replica
from batchwright.cluster.routers import Central, LeastLoaded, PowerOfTwo, PrefixAware, RoundRobin
from batchwright.errors import InputError, PolicyError, RequestError
from batchwright.policies import Dynamic, Orca, Static, Vllm
from batchwright.request import CANCELLED, FINISHED
from strategies import for_every_seed, limits_of, requests_of
from test_closed_loop import LINEAR, Clients, closed_workload, linked, recorded, roots, times
from test_modes import IS_COMPILED, ROOT, python
from test_properties import assert_over, drawn, policy_of, real_valued

Load = dict[str, Any]
ODD = Linear(0.0043, 3.1e-5, 1.7e-4, 1.3e-6, 1.1e-8)  # its sums are not exact
SECOND = Constant(1.0)
SYNC = Vllm(async_scheduling=False)
every_router = pytest.mark.parametrize("router", ROUTERS)


def router_of(name: str, seed: int) -> Any:
    """A router with settings drawn from `seed`."""
    random = Random(seed)
    if name == "least_loaded":
        return LeastLoaded(measure=random.choice(["requests", "tokens"]))
    if name == "power_of_two":
        return PowerOfTwo(choices=random.choice([2, 3]), measure=random.choice(["requests", "tokens"]))
    if name == "prefix_aware":
        return PrefixAware(
            cache_threshold=random.choice([0.0, 0.3]), balance_abs_threshold=random.choice([0, 4])
        )
    return ROUTERS[name]()


def cluster_of(load: Load, count: int, router: Any, name: str, **options: Any) -> Cluster:
    """`count` replicas alike, each under a policy called `name`."""
    limits = limits_of(load["config"])
    return Cluster(
        [Simulator(policy_of(name, load)[0], ODD, limits, **options) for _ in range(count)], router
    )


def served(load: Load, count: int, router: Any, name: str, **options: Any) -> tuple[Cluster, list[Request]]:
    requests = linked(load)
    cluster = cluster_of(load, count, router, name, **options)
    cluster.run(roots(load, requests))
    return cluster, requests


def where(cluster: Cluster) -> dict[int, int]:
    """The replica of every request that had a stay, by id."""
    return {id: one.index for one in cluster.replicas for id in one.simulator.log.column("id")}


def both(seed: int) -> Load:
    """A load; in half of them some requests follow others."""
    return closed_workload(seed) if seed % 2 else real_valued(seed)


# --- one replica is a simulator -----------------------------------------------------------------


@pytest.mark.parametrize("router", [name for name in ROUTERS if name != "central"])
@for_every_seed(20)
def test_a_cluster_of_one_replica_gives_the_bits_of_its_simulator(router: str, seed: int) -> None:
    load, name = both(seed), drawn(Random(seed))
    requests = linked(load)
    plain = Simulator(policy_of(name, load)[0], ODD, limits_of(load["config"]))
    plain.run(roots(load, requests))
    cluster, found = served(load, 1, router_of(router, seed), name)
    (replica,) = cluster.replicas
    assert times(found) == times(requests)
    assert recorded(replica.simulator)[:-1] == recorded(plain)[:-1]
    assert cluster.arrived == plain.arrived
    assert replica.simulator.rejected == plain.rejected and replica.simulator.num_cut == plain.num_cut
    assert cluster.now == plain.now


@pytest.mark.parametrize("policy", [SYNC, Vllm(), Orca(3)], ids=repr)
@for_every_seed(15)
def test_the_central_queue_of_one_replica_takes_the_times_of_its_simulator(policy: Any, seed: int) -> None:
    """Sums are exact here: a request that comes to a full replica parts no quiet stretch."""
    random = Random(seed)
    rows = [(random.randrange(400) / 8, random.randint(1, 40), random.randint(1, 30)) for _ in range(40)]
    both = [[Request(i, *row) for i, row in enumerate(sorted(rows))] for _ in range(2)]
    limits = Limits(max_num_seqs=3, max_num_batched_tokens=32)
    Simulator(policy, LINEAR, limits).run(both[0])
    Cluster([Simulator(policy, LINEAR, limits)], Central()).run(both[1])
    assert times(both[0]) == times(both[1])


@for_every_seed(20)
def test_a_replica_of_a_round_robin_is_a_simulator_with_its_share(seed: int) -> None:
    load = real_valued(seed)
    _, found = served(load, 3, RoundRobin(), "vllm")
    for index in range(3):
        share = requests_of(load)[index::3]
        Simulator(policy_of("vllm", load)[0], ODD, limits_of(load["config"])).run(share)
        assert times(found[index::3]) == times(share)


# --- who looks changes nothing ------------------------------------------------------------------


class Prying:
    """Another router, asked after all that can be read has been read."""

    def __init__(self, router: Any) -> None:
        self.router = router

    def begin(self, num_replicas: int) -> Callable[[Request, Sequence[Replica]], int]:
        route = self.router.begin(num_replicas)

        def pry(r: Request, replicas: Sequence[Replica]) -> int:
            for one in replicas:
                assert one.num_waiting + one.num_running == one.num_requests >= 0
                assert one.pending_tokens >= 0 and one.cached_tokens(r) >= 0
                assert 0 <= one.free_blocks <= one.limits.blocks
            index: int = route(r, replicas)
            return index

        return pry


@pytest.mark.parametrize("router", [name for name in ROUTERS if name != "central"])
@for_every_seed(20)
def test_reading_every_replica_changes_nothing(router: str, seed: int) -> None:
    load, name = both(seed), drawn(Random(seed))
    quiet = served(load, 3, router_of(router, seed), name)
    prying = served(load, 3, Prying(router_of(router, seed)), name)
    assert times(quiet[1]) == times(prying[1])
    assert [recorded(one.simulator) for one in quiet[0].replicas] == [
        recorded(one.simulator) for one in prying[0].replicas
    ]


@every_router
@for_every_seed(20)
def test_walked_and_audited_clusters_give_the_bits_of_skipped_ones(router: str, seed: int) -> None:
    load, name = both(seed), drawn(Random(seed))
    skipped, walked, audited = (
        served(load, 3, router_of(router, seed), name, **options)
        for options in ({}, {"skip": False}, {"audit": True})
    )
    assert times(skipped[1]) == times(walked[1]) == times(audited[1])
    assert where(skipped[0]) == where(walked[0]) == where(audited[0])
    assert skipped[0].arrived == walked[0].arrived == audited[0].arrived


@every_router
@for_every_seed(15)
def test_a_cluster_in_pieces_is_the_same_run(router: str, seed: int) -> None:
    load, random = both(seed), Random(seed)
    name = drawn(random)
    whole, expected = served(load, 3, router_of(router, seed), name)
    requests = linked(load)
    pieces = cluster_of(load, 3, router_of(router, seed), name)
    pieces.feed(roots(load, requests))
    stops = [random.choice([random.uniform(0, 1.2 * whole.now), r.arrival]) for r in expected[:12]]
    for instant in sorted(stops):
        pieces.advance(instant)
        assert pieces.now == instant
    pieces.advance()
    assert times(requests) == times(expected)
    assert where(pieces) == where(whole)


# --- nothing is lost ----------------------------------------------------------------------------


@every_router
@for_every_seed(20)
def test_every_request_is_served_by_one_replica_and_blocks_come_back(router: str, seed: int) -> None:
    load, name = both(seed), drawn(Random(seed))
    cluster, requests = served(load, 3, router_of(router, seed), name)
    rejected = {id for one in cluster.replicas for id in one.simulator.rejected}
    assert {r.id for r in requests if r.state == CANCELLED} == rejected
    assert all(r.state == FINISHED for r in requests if r.id not in rejected)
    homes = Counter(id for one in cluster.replicas for id in set(one.simulator.log.column("id")))
    assert homes == {r.id: 1 for r in requests if r.id not in rejected}
    for one in cluster.replicas:
        assert_over(one.simulator, [r for r in requests if where(cluster).get(r.id) == one.index])
        assert one.simulator.batch.draining


@every_router
@for_every_seed(20)
def test_followers_come_to_the_router_a_think_time_after_the_end(router: str, seed: int) -> None:
    load = closed_workload(seed)
    cluster, requests = served(load, 3, router_of(router, seed), "vllm")
    followers = {index for index, request in enumerate(load["requests"]) if "after" in request}
    assert cluster.arrived == {index: requests[index].arrival for index in followers}
    for index in followers:
        request = load["requests"][index]
        assert requests[index].arrival == requests[request["after"]].finished + request["think"]


def test_a_follower_may_go_to_another_replica_than_the_request_before() -> None:
    clients = Clients(turns=4, think=0.5)
    cluster = Cluster([Simulator(SYNC, SECOND) for _ in range(3)], RoundRobin())
    cluster.run(clients.first(1))
    assert where(cluster) == {0: 0, 1: 1, 2: 2, 3: 0}
    assert [(r.arrival, r.finished) for r in clients.made] == [(0.0, 2.0), (2.5, 4.5), (5.0, 7.0), (7.5, 9.5)]


@for_every_seed(15)
def test_what_is_yet_to_be_decoded_does_not_change_where_requests_go(seed: int) -> None:
    """Until the first of the requests ends whose outputs are longer in one of two loads."""
    random = Random(seed)
    router = random.choice(list(ROUTERS))

    def run(longer: int) -> tuple[list[Request], dict[int, int]]:
        draw = Random(seed)
        arrival = sorted(draw.uniform(0, 1) for _ in range(80))
        requests = [Request(i, at, draw.randint(1, 300), 1, max_tokens=500) for i, at in enumerate(arrival)]
        for r in requests:
            r.true_output = draw.randint(20, 60) + (longer if r.id % 3 == 0 else 0)
        limits = Limits(max_num_seqs=4, max_num_batched_tokens=256, max_model_len=1000)
        cluster = Cluster([Simulator(SYNC, ODD, limits) for _ in range(4)], router_of(router, seed))
        cluster.run(requests)
        return requests, where(cluster)

    (short, before), (_, after) = run(0), run(200)
    first = min(r.finished for r in short if r.id % 3 == 0)
    same = [r.id for r in short if r.arrival < first]
    assert len(same) > 1
    # a request in the central queue is placed when somebody has ended
    if router != "central":
        assert [before[id] for id in same] == [after[id] for id in same]


@pytest.mark.skipif(not IS_COMPILED, reason="the core is interpreted: there is no other to compare with")
def test_compiled_clusters_give_the_bits_of_interpreted_ones() -> None:
    assert python(str(Path(__file__)), PYTHONPATH=str(ROOT / "src")).split() == [digest()]


def digest() -> str:
    """Of many runs, with costs whose sums are not exact."""
    found = sha256()
    for seed in range(40):
        for router in ROUTERS:
            cluster, requests = served(both(seed), 3, router_of(router, seed), "vllm")
            found.update(repr((times(requests), where(cluster), cluster.arrived)).encode())
    return found.hexdigest()


# --- by hand ------------------------------------------------------------------------------------


def rows(*arrivals: float, output: int = 1, prompt: int = 4) -> list[Request]:
    return [Request(i, at, prompt, output) for i, at in enumerate(arrivals)]


def seats(count: int, seat: int = 1) -> list[Simulator]:
    """Replicas with so many seats each, and steps of one second."""
    return [Simulator(SYNC, SECOND, Limits(max_num_seqs=seat)) for _ in range(count)]


def test_the_least_loaded_replica_is_the_one_with_the_fewest_requests() -> None:
    requests = rows(0.0, 0.25, 0.5, 0.75, 1.5, output=2)
    cluster = Cluster(seats(2), LeastLoaded())
    cluster.run(requests)
    # 0 and 1 run to 2.0 and 2.25; 2 and 3 wait behind them; at 1.5 both have two, and 4 goes to the first.
    assert where(cluster) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    assert [r.finished for r in requests] == [2.0, 2.25, 4.0, 4.25, 6.0]


def test_an_end_at_the_same_moment_is_seen_by_the_router() -> None:
    requests = rows(0.0, 0.5, 1.0)
    cluster = Cluster(seats(2), LeastLoaded())
    cluster.run(requests)
    assert where(cluster) == {0: 0, 1: 1, 2: 0}  # 0 ends at 1.0
    assert [r.finished for r in requests] == [1.0, 1.5, 2.0]


def test_tokens_count_what_prefills_have_still_to_compute() -> None:
    limits = Limits(max_num_seqs=2, max_num_batched_tokens=8)
    requests = [Request(0, 0.0, 32, 1), Request(1, 0.25, 4, 9), Request(2, 0.5, 4, 1), Request(3, 3.5, 4, 1)]
    cluster = Cluster([Simulator(SYNC, SECOND, limits) for _ in range(2)], LeastLoaded(measure="tokens"))
    cluster.run(requests)
    # At 0.5 replica 0 lacks 32 tokens and 1 lacks 4; at 3.5 replica 0 lacks 8, and 1 only decodes.
    assert where(cluster) == {0: 0, 1: 1, 2: 1, 3: 1}
    by_count = rows_like(requests)
    cluster = Cluster([Simulator(SYNC, SECOND, limits) for _ in range(2)], LeastLoaded())
    cluster.run(by_count)
    assert where(cluster) == {0: 0, 1: 1, 2: 0, 3: 1}


def rows_like(requests: list[Request]) -> list[Request]:
    return [Request(r.id, r.arrival, r.prompt, r.true_output) for r in requests]


def test_the_central_queue_gives_the_next_to_whoever_has_a_seat_first() -> None:
    requests = rows(0.0, 0.25, 0.5, 0.5, 1.125)
    cluster = Cluster(seats(2), Central())
    cluster.run(requests)
    # 2 waits for replica 0, free at 1.0, 3 for replica 1, free at 1.25, and 4 for replica 0 again.
    assert where(cluster) == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}
    assert [r.finished for r in requests] == [1.0, 1.25, 2.0, 2.25, 3.0]


@pytest.mark.parametrize("policy", [SYNC, Vllm(), Orca(2), Dynamic(2, 0.0), Static(2)], ids=repr)
def test_the_central_queue_serves_everybody_under_any_policy(policy: Any) -> None:
    random = Random(5)
    requests = [Request(i, i / 256, random.randint(1, 40), random.randint(1, 9)) for i in range(60)]
    cluster = Cluster([Simulator(policy, ODD, Limits(max_num_seqs=2)) for _ in range(3)], Central())
    cluster.run(requests)
    assert all(r.state == FINISHED for r in requests)
    assert set(where(cluster).values()) == {0, 1, 2}


def test_a_replica_that_lacks_memory_leaves_the_others_in_the_central_queue() -> None:
    """Each replica has 4 seats and KV blocks for one of these requests."""
    limits = Limits(max_num_seqs=4, num_kv_blocks=4, block_size=16, enable_prefix_caching=False)
    requests = [Request(i, i / 64, 60, 3) for i in range(6)]
    cluster = Cluster([Simulator(SYNC, SECOND, limits) for _ in range(2)], Central())
    cluster.run(requests)
    # One more waits at each replica, where it was sent while that had nobody waiting.
    assert [r.finished for r in requests] == [3.0, 3 + 1 / 64, 6.0, 6 + 1 / 64, 9.0, 9 + 1 / 64]


def test_a_static_batch_that_nobody_can_fill_starts_when_the_last_request_has_come() -> None:
    requests = rows(0.0, 1.0, 2.0, 10.0)
    cluster = Cluster([Simulator(Static(2), SECOND) for _ in range(2)], RoundRobin())
    cluster.run(requests)
    assert [r.finished for r in requests] == [3.0, 11.0, 3.0, 11.0]  # 0 with 2, and 1 with 3
    odd = rows(0.0, 1.0, 4.0)
    Cluster([Simulator(Static(2), SECOND) for _ in range(2)], RoundRobin()).run(odd)
    assert [r.finished for r in odd] == [5.0, 5.0, 5.0]  # 1 starts alone at 4.0


def test_clients_who_wait_for_each_other_are_served_by_batches_that_are_not_full() -> None:
    clients = Clients(turns=2, think=1.0)
    cluster = Cluster([Simulator(Static(2), SECOND) for _ in range(2)], RoundRobin())
    cluster.run(clients.first(3))
    # 0 and 2 start at 0.0; 1 waits on replica 1 for company, which is 0's follower or 2's, at 3.0.
    assert [(r.arrival, r.finished) for r in clients.made] == [
        (0.0, 2.0), (0.0, 5.0), (0.0, 2.0), (3.0, 5.0), (3.0, 8.0), (6.0, 8.0),
    ]  # fmt: skip


def prefixed(id: int, arrival: float, group: int, output: int = 2) -> Request:
    """64 tokens, 48 of which start as all of its group do."""
    return Request(id, arrival, 64, output, prefix=array("q", range(100 * group, 100 * group + 3)))


def test_prefixes_are_followed_while_loads_are_even() -> None:
    groups = [0, 1, 1, 0, 0, 1, 0, 0]
    requests = [prefixed(i, 10.0 * i, group) for i, group in enumerate(groups)]
    cluster = Cluster([Simulator(SYNC, SECOND) for _ in range(2)], PrefixAware())
    cluster.run(requests)
    # Nobody has anything at first, and group 1 comes when both are idle: all go to the first.
    assert set(where(cluster).values()) == {0}
    crowd = [prefixed(i, i / 8, group, output=9) for i, group in enumerate(groups)]
    cluster = Cluster([Simulator(SYNC, SECOND) for _ in range(2)], PrefixAware())
    cluster.run(crowd)
    assert where(cluster) == {0: 0, 1: 1, 2: 1, 3: 0, 4: 0, 5: 1, 6: 0, 7: 0}


def test_prefixes_are_not_followed_into_a_crowd() -> None:
    crowd = [prefixed(i, i / 8, 0, output=9) for i in range(8)]
    router = PrefixAware(balance_abs_threshold=2)
    cluster = Cluster([Simulator(SYNC, SECOND) for _ in range(2)], router)
    cluster.run(crowd)
    # 0 to 2 follow the prefix.  With 3 against 0 the next goes to the other, which has it, too, from then on.
    assert where(cluster) == {0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 1, 6: 0, 7: 1}


def test_a_prefix_shorter_than_the_threshold_is_not_followed() -> None:
    requests = [prefixed(0, 0.0, 0, output=30), prefixed(1, 8.0, 0)]
    for threshold, home in ((0.74, 0), (0.75, 1)):  # 48 of 64 tokens are cached
        cluster = Cluster([Simulator(SYNC, SECOND) for _ in range(2)], PrefixAware(cache_threshold=threshold))
        cluster.run([prefixed(r.id, r.arrival, 0, r.true_output) for r in requests])
        assert where(cluster)[1] == home


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize("index", [-1, 2, None, 0.5, "0"])
def test_a_router_that_names_no_replica_is_told_so(index: Any) -> None:
    cluster = Cluster(seats(2), lambda r, replicas: index)
    with pytest.raises(PolicyError, match=r"sends request 0 to replica .*, but they are 0 to 1"):
        cluster.run(rows(0.0))


@pytest.mark.parametrize("router", ["central", RoundRobin, None])
def test_what_cannot_be_asked_is_no_router(router: Any) -> None:
    with pytest.raises(PolicyError, match="is no router; give a function"):
        Cluster(seats(2), router)


def test_a_cluster_has_a_replica() -> None:
    with pytest.raises(InputError, match="a cluster has no replica"):
        Cluster([], RoundRobin())


def test_requests_come_in_order_and_not_in_the_past() -> None:
    with pytest.raises(RequestError, match=r"request 1 arrives at 1\.0 s, after one of 2\.0 s"):
        Cluster(seats(2), RoundRobin()).run(rows(2.0, 1.0))
    cluster = Cluster(seats(2), RoundRobin())
    cluster.advance(5.0)
    assert cluster.now == 5.0
    with pytest.raises(RequestError, match=r"arrives at 1\.0 s, but the clock is at 5\.0 s"):
        cluster.submit(rows(1.0)[0])
    cluster.drain()
    with pytest.raises(RequestError, match="is submitted after drain"):
        cluster.submit(rows(6.0)[0])
    with pytest.raises(RequestError, match="make a new cluster"):
        cluster.run(rows(6.0))
    with pytest.raises(RequestError, match="advance until nan"):
        cluster.advance(inf - inf)


def test_requests_can_be_submitted_one_at_a_time() -> None:
    clients = Clients(turns=2, think=1.0)
    cluster = Cluster([Simulator(SYNC, SECOND) for _ in range(2)], RoundRobin())
    for r in clients.first(3):
        cluster.submit(r)
    cluster.advance(1.5)
    cluster.drain()
    assert not any(one.simulator.batch.draining for one in cluster.replicas)
    cluster.advance()
    assert [r.finished for r in clients.made] == [2.0, 2.0, 2.0, 5.0, 5.0, 5.0]
    assert all(one.simulator.batch.draining for one in cluster.replicas)


def test_a_policy_that_serves_nobody_is_told_so() -> None:
    for clients in (Clients(turns=2), Clients(turns=1)):
        cluster = Cluster([Simulator(lambda b: None, SECOND) for _ in range(2)], RoundRobin())
        with pytest.raises(PolicyError, match=r"policy starves 2 requests at 0\.0 s"):
            cluster.run(clients.first(4))


@pytest.mark.parametrize("router", [RoundRobin(), Central()], ids=repr)
def test_the_client_of_a_rejected_request_goes_on_at_once(router: Any) -> None:
    clients = Clients(turns=3000, prompt=10)
    cluster = Cluster([Simulator(SYNC, SECOND, Limits(max_model_len=8)) for _ in range(2)], router)
    cluster.run(clients.first(1))
    assert sorted(id for one in cluster.replicas for id in one.simulator.rejected) == list(range(3000))
    assert set(cluster.arrived.values()) == {0.0}


def test_a_follower_cannot_come_before_the_end_that_it_follows() -> None:
    clients = Clients(turns=2, think=-0.5)
    with pytest.raises(RequestError, match=r"request 1 arrives at 1\.5 s, before the end of request 0"):
        Cluster(seats(2), RoundRobin()).run(clients.first(1))


def test_a_long_load_does_not_wait_in_memory_for_the_end() -> None:
    made = 0

    def load() -> Any:
        nonlocal made
        for i in range(6000):
            made += 1
            yield Request(i, i / 4, 4, 1)

    cluster = Cluster(seats(2), RoundRobin())
    cluster.feed(load())
    most = 0
    for until in range(0, 1500, 50):
        cluster.advance(float(until))
        most = max(most, made - 4 * until)
    assert most < 5
    cluster.advance()
    assert cluster.now == 3000.25


if __name__ == "__main__":
    print(digest())
