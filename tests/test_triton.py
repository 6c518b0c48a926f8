"""`dynamic` starts the batches that Triton's dynamic batcher starts, at the same instants.

The loop below is Triton's rule on whole requests, without tokens and steps: one instance, which is
busy for as long as its batch takes.  Source: dynamic_batch_scheduler.cc, GetDynamicBatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest

from batchwright.cost import Constant
from batchwright.limits import Limits
from batchwright.policies import Dynamic
from batchwright.request import Request
from batchwright.simulator import Simulator
from strategies import GRID, for_every_seed

STEP = 2**-5  # seconds: a batch takes this times its longest output
UNLIMITED = Limits(max_num_seqs=99)

Batches = list[tuple[float, list[int]]]  # when each started, and who


@dataclass
class Triton:
    """The rule, as the server's configuration names it."""

    max_batch_size: int
    max_queue_delay: float
    preferred_batch_size: tuple[int, ...]

    def send(self, enqueued: list[float], now: float) -> int:
        """How many of the queued requests, which came at such times, make a batch now; 0: wait."""
        pending = best = 0
        is_full = False
        for _ in enqueued:
            if pending + 1 > self.max_batch_size:
                is_full = True
                break
            pending += 1
            if pending in self.preferred_batch_size:
                best = pending
        has_delay = self.max_queue_delay > 0
        is_exceeded = has_delay and now >= min(enqueued) + self.max_queue_delay
        if best > 0 and not is_exceeded:
            return best
        if is_full or pending >= max(self.preferred_batch_size):
            return pending
        return pending if is_exceeded or not has_delay else 0

    def serve(self, arrivals: list[float], outputs: list[int]) -> Batches:
        coming, queue = list(range(len(arrivals))), list[int]()
        batches: Batches = []
        now = 0.0
        while coming or queue:
            while coming and arrivals[coming[0]] <= now:
                queue.append(coming.pop(0))
            size = self.send([arrivals[i] for i in queue], now) if queue else 0
            if size > 0:
                batches.append((now, queue[:size]))
                now += STEP * max(outputs[i] for i in queue[:size])
                del queue[:size]
                continue
            timer = [arrivals[queue[0]] + self.max_queue_delay] if queue else []
            now = min(timer + [arrivals[i] for i in coming[:1]])
        return batches


def dynamic(policy: Dynamic, arrivals: list[float], outputs: list[int]) -> Batches:
    """The batches of a simulation: with steps of one length, the first token comes one after the start."""
    requests = [Request(i, at, 1, n) for i, (at, n) in enumerate(zip(arrivals, outputs, strict=True))]
    Simulator(policy, Constant(STEP), UNLIMITED).run(requests)
    batches: dict[float, list[int]] = {}
    for r in requests:
        batches.setdefault(r.first_token - STEP, []).append(r.id)
    return sorted(batches.items())


def load(random: Random) -> tuple[list[float], list[int]]:
    """Arrivals with ties and pauses, and outputs."""
    gaps = random.choice([[0, 1, 2], [0, 0, 0, 9], [1, 5, 40], [30, 200]])
    at, arrivals = 1, []
    for _ in range(random.randint(1, 40)):
        arrivals.append(at / GRID)
        at += random.choice(gaps)
    longest = random.choice([1, 8, 60])
    return arrivals, [random.randint(1, longest) for _ in arrivals]


@for_every_seed(400)
def test_dynamic_starts_the_batches_of_triton(seed: int) -> None:
    random = Random(seed)
    most = random.randint(1, 12)
    delay = random.choice([0.0, 0.0, 1 / GRID, 0.25, 1.0, 8.0])
    sizes = tuple(random.sample(range(1, most + 1), random.randint(0, min(3, most))))
    given = load(random)
    batches = dynamic(Dynamic(most, delay, sizes), *given)
    assert batches == Triton(most, delay, sizes or (most,)).serve(*given)
    assert sum(len(who) for _, who in batches) == len(given[0])


@pytest.mark.parametrize(
    ("delay", "waiting", "sizes", "sent"),
    [
        (1.0, 6, (4,), [4, 2]),  # 4 at once; the others when their delay is over
        (1.0, 9, (2, 4), [4, 4, 1]),  # more than fit wait, but 4 are preferred
        (1.0, 9, (), [8, 1]),
        (0.0, 6, (4,), [4, 2]),  # no delay, so no end of it either: sizes count at any time
        (0.0, 3, (4,), [3]),
        (0.0, 9, (), [8, 1]),
    ],
)
def test_what_is_sent_of_those_that_came_together(
    delay: float, waiting: int, sizes: tuple[int, ...], sent: list[int]
) -> None:
    batches = dynamic(Dynamic(8, delay, sizes), [0.5] * waiting, [1] * waiting)
    assert [len(who) for _, who in batches] == sent


def test_a_delay_that_is_over_sends_all_whatever_is_preferred() -> None:
    # 0 runs until 3.5; by then the delay of the five others is over, so not 4 of them start, but all.
    batches = dynamic(Dynamic(8, 1.0, (1, 4)), [0.5, *[1.0] * 5], [96, *[1] * 5])
    assert batches == [(0.5, [0]), (3.5, [1, 2, 3, 4, 5])]
