"""Virtual token counters: what each client has been served, and who is next because of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from batchwright import Constant, Limits, Linear, Request, Simulator
from batchwright.batch import Batch
from batchwright.policies import Fcfs, Ordered, Vllm, Vtc
from strategies import for_every_seed
from test_order import SECOND, ended, requests


class Served:
    """A policy, and what each client has been served before every step: counted request by request."""

    def __init__(self, within: Any, prompt_weight: float, output_weight: float) -> None:
        self.within = within
        self.weights = (prompt_weight, output_weight)
        self.rows: list[tuple[float, float]] = []  # of clients 0 and 1
        self.waits: list[tuple[int, int]] = []
        self.requests: list[Request] = []

    def begin(self, batch: Batch) -> Callable[[Batch], None]:
        self.ask = self.within.begin(batch)
        return self

    def __call__(self, b: Batch) -> None:
        fresh = b.edits == 0
        self.ask(b)
        if fresh:
            self.rows.append((self.service(b, 0), self.service(b, 1)))
            self.waits.append((self.waiting(0), self.waiting(1)))

    def service(self, b: Batch, client: int) -> float:
        mine = [r for r in self.requests if r.client == client and r.queued >= 0]
        prompts = sum(r.prompt for r in mine if r.seat > 0)
        tokens = sum(b.clock + r.shift - r.prompt + 1 if r.state == 2 else r.generated for r in mine)
        return self.weights[0] * prompts + self.weights[1] * tokens

    def waiting(self, client: int) -> int:
        return sum(r.client == client and r.state == 0 and r.queued >= 0 for r in self.requests)


def flooded(random: Random) -> list[Request]:
    """Client 0 sends three requests for each one of client 1, all at once; its prompts are longer."""
    rows = []
    for i in range(400):
        client = 1 if i % 4 == 3 else 0
        prompt = random.randint(50, 200) if client == 0 else random.randint(10, 60)
        rows.append(Request(i, 0.0, prompt, random.randint(5, 40), client=client))
    return rows


def spread(order: Any, random: Random) -> tuple[float, float]:
    """How far the services of two clients move apart while both wait, over any interval; and the bound."""
    limits = Limits(max_num_seqs=16, max_num_batched_tokens=256, block_size=16, num_kv_blocks=60)
    watch = Served(Ordered(order, Vllm(async_scheduling=random.random() < 0.5)), 1.0, 2.0)
    watch.requests = flooded(random)
    Simulator(watch, Constant(1.0), limits, skip=False).run(watch.requests)
    apart = [f - g for (f, g), wait in zip(watch.rows, watch.waits, strict=True) if min(wait) > 0]
    assert len(apart) > 100
    longest = max(r.prompt for r in watch.requests)
    return max(apart) - min(apart), 2 * max(1.0 * longest, 2.0 * 60 * 16)


@for_every_seed(6)
def test_clients_that_always_wait_are_served_alike_within_the_bound(seed: int) -> None:
    apart, bound = spread(Vtc(1.0, 2.0), Random(seed))
    assert apart <= bound
    assert spread(Fcfs(), Random(seed))[0] > 3 * bound


def test_the_client_with_the_least_counter_is_next() -> None:
    # Prompts count 1, outputs nothing.  0 of client 0 runs first (4); then client 1 (3, then 6), then 0.
    rows = [{"output": 1}, {"output": 1}, {"prompt": 3, "output": 1, "client": 1},
            {"prompt": 3, "output": 1, "client": 1}, {"prompt": 3, "output": 1, "client": 1}]  # fmt: skip
    assert ended(Vtc(1.0, 0.0), requests(*rows)) == [1.0, 4.0, 2.0, 3.0, 5.0]


def test_tokens_of_output_count_as_they_come() -> None:
    # Three seats: two requests of client 0, one of client 1, which ends at 3.0, when client 0 has had 6
    # tokens and client 1 has had 3: so 4 is before 3, which came first.
    rows = [{"output": 6}, {"output": 6}, {"output": 3, "client": 1}, {"output": 1}]
    rows += [{"output": 1, "client": 1}]
    seats = Limits(max_num_seqs=3, block_size=4)
    assert ended(Vtc(0.0, 1.0), requests(*rows), seats) == [6.0, 6.0, 3.0, 5.0, 4.0]
    assert ended(Fcfs(), requests(*rows), seats) == [6.0, 6.0, 3.0, 4.0, 5.0]
    rows[1]["client"] = 2  # then client 0 has had 3, too, and came first
    assert ended(Vtc(0.0, 1.0), requests(*rows), seats) == [6.0, 6.0, 3.0, 4.0, 5.0]


def test_a_client_that_was_idle_has_no_credit() -> None:
    # Client 0 has been served 4 prompts of 4 when client 1 comes at 4.5, and is lifted to its counter of
    # 20: they take turns, and client 1 does not get four in a row.
    rows = [{"output": 1} for _ in range(8)]
    rows += [{"arrival": 4.5, "output": 1, "client": 1} for _ in range(4)]
    ends = ended(Vtc(1.0, 0.0), requests(*rows))
    assert ends == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 7.0, 9.0, 11.0, 12.0]


def test_three_floods_do_not_starve_a_small_client() -> None:
    rows = [{"output": 3, "client": i % 3} for i in range(60)] + [{"arrival": 1.0, "output": 3, "client": 3}]
    slow, fair = (ended(order, requests(*rows))[60] for order in (Fcfs(), Vtc()))
    assert slow == 183.0 and fair <= 15.0


def test_head_is_the_order_of_admission() -> None:
    def check(b: Batch) -> None:
        if b.edits == 0 and b.num_waiting > 0 and b.num_running == 0:
            expected = [r.id for r in b.waiting.head(b.num_waiting)]
            for id in expected:
                assert b.waiting.first().id == id
                b.admit(b.waiting.first(), b.waiting.first().prompt)
            seen.append(expected)

    seen: list[list[int]] = []
    rows = [{"prompt": 1 + i * i % 7, "output": 1 + i % 4, "client": i % 3} for i in range(20)]
    simulator = Simulator(Ordered(Vtc(), check), SECOND, Limits(max_num_seqs=99))
    simulator.run(requests(*rows)())
    assert len(seen[0]) == 20 and seen[0] != sorted(seen[0])


@for_every_seed(20)
def test_the_tally_counts_every_token_of_every_client(seed: int) -> None:
    random = Random(seed)
    counted: list[Counter[int]] = []

    def within(b: Batch) -> None:
        ask(b)
        if b.edits == 0 or not b.chunks:
            return
        assert b.tally is not None
        true: Counter[int] = Counter()
        for r in made:
            true[r.client] += b.clock + r.shift - r.prompt + 1 if r.state == 2 else r.generated
        counted.append(Counter({client: b.tally.tokens(client, b.clock) for client in range(3)}))
        assert counted[-1] == Counter({client: true[client] for client in range(3)})

    class Counting:
        def begin(self, batch: Batch) -> Any:
            nonlocal ask
            ask = Ordered(Vtc(), Vllm(async_scheduling=random.random() < 0.5)).begin(batch)
            return within

    ask: Any = None
    made = list(_some(random))
    limits = Limits(max_num_seqs=6, max_num_batched_tokens=32, block_size=4, num_kv_blocks=40)
    Simulator(Counting(), Linear(0.1, 0.01, 0.01), limits).run(made)
    assert len(counted) > 5


def _some(random: Random) -> Iterator[Request]:
    at = 0.0
    for i in range(40):
        at += random.random() * 0.5
        yield Request(i, at, random.randint(1, 40), random.randint(1, 30), client=random.randrange(3))
