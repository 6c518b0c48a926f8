"""Prompts on some replicas, decodes on others: small schedules by hand, theory, and what is conserved."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from batchwright import Constant, Limits, Linear, Request, Roofline
from batchwright.cluster import Cluster
from batchwright.cluster.distserve import DistServe
from batchwright.cluster.splitwise import Pools, Splitwise
from batchwright.cluster.table import server
from batchwright.errors import InputError, PolicyError
from batchwright.history import EngineStep, steps
from batchwright.log import COMPLETE, MOVED, PREEMPTED, SWAPPED
from batchwright.policies.machine import Machine
from batchwright.request import FINISHED
from batchwright.run import ReplicatedRun
from batchwright.run.ticks import token_times
from queueing import assert_agrees, poisson, replicate
from strategies import for_every_seed, limits_of, requests_of, timed_workload
from test_closed_loop import closed_workload
from test_cluster import linked, roots
from test_properties import H100, LINEAR, real_valued
from test_run import load_of as workload_of
from test_schedules import load, scheduled, walked
from test_schedules import served as served_by

SMALL = Limits(block_size=4, num_kv_blocks=100, enable_prefix_caching=False)
LINK = {"bandwidth": 16.0, "kv_bytes_per_token": 1.0}  # a block of 4 in 1/4 s
AT_ONCE = {"bandwidth": 1e18, "kv_bytes_per_token": 1.0}


def distserve(**flags: Any) -> DistServe:
    return DistServe(**{**LINK, "preemption_mode": "recompute", **flags})


def splitwise(**flags: Any) -> Splitwise:
    return Splitwise(**{**LINK, **flags})


def served(
    kind: Any, shapes: list[tuple[float, int, int]], limits: Limits = SMALL, cost: Any = None, **options: bool
) -> tuple[Cluster, list[Request]]:
    requests = [Request(i, *shape) for i, shape in enumerate(shapes)]
    cluster = kind.cluster(cost or Constant(1.0), limits)
    set_options(cluster, **options)
    cluster.run(requests)
    assert_over(cluster, requests)
    return cluster, requests


def set_options(cluster: Cluster, skip: bool = True, audit: bool = False) -> None:
    for replica in cluster.replicas:
        replica.simulator.skip = skip and not audit
        replica.simulator._audit = audit


def assert_over(cluster: Cluster, requests: list[Request]) -> None:
    """Every block of every replica is free, and nothing is left anywhere."""
    for replica in cluster.replicas:
        b = replica.simulator.batch
        b.check()
        assert b.blocks.free == b.blocks.size
        assert (b.num_running, b.num_waiting, b.num_decoding, b.num_coming, b.num_swapped) == (0, 0, 0, 0, 0)
        assert not (b.movers.requests or b.movers.elsewhere or b.movers.offered)
    assert cluster.handovers is not None and cluster.handovers.num_waiting == 0
    assert all(r.state == FINISHED and r.first_token <= r.finished for r in requests)


def walk(cluster: Cluster) -> list[list[EngineStep]]:
    """The steps of every replica."""
    batches = [replica.simulator.batch for replica in cluster.replicas]
    return [steps(b.log, b.blocks.size, b.blocks.block_size) for b in batches]


def times(requests: list[Request]) -> list[tuple[float, float]]:
    return [(r.first_token, r.finished) for r in requests]


FOUR = [(0.0, 8, 4), (0.5, 8, 4), (1.0, 8, 4), (1.5, 8, 4)]


@pytest.mark.parametrize("kind", [distserve(), splitwise()])
@pytest.mark.parametrize("options", [{}, {"skip": False}, {"audit": True}])
def test_prompts_are_computed_on_one_replica_and_decoded_on_the_other(kind: Any, options: Any) -> None:
    # Prompts:  0 in [0, 1], 1 and 2 in [1, 2], 3 in [2, 3].  Two blocks of KV take 1/2 s.
    # Decodes:  0 is pulled at 1.0 and there at 1.5; it decodes in [1.5, 2.5], [2.5, 3.5], [3.5, 4.5].
    #           1 and 2 are pulled when its first step has ended, and are there at 3.0 and 3.5; they decode
    #           from 3.5 to 6.5.  3, pulled at 3.5, is there at 4.0 and decodes from 4.5 to 7.5.
    cluster, requests = served(kind, FOUR, **options)
    assert times(requests) == [(1.0, 4.5), (2.0, 6.5), (2.0, 6.5), (3.0, 7.5)]
    prompts, decodes = walk(cluster)
    assert [dict(step.scheduled) for step in prompts] == [{0: 8}, {1: 8, 2: 8}, {3: 8}]
    assert [step.moved for step in prompts] == [[0], [1, 2], [3]]
    assert [dict(step.scheduled) for step in decodes] == [
        {0: 1}, {0: 1}, {0: 1, 1: 1, 2: 1}, {1: 1, 2: 1, 3: 1}, {1: 1, 2: 1, 3: 1}, {3: 1},
    ]  # fmt: skip
    transfers = cluster.replicas[1].simulator.log.seconds("transfer_times")
    assert list(transfers) == [1.0, 1.5, 2.5, 3.0, 3.0, 3.5, 3.5, 4.0]


def test_a_request_of_one_token_never_leaves() -> None:
    cluster, requests = served(distserve(), [(0.0, 8, 1), (0.0, 8, 2)])
    assert times(requests) == [(1.0, 1.0), (1.0, 2.5)]
    assert len(walk(cluster)[1]) == 1


def test_kv_that_waits_to_be_pulled_keeps_prompts_out() -> None:
    # 5 blocks of 4.  0 and 1 fill 4; their 9 tokens each would need 6, so 1 is pulled when 0 has ended.
    # 2 comes at 1.0 and needs 2 blocks of the prefill instance, of which 1 and the blocks of 1 are taken.
    limits = Limits(block_size=4, num_kv_blocks=5, enable_prefix_caching=False)
    cluster, requests = served(distserve(), [(0.0, 8, 3), (0.0, 8, 3), (1.0, 8, 1)], limits)
    # 0 is there at 1.5 and ends at 3.5; its blocks at the source are free at 1.5, so 2 runs in [1.5, 2.5].
    # 1 is pulled at 3.5, there at 4.0, and ends at 6.0.
    assert times(requests) == [(1.0, 3.5), (1.0, 6.0), (2.5, 2.5)]
    assert [step.free_blocks_sched for step in walk(cluster)[0]] == [1, 1]


def test_back_pressure_bounds_the_blocks_whose_kv_is_on_its_way() -> None:
    # 4 prompts of 4 blocks; a threshold of 5 % of 100 blocks lets two come, the second of which passes it.
    shapes = [(0.0, 16, 2)] * 4
    cluster, requests = served(distserve(), shapes)
    log = cluster.replicas[1].simulator.log
    # Pulled at 1.0: 0 in [1, 2], 1 in [2, 3].  At 2.0 0 is there: 4 blocks are on their way, so 2 is pulled.
    assert list(log.seconds("transfer_times")) == [1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 5.0]
    assert [r.finished for r in requests] == [3.0, 4.0, 5.0, 6.0]
    loose, _ = served(distserve(waiting_block_prop_threshold=1.0), shapes)
    assert loose.replicas[1].simulator.log.column("admitted")[0] == 0


@pytest.mark.parametrize("threshold", [0.05, 0.2, 1.0])
def test_no_more_than_the_threshold_and_one_request_is_ever_on_its_way(threshold: float) -> None:
    limits = Limits(block_size=4, num_kv_blocks=200, enable_prefix_caching=False)
    cluster = distserve(waiting_block_prop_threshold=threshold, bandwidth=2.0).cluster(Constant(1.0), limits)
    b = cluster.replicas[1].simulator.batch
    seen: list[int] = []
    fetch = b.movers.fetch
    assert fetch is not None

    def watched(r: Request) -> tuple[float, float]:
        seen.append(b.movers.coming_blocks - b.movers.coming[r])
        return fetch(r)

    b.movers.fetch = watched
    requests = [Request(i, i / 8, 8 + i % 40, 5) for i in range(60)]
    cluster.run(requests)
    assert_over(cluster, requests)
    assert max(seen) < threshold * 200
    assert max(seen) > 0.5 * min(threshold * 200, 40)


def test_a_decoding_instance_that_is_short_swaps_out_the_newest() -> None:
    # 6 blocks of 4; the KV of two prompts of 8 fills 4; each takes a third block at its first decode.  At 12
    # tokens 0 needs a fourth, which 1 gives: 3 blocks, 3/4 s, both ways.
    limits = Limits(block_size=4, num_kv_blocks=6, enable_prefix_caching=False)
    swap = distserve(
        preemption_mode="swap", swap_bandwidth=16.0, waiting_block_prop_threshold=1.0, **AT_ONCE
    )
    cluster, requests = served(swap, [(0.0, 8, 8), (0.0, 8, 8)], limits)
    # Both decode 4 times, to 5.0; 1 is gone at 5.75; 0 decodes 3 times, to 8.75; 1 is back at 9.5.
    assert times(requests) == [(1.0, 8.75), (1.0, 12.5)]
    log = cluster.replicas[1].simulator.log
    assert sorted(log.column("how")) == [COMPLETE, COMPLETE, SWAPPED]


# --- Splitwise ------------------------------------------------------------------


def test_prompts_go_where_the_fewest_tokens_are_pending_and_decodes_where_least_is_promised() -> None:
    cluster, _ = served(splitwise(prompt=2, token=2), [(0.0, 40, 2), (0.0, 8, 9), (0.0, 8, 2), (0.0, 8, 2)])
    prompts = [sorted(id for step in machine for id, _ in step.scheduled) for machine in walk(cluster)[:2]]
    assert prompts == [[0], [1, 2, 3]]  # 8 and 16 tokens are pending beside 40
    decodes = [sorted({id for step in machine for id, _ in step.scheduled}) for machine in walk(cluster)[2:]]
    assert decodes == [[0, 3], [1, 2]] or decodes == [[0], [1, 2, 3]]


def test_a_token_machine_helps_out_with_prompts_and_goes_back_when_it_is_drained() -> None:
    # At most 8 prompt tokens may be pending.  0 is within it when it comes, 1 finds 16 pending: the token
    # machine takes it, and decodes it, too, while it is mixed.
    flags = {"prompt_max_pending_batch_tokens": 8}
    shapes = [(0.0, 16, 3), (0.0, 16, 3), (9.0, 16, 2), (10.5, 16, 2)]
    cluster, requests = served(splitwise(**flags), shapes)
    first, second = walk(cluster)
    assert [dict(step.scheduled) for step in first] == [{0: 16}, {2: 16}, {3: 16}]
    assert dict(second[0].scheduled) == {1: 16}
    assert {id for step in second for id, _ in step.scheduled} == {0, 1, 2, 3}
    assert times(requests)[1] == (1.0, 3.0)
    pools = cluster._route
    assert isinstance(pools, Pools) and not pools.mixed


def test_on_a_mixed_machine_decodes_wait_for_prompts_and_no_longer_than_they_may() -> None:
    # 0 decodes after 1.0; the prompts of the others run one a step, and after two of them 0 has a step.
    machine = Machine(max_batch_tokens=4, max_preemptions=2)
    simulator = walked(machine, load((0.0, 4, 4), *[(0.5, 4, 1)] * 5), Constant(1.0), SMALL)
    assert scheduled(simulator) == [
        {0: 4}, {1: 4}, {2: 4}, {0: 1}, {3: 4}, {4: 4}, {0: 1}, {5: 4}, {0: 1},
    ]  # fmt: skip
    served_alone = served_by(machine, load((0.0, 4, 4), *[(0.5, 4, 1)] * 5), Constant(1.0), SMALL)
    assert served_alone[0].finished == 9.0


def test_memory_is_promised_for_what_the_client_allows() -> None:
    limits = Limits(block_size=4, num_kv_blocks=10, enable_prefix_caching=False)
    cluster = splitwise(token=2).cluster(Constant(1.0), limits)
    pools = cluster._route
    assert isinstance(pools, Pools)
    for i, allowed in enumerate((20, 4, 4)):
        pools(Request(i, 0.0, 4, 1, max_tokens=allowed), cluster.replicas)
    assert [sum(promised.values()) for promised in pools.promised] == [0, 24, 16]


# --- theory ---------------------------------------------------------------------


def sojourns(random: Any) -> list[float]:
    """Mean time in the first of two stations in tandem, and in both: one server each, exponential service."""
    count, tick = 2000, 2.0**-10
    arrival = poisson(random, 0.5, count)
    prompt = np.maximum(np.rint(random.exponential(1.0, count) / tick), 1).astype(int)
    decodes = np.rint(random.exponential(0.9, count) / tick).astype(int)
    requests = [
        Request(i, at, s, 1 + o)
        for i, (at, s, o) in enumerate(zip(arrival.tolist(), prompt.tolist(), decodes.tolist(), strict=True))
    ]
    cost = Linear(base=1e-9, prefill=tick, decode=tick)
    limits = Limits(max_num_batched_tokens=1 << 20, enable_prefix_caching=False)
    cluster = distserve(max_batch_size=1, max_tokens_per_batch=1 << 20, **AT_ONCE).cluster(cost, limits)
    cluster.run(requests)
    warm = requests[200:]
    first = np.mean([r.first_token - r.arrival for r in warm])
    return [float(first), float(np.mean([r.finished - r.arrival for r in warm]))]


def test_two_stations_in_tandem_are_two_queues_of_their_own() -> None:
    # Burke 1956: what leaves an M/M/1 queue is Poisson again, so the sojourns of both add up.
    found = replicate(sojourns)
    first, second = 1 / (1 / 1.0 - 0.5), 1 / (1 / 0.9 - 0.5)
    assert_agrees(first, found[:, 0], within=0.1)
    assert_agrees(first + second, found[:, 1], within=0.1)


# --- what is conserved -------------------------------------------------------------


def kinds(seed: int) -> list[Any]:
    random = Random(seed)
    link = {"bandwidth": 2.0 ** random.choice([4, 10, 40]), "kv_bytes_per_token": 1.0}
    pools = {"prompt": random.choice([1, 2]), "token": random.choice([1, 2])}
    swap = {"swap_bandwidth": 2.0**12, "swap_space": random.choice([1.0, 2.0**-26])}
    return [
        DistServe(
            prefill=random.choice([1, 2]),
            decode=random.choice([1, 2]),
            waiting_block_prop_threshold=random.choice([0.05, 0.5]),
            preemption_mode=random.choice(["swap", "recompute"]),
            max_batch_size=random.choice([None, 1, 3]),
            **link,
            **swap,
        ),
        Splitwise(
            max_preemptions=random.choice([1, 4]),
            max_batch_tokens=random.choice([8, 64, 2048]),
            prompt_max_pending_batch_tokens=random.choice([1, 50, 8192]),
            **pools,
            **link,
        ),
    ]


def load_of(seed: int, fast: bool = True) -> dict[str, Any]:
    given = real_valued(seed) if fast else timed_workload(seed)
    given["config"]["enable_prefix_caching"] = Random(seed).random() < 0.5
    return given


def outcome(requests: list[Request]) -> list[tuple[str, str, int]]:
    return [(r.first_token.hex(), r.finished.hex(), r.preemptions) for r in requests]


@for_every_seed(60)
def test_no_kv_is_lost_and_walking_or_auditing_changes_nothing(seed: int) -> None:
    given = load_of(seed)
    for kind in kinds(seed):
        found = []
        for options in ({}, {"skip": False}, {"audit": True}):
            requests = requests_of(given)
            cluster = kind.cluster(H100, limits_of(given["config"]))
            set_options(cluster, **options)
            cluster.run(requests)
            assert_over(cluster, requests)
            found.append(outcome(requests))
        assert found[0] == found[1] == found[2]


@for_every_seed(60)
def test_every_token_is_computed_once_but_for_those_of_the_preempted(seed: int) -> None:
    given = load_of(seed, fast=False)
    for kind in kinds(seed):
        requests = requests_of(given)
        cluster = kind.cluster(LINEAR, limits_of(given["config"]))
        cluster.run(requests)
        assert_over(cluster, requests)
        computed: Counter[int] = Counter()
        ways: Counter[tuple[int, int]] = Counter()
        for replica, machine in zip(cluster.replicas, walk(cluster), strict=True):
            for step in machine:
                computed.update(dict(step.scheduled))
            log = replica.simulator.log
            ways.update(zip(log.column("id"), log.column("how"), strict=True))
        for r in requests:
            assert ways[r.id, COMPLETE] == 1 and ways[r.id, MOVED] <= 1
            assert ways[r.id, PREEMPTED] + ways[r.id, SWAPPED] == r.preemptions
            if ways[r.id, PREEMPTED] == 0 and cluster.handovers.num_lost == 0:
                assert computed[r.id] == r.prompt + r.true_output - 1


@for_every_seed(40)
def test_in_a_closed_loop_clients_come_back_when_their_answer_has_ended(seed: int) -> None:
    given = closed_workload(seed)
    for kind in kinds(seed):
        requests = linked(given)
        cluster = kind.cluster(H100, limits_of(given["config"]))
        cluster.run(roots(given, requests))
        assert_over(cluster, requests)
        for row, r in zip(given["requests"], requests, strict=True):
            if row.get("after") is not None:
                assert cluster.arrived[r.id] >= requests[row["after"]].finished


@for_every_seed(20)
def test_the_same_seed_gives_the_same_bytes(seed: int) -> None:
    given = load_of(seed)
    for kind in kinds(seed):
        logs = []
        for _ in range(2):
            cluster = kind.cluster(H100, limits_of(given["config"]))
            cluster.run(requests_of(given))
            logs.append([one.simulator.log.seconds("times").tobytes() for one in cluster.replicas])
        assert logs[0] == logs[1]


# --- what is refused ---------------------------------------------------------------


@pytest.mark.parametrize("name", ["distserve", "splitwise"])
def test_a_link_that_nobody_knows_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: bandwidth and kv_bytes_per_token must be given"):
        server(name).cluster(Constant(1.0), SMALL)
    assert server(name).cluster(Roofline("A100-80G-SXM", "llama-3.1-8b"), Limits(num_kv_blocks=9000))


def test_the_links_are_those_of_the_gpu_and_the_model() -> None:
    cost, limits = Roofline("A100-80G-SXM", "llama-3.1-8b"), Limits(num_kv_blocks=9000)
    for text, bandwidth in (("distserve", 300e9), ("splitwise", 25e9), ("splitwise(bandwidth=1e9)", 1e9)):
        handovers = server(text).cluster(cost, limits).handovers
        assert (handovers.link.bandwidth, handovers.link.bytes_per_token) == (bandwidth, 131072)


@pytest.mark.parametrize(
    ("text", "words"),
    [("distserve(prefill=0)", "distserve: prefill is 0, but must be a whole number of at least 1"),
     ("distserve(waiting_block_prop_threshold=2)", "waiting_block_prop_threshold is 2, but must be"),
     ("distserve(preemption_mode=abort)", "distserve: preemption_mode 'abort' is not known"),
     ("splitwise(token=none)", "splitwise: token is None, but must be a whole number"),
     ("splitwise(latency=-1)", "splitwise: latency is -1, but must be a number from 0"),
     ("distserve(prefill=9999, decode=2)", r"there are 9999 \+ 2 servers, but must be at most 10000"),
     ("splitwise(prompt=10000000)", r"there are 10000000 \+ 1 servers"),
     ("splitwise(decode=1)", "policy 'splitwise' has no flag 'decode'")],
)  # fmt: skip
def test_bad_flags_are_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        server(text)


def test_a_decoder_that_names_nobody_is_an_error() -> None:
    good = distserve().cluster(Constant(1.0), SMALL)
    cluster = Cluster(
        [replica.simulator for replica in good.replicas],
        lambda r, replicas: 0,
        lambda r, replicas: 7,
        good.handovers.link,  # type: ignore[union-attr]
    )
    with pytest.raises(PolicyError, match="sends request 0 to decode at replica 7, but they are 0 to 1"):
        cluster.run([Request(0, 0.0, 8, 2)])


# --- what a run says of it -----------------------------------------------------------


def run_of(seed: int) -> list[tuple[ReplicatedRun, list[Request]]]:
    found = []
    for kind in kinds(seed):
        given = load_of(seed)
        begin = given["requests"][0]["arrival"]
        for row in given["requests"]:
            row["arrival"] -= begin
        requests = requests_of(given)
        cluster = kind.cluster(H100, limits_of(given["config"]))
        cluster.run(requests)
        found.append((ReplicatedRun("handed over", workload_of(requests), cluster), requests))
    return found


@for_every_seed(40)
def test_every_token_has_its_time_wherever_it_was_made(seed: int) -> None:
    for run, requests in run_of(seed):
        times = token_times(run)
        for r in requests:
            assert len(times[r.id]) == r.true_output and (np.diff(times[r.id]) > 0).all()
            assert (times[r.id][0], times[r.id][-1]) == (r.first_token, r.finished)
        found = run.gaps()
        gaps = np.concatenate([np.diff(tokens) for tokens in times])
        seconds = np.repeat(found.seconds, found.counts)
        assert len(seconds) == len(gaps)
        assert np.allclose(np.sort(seconds), np.sort(gaps), rtol=1e-9, atol=1e-12)
        greatest = [np.diff(tokens).max() if len(tokens) > 1 else np.nan for tokens in times]
        assert np.allclose(found.greatest, greatest, rtol=1e-9, atol=1e-12, equal_nan=True)


@for_every_seed(40)
def test_who_has_come_and_not_left_waits_or_runs(seed: int) -> None:
    for run, requests in run_of(seed):
        edges = np.unique(np.concatenate((run.waiting.times, run.running.times)))
        middle = (edges[1:] + edges[:-1]) / 2
        arrival, end = (np.sort([getattr(r, name) for r in requests]) for name in ("arrival", "finished"))
        there = np.searchsorted(arrival, middle, side="right") - np.searchsorted(end, middle, side="right")
        assert np.array_equal(run.waiting.at(middle) + run.running.at(middle), there)
        assert sum(run.slots.shares.values()) == pytest.approx(1.0)
        assert run.steps()["prefill_tokens"].sum() >= sum(r.prompt for r in requests)
