"""Clients that send their next request when the last one has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest

import reference
from batchwright import Batch, Constant, Limits, Linear, Request, Simulator
from batchwright.errors import PolicyError, RequestError
from batchwright.log import STAY
from batchwright.policies import Dynamic, Orca, Static, Vllm
from batchwright.request import CANCELLED, FINISHED
from strategies import GRID, for_every_seed, limits_of, requests_of, timed_workload
from test_modes import IS_COMPILED, ROOT, python
from test_properties import policy_of

Load = dict[str, Any]
LINEAR = Linear(2**-2, 2**-10, 2**-7, 2**-13, 2**-16)  # reference.linear(): its sums are exact
COLUMNS = ("steps", "taken", "freed", "chunks", "held", "paused", *STAY)
POLICIES = ("vllm", "static", "dynamic", "orca")


# --- loads ----------------------------------------------------------------------------------


def closed_workload(seed: int) -> Load:
    """Some requests of a random load wait for the end of an earlier one, and for a think time after it."""
    random = Random(seed + 7)
    load = timed_workload(seed, headroom=random.random() < 0.5)
    share = random.choice([0.2, 0.6, 1.0])
    think = random.choice([[0], [0, 0, 1, 40], [300], [7, 8, 2000]])
    for index, request in enumerate(load["requests"]):
        if index > 0 and random.random() < share:
            request["after"] = random.choice([index - 1, random.randrange(index)])
            request["think"] = random.choice(think) / GRID
    return load


def linked(load: Load, instants: dict[int, float] | None = None) -> list[Request]:
    """All requests of a load; those that follow others are given to them.

    `instants`: is filled with the end of every request, as its client has seen it.
    """
    requests = requests_of(load)
    followers: dict[int, list[int]] = {}
    for index, request in enumerate(load["requests"]):
        if "after" in request:
            followers.setdefault(request["after"], []).append(index)

    def then(r: Request, instant: float) -> list[Request]:
        if instants is not None:
            instants[r.id] = instant
        for index in followers[r.id]:
            requests[index].arrival = instant + load["requests"][index]["think"]
        return [requests[index] for index in followers[r.id]]

    for index in followers:
        requests[index].then = then
    return requests


def roots(load: Load, requests: list[Request]) -> list[Request]:
    """Those that follow nobody."""
    return [r for r in requests if "after" not in load["requests"][r.id]]


def run(name: str, load: Load, cost: Any = LINEAR, **options: Any) -> tuple[Simulator, list[Request]]:
    requests = linked(load)
    simulator = Simulator(policy_of(name, load)[0], cost, limits_of(load["config"]), **options)
    simulator.run(roots(load, requests))
    return simulator, requests


def times(requests: Iterable[Request]) -> list[tuple[str, str, str, int]]:
    return [(r.arrival.hex(), r.first_token.hex(), r.finished.hex(), r.preemptions) for r in requests]


def recorded(simulator: Simulator) -> list[object]:
    log = simulator.log
    columns: list[object] = [log.column(name).tolist() for name in COLUMNS]
    count = simulator.batch.tick_count
    jumps = [jump for jump in zip(log.jumps, log.jump_times, strict=True) if jump[0] < count]
    return [*columns, log.seconds("times").tolist(), jumps, simulator.arrived]


# --- the loop is the reference loop ------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
@for_every_seed(120)
def test_a_closed_loop_takes_the_time_that_the_reference_takes(name: str, seed: int) -> None:
    load = closed_workload(seed)
    expected = reference.timed(load, reference.linear(), policy_of(name, load)[1])
    _, requests = run(name, load)
    for r, row in zip(requests, expected.values(), strict=True):
        found = {"arrival": r.arrival, "first_token": r.first_token, "finished": r.finished}
        assert found | {"preemptions": r.preemptions} == row


@pytest.mark.parametrize("name", POLICIES)
@for_every_seed(40)
def test_skipped_walked_and_audited_closed_loops_give_the_same_bits(name: str, seed: int) -> None:
    load = closed_workload(seed)
    cost = Linear(0.0043, 3.1e-5, 1.7e-4, 1.3e-6, 1.1e-8)
    skipped, walked, audited = (
        run(name, load, cost, **options) for options in ({}, {"skip": False}, {"audit": True})
    )
    assert times(skipped[1]) == times(walked[1]) == times(audited[1])
    assert skipped[0].arrived == walked[0].arrived == audited[0].arrived


@pytest.mark.parametrize("name", POLICIES)
@for_every_seed(40)
def test_a_closed_loop_in_pieces_is_the_same_run(name: str, seed: int) -> None:
    load = closed_workload(seed)
    whole, _ = run(name, load)
    requests = linked(load)
    pieces = Simulator(policy_of(name, load)[0], LINEAR, limits_of(load["config"]))
    pieces.feed(roots(load, requests))
    random = Random(seed)
    for instant in sorted(random.uniform(0, 1.2 * whole.now) for _ in range(12)):
        pieces.advance(instant)
    pieces.advance()
    assert recorded(pieces) == recorded(whole)


@for_every_seed(40)
def test_followers_come_a_think_time_after_the_end_that_their_client_saw(seed: int) -> None:
    load = closed_workload(seed)
    seen: dict[int, float] = {}
    requests = linked(load, seen)
    simulator = Simulator(policy_of("vllm", load)[0], LINEAR, limits_of(load["config"]))
    simulator.run(roots(load, requests))
    assert {r.state for r in requests} == {FINISHED}
    assert all(requests[id].finished == instant for id, instant in seen.items())
    followers = {index for index, request in enumerate(load["requests"]) if "after" in request}
    assert simulator.arrived == {index: requests[index].arrival for index in followers}
    for index in followers:
        request = load["requests"][index]
        assert requests[index].arrival == requests[request["after"]].finished + request["think"]
    simulator.batch.check()
    assert simulator.batch.draining


@pytest.mark.skipif(not IS_COMPILED, reason="the core is interpreted: there is no other to compare with")
def test_compiled_closed_loops_give_the_bits_of_interpreted_ones() -> None:
    assert python(str(Path(__file__)), PYTHONPATH=str(ROOT / "src")).split() == [digest()]


def digest() -> str:
    """Of many runs, with costs whose sums are not exact."""
    found = sha256()
    for seed in range(60):
        for name in POLICIES:
            simulator, requests = run(name, closed_workload(seed), Linear(0.0043, 3.1e-5, 1.7e-4, 1.3e-6))
            found.update(repr((times(requests), recorded(simulator))).encode())
    return found.hexdigest()


# --- tiny loops ---------------------------------------------------------------------------------


class Clients:
    """`think` seconds after each end its client sends another request, `turns` in all."""

    def __init__(self, turns: int, think: float = 0.0, prompt: int = 4, output: int = 2) -> None:
        self.turns, self.think, self.prompt, self.output = turns, think, prompt, output
        self.made: list[Request] = []
        self.sent: Counter[int] = Counter()

    def first(self, count: int) -> list[Request]:
        return [self.send(client, 0.0) for client in range(count)]

    def send(self, client: int, arrival: float) -> Request:
        self.sent[client] += 1
        then = self.follow if self.sent[client] < self.turns else None
        r = Request(len(self.made), arrival, self.prompt, self.output, client=client, then=then)
        self.made.append(r)
        return r

    def follow(self, r: Request, instant: float) -> list[Request]:
        return [self.send(r.client, instant + self.think)]


SECOND = Constant(1.0)
SYNC = Vllm(async_scheduling=False)


def test_a_client_sends_its_next_request_when_the_last_one_has_ended() -> None:
    clients = Clients(turns=3, think=0.5)
    simulator = Simulator(SYNC, SECOND)
    simulator.run(clients.first(1))
    assert [(r.arrival, r.finished) for r in clients.made] == [(0.0, 2.0), (2.5, 4.5), (5.0, 7.0)]
    assert simulator.arrived == {1: 2.5, 2: 5.0}


def test_under_asynchronous_scheduling_a_client_sees_its_token_when_it_is_sampled() -> None:
    clients = Clients(turns=2)
    Simulator(Vllm(), SECOND).run(clients.first(1))
    assert [(r.arrival, r.finished) for r in clients.made] == [(0.0, 2.0), (2.0, 4.0)]


def test_static_clients_come_back_when_their_batch_ends_or_when_their_own_row_does() -> None:
    for streamed, again in ((False, [4.0, 4.0]), (True, [2.0, 4.0])):
        clients = Clients(turns=2)
        short, long = clients.first(2)
        long.true_output = long.max_tokens = 4
        Simulator(Static(2, streamed=streamed), SECOND).run([short, long])
        assert sorted(r.arrival for r in clients.made[2:]) == again


@pytest.mark.parametrize("audit", [False, True])
def test_a_static_batch_that_the_clients_cannot_fill_starts_when_all_of_them_wait(audit: bool) -> None:
    clients = Clients(turns=3, think=1.0)
    simulator = Simulator(Static(8), SECOND, audit=audit)
    simulator.run(clients.first(3))
    assert [r.arrival for r in clients.made] == [0.0] * 3 + [3.0] * 3 + [6.0] * 3
    assert [r.finished for r in clients.made] == [2.0] * 3 + [5.0] * 3 + [8.0] * 3


def test_draining_is_said_only_while_nobody_else_can_come_first() -> None:
    seen: list[tuple[float, int, bool]] = []
    policy = Static(2).begin

    class Spying:
        def begin(self, batch: Batch) -> Callable[[Batch], None]:
            ask = policy(batch)

            def spy(b: Batch) -> None:
                if b.edits == 0 and b.num_running == 0:
                    seen.append((b.now, b.num_waiting, b.draining))
                ask(b)

            return spy

    Simulator(Spying(), SECOND).run(Clients(turns=3, think=1.0).first(1))
    assert seen == [(0.0, 1, False), (0.0, 1, True), (3.0, 1, False), (3.0, 1, True), (6.0, 1, True)]
    seen.clear()
    Simulator(Spying(), SECOND).run(Clients(turns=2, think=1.0).first(3))
    # Two of three start at once.  At 3.0 they are back, and one of them starts with the third.
    assert seen == [(0.0, 3, False), (2.0, 1, False), (3.0, 3, False), (5.0, 1, False), (6.0, 2, True)]


def test_a_policy_that_serves_nobody_is_told_so_in_a_closed_loop_too() -> None:
    with pytest.raises(PolicyError, match=r"policy starves 2 requests at 0\.0 s"):
        Simulator(lambda b: None, SECOND).run(Clients(turns=2).first(2))


def test_the_client_of_a_rejected_request_goes_on_at_once() -> None:
    clients = Clients(turns=5000, prompt=10)  # a chain far longer than Python may recurse
    simulator = Simulator(SYNC, SECOND, Limits(max_model_len=8))
    simulator.run(clients.first(1))
    assert simulator.rejected == list(range(5000))
    assert set(simulator.arrived.values()) == {0.0}
    assert simulator.batch.draining


@pytest.mark.parametrize("at", [0.0, 0.5, 1.5])
def test_a_client_that_goes_thinks_from_then_on(at: float) -> None:
    clients = Clients(turns=2, think=0.25, output=3)
    simulator = Simulator(SYNC, SECOND, audit=True)
    (first,) = clients.first(1)
    simulator.cancel(first, at)
    simulator.run([first])
    assert first.state == CANCELLED
    again = clients.made[1]
    assert (again.arrival, again.state) == (at + 0.25, FINISHED)


def test_a_client_that_goes_after_the_end_is_followed_once() -> None:
    clients = Clients(turns=2)
    simulator = Simulator(Vllm(), SECOND)
    (first,) = clients.first(1)
    simulator.cancel(first, 2.0)
    simulator.cancel(first, 9.0)
    simulator.run([first])
    assert len(clients.made) == 2 and clients.made[1].finished == 4.0


def test_requests_of_a_closed_loop_can_be_submitted_one_at_a_time() -> None:
    clients = Clients(turns=2, think=1.0)
    simulator = Simulator(SYNC, SECOND)
    for r in clients.first(2):
        simulator.submit(r)
    simulator.drain()
    simulator.advance(1.5)
    assert not simulator.batch.draining
    simulator.advance()
    assert [r.finished for r in clients.made] == [2.0, 2.0, 5.0, 5.0]


def test_a_follower_cannot_come_before_the_end_that_it_follows() -> None:
    clients = Clients(turns=2, think=-0.5)
    with pytest.raises(RequestError, match=r"request 1 arrives at 1\.5 s, before the end of request 0"):
        Simulator(SYNC, SECOND).run(clients.first(1))


def test_a_long_loop_keeps_only_the_requests_that_are_yet_to_come() -> None:
    clients = Clients(turns=2000, think=0.3)
    late = Request(10**6, 1e7, 4, 2)
    simulator = Simulator(SYNC, SECOND)
    for r in (*clients.first(2), late):
        simulator.submit(r)
    simulator.advance(1e6)
    assert len(simulator._arrivals._line) < 600  # type: ignore[attr-defined]
    assert len(clients.made) == 4000


# --- queueing theory ------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_clients", "think"), [(1, 0.0), (4, 0.0), (4, 3.0), (40, 3.0)])
@pytest.mark.parametrize("policy", [SYNC, Orca(4), Static(4), Dynamic(4, 0.1)], ids=repr)
def test_throughput_times_cycle_time_is_the_number_of_clients(
    policy: Any, num_clients: int, think: float
) -> None:
    """X (R + Z) = N: the response time law, exact over whole cycles.  Denning and Buzen, 1978."""
    random = Random(num_clients)
    clients = Clients(turns=400, think=think)
    firsts = clients.first(num_clients)
    send = clients.send

    def vary(client: int, arrival: float) -> Request:
        clients.output = random.randint(1, 9)
        return send(client, arrival)

    clients.send = vary  # type: ignore[method-assign]
    simulator = Simulator(policy, Linear(0.1, decode=0.01))
    simulator.run(firsts)
    horizon = min(max(r.finished for r in clients.made if r.client == c) for c in range(num_clients))
    done = [r for r in clients.made if r.finished <= horizon]
    assert len(done) > 100 * num_clients
    cycles = sum(r.finished - r.arrival + think for r in done) / len(done)
    assert len(done) / horizon * cycles == pytest.approx(num_clients, rel=0.02)
    assert max(r.finished for r in clients.made) < inf


if __name__ == "__main__":
    print(digest())
