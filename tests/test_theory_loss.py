"""c slots and no queue: who finds them all taken goes away (Erlang, 1917).

The blocked share is Erlang's B of the offered load, and insensitive: the law of the lengths does not
matter, only their mean.  A request takes a slot when it comes, and is admitted when the step that runs
has ended, so it holds the slot for half a step more than its tokens take.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from batchwright.cost import Constant
from batchwright.limits import Limits
from batchwright.policies import Orca
from batchwright.request import FINISHED, Request
from batchwright.simulator import Simulator
from batchwright.theory import queues
from queueing import assert_agrees, poisson, replicate

SLOTS, STEP, MEAN = 8, 1 / 128, 100  # seconds, tokens
RATE = 6 / (STEP * (MEAN + 0.5))  # an offered load of 6
COUNT = 6_000


def constant(random: Any) -> Any:
    return np.full(COUNT, MEAN)


def geometric(random: Any) -> Any:
    return random.geometric(1 / MEAN, COUNT)


def lognormal(random: Any) -> Any:
    """A coefficient of variation of 1.3; whole tokens, so the mean is half a token more."""
    sigma = np.log(1 + 1.3**2) ** 0.5
    return np.floor(random.lognormal(np.log(MEAN - 0.5) - sigma**2 / 2, sigma, COUNT)).astype(int) + 1


def blocked(random: Any, lengths: Callable[[Any], Any]) -> list[float]:
    """The share of the requests that find every slot taken when they come, beside the load that came."""
    arrivals, outputs = poisson(random, RATE, COUNT), lengths(random)
    simulator = Simulator(Orca(), Constant(STEP), Limits(max_num_seqs=SLOTS, enable_prefix_caching=False))
    taken: list[Request] = []
    lost = 0
    for id, (at, length) in enumerate(zip(arrivals, outputs, strict=True)):
        simulator.advance(at)
        taken = [r for r in taken if r.state != FINISHED]
        if len(taken) == SLOTS:
            lost += 1
        else:
            taken.append(Request(id, at, 1, int(length)))
            simulator.submit(taken[-1])
    return [lost / COUNT, arrivals[-1] * RATE / COUNT - 1, outputs.mean() / MEAN - 1]


@pytest.mark.parametrize("lengths", [constant, geometric, lognormal])
def test_slots_without_a_queue_lose_erlangs_share(lengths: Callable[[Any], Any]) -> None:
    found = replicate(lambda random: blocked(random, lengths))
    controls = found[:, 1:].T if lengths is not constant else [found[:, 1]]
    assert queues.erlang_b(SLOTS, 6.0) == pytest.approx(0.12188, abs=5e-6)
    assert_agrees(queues.erlang_b(SLOTS, 6.0), found[:, 0], controls, within=0.06)
