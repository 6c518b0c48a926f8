"""What scheduling costs: the article's 0.05 ms on a 0.5 ms step, and what is measured.

    synchronous   loss = t / (step + t)
    asynchronous  loss = 1 - step / max(step, t), none while t <= step;
                  a request's end is seen a step late, which costs 1 / (E[o] + 1) where seats are short

The measured t is that of `Hosted`: vLLM 0.32 on one CPU, 20 us and 7.5 us per running request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchwright.article.claims import CLAIMED_SCHEDULING, CLAIMED_SHORT, CLAIMED_STEP
from batchwright.article.gpus import GPUS, decode_seconds
from batchwright.article.serve import serve
from batchwright.cost import Constant, Hosted
from batchwright.limits import Limits
from batchwright.policies import Vllm
from batchwright.step import Step
from batchwright.theory import lengths
from batchwright.theory.overhead import late_end_factor, step_seconds, synchronous_loss
from batchwright.workload import Workload

RUNNING: Final = (8, 32, 256)
CONTEXT: Final = 1000  # tokens of each decode
FLOOD: Final = 3200  # requests
FLOOD_SEATS: Final = 32
FLOOD_PROMPT: Final = 16
HOST: Final = Hosted(Constant(CLAIMED_STEP))


@dataclass(frozen=True, kw_only=True)
class SchedulerRow:
    """`running` requests.  Seconds, and the share of throughput that synchronous scheduling loses.

    steps, losses  by GPU; "claimed" is the article's step
    asynchronous   the greatest share that asynchronous scheduling loses on any of the GPUs
    """

    running: int
    host: float
    steps: dict[str, float]
    losses: dict[str, float]
    asynchronous: float


@dataclass(frozen=True, kw_only=True)
class Flood:
    """Throughput lost to the claimed scheduling by a flood of short requests, as shares.

    Each with its closed form; the asynchronous loss is that of ends that are seen late.
    """

    synchronous: float
    synchronous_form: float
    asynchronous: float
    asynchronous_form: float


def scheduler_rows() -> tuple[SchedulerRow, ...]:
    """One row for each of `RUNNING`."""
    return tuple(_row(running) for running in RUNNING)


def asynchronous_loss(step: float, host: float) -> float:
    """Share of the throughput that is lost if the host plans a step while the device runs the one before."""
    return 1 - step / step_seconds(step, host, overlapped=True)


def flood() -> Flood:
    """Requests of at most 32 tokens, simulated with the claimed step and scheduling."""
    law = lengths.uniform(1, CLAIMED_SHORT)
    output = lengths.draw(law, FLOOD, np.random.Generator(np.random.PCG64(0)))
    load = Workload.from_columns(np.zeros(FLOOD), np.full(FLOOD, FLOOD_PROMPT), output, name="flood")
    device = Constant(CLAIMED_STEP)
    hosted = Hosted(device, base=CLAIMED_SCHEDULING, per_running=0.0)
    alone = _seconds(load, device, False)
    return Flood(
        synchronous=1 - alone / _seconds(load, hosted, False),
        synchronous_form=synchronous_loss(CLAIMED_STEP, CLAIMED_SCHEDULING),
        asynchronous=1 - alone / _seconds(load, hosted, True),
        asynchronous_form=1 - 1 / late_end_factor(lengths.mean(law)),
    )


def _row(running: int) -> SchedulerRow:
    step = Step()
    step.quiet(running, 0, running * CONTEXT)
    host = HOST.host_seconds(step)
    on_gpus = {gpu: decode_seconds(gpu, running, CONTEXT) for gpu in GPUS}
    steps = {"claimed": CLAIMED_STEP, **on_gpus}
    return SchedulerRow(
        running=running,
        host=host,
        steps=steps,
        losses={name: synchronous_loss(seconds, host) for name, seconds in steps.items()},
        asynchronous=max(asynchronous_loss(seconds, host) for seconds in on_gpus.values()),
    )


def _seconds(load: Workload, cost: Constant | Hosted, asynchronous: bool) -> float:
    return serve(load, Vllm(async_scheduling=asynchronous), cost, Limits(max_num_seqs=FLOOD_SEATS))
