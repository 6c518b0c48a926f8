"""What a machine cannot show of batching, from its own step times.

Static batching leaves slots empty when their requests end.  Where a step's time hardly depends on how
many rows it has, as on a GPU that reads its weights once for all rows, an empty slot costs as much as a
full one, and filling it is free.  Where each row takes its own time, as on a CPU that is bound by
arithmetic, an empty slot costs nearly nothing, and filling it gains little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.contract import Begins, Policy
from batchwright.cost import CostModel, Hosted, Roofline, stretch_of
from batchwright.engines.live import Synchronous
from batchwright.figures import amount, seconds
from batchwright.limits import Limits
from batchwright.measured.calibration import at_once
from batchwright.measured.step_time import StepTime
from batchwright.policies import Static, Vllm
from batchwright.simulator import Simulator
from batchwright.step import Step
from batchwright.workload import Workload

GPU: Final = "H100-SXM"
MODEL: Final = "llama-3.1-8b"
CONTEXT: Final = 128  # KV tokens of each row of the steps that are compared


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What continuous batching gains over unpadded static batching on a burst, under one cost.

    one, full   seconds of a step of 1 decode, and of `max_num_seqs`
    gain        output throughput of the one over that of the other
    """

    one: float
    full: float
    gain: float

    @property
    def dearer(self) -> float:
        """How many times as long the full step takes."""
        return self.full / self.one


def gain(cost: CostModel, load: Workload, limits: Limits) -> Gain:
    """Of all requests of `load`, at once."""
    static = _wall(Static(limits.max_num_seqs, padded=False), cost, load, limits)
    stretch = stretch_of(cost)
    return Gain(
        one=stretch(_decodes(1), 1),
        full=stretch(_decodes(limits.max_num_seqs), 1),
        gain=static / _wall(Vllm(), cost, load, limits),
    )


def cpu_paragraph(cost: StepTime, load: Workload, limits: Limits) -> str:
    """What the machine with these step times cannot show, and what a GPU's show on the same requests."""
    here = gain(cost, load, limits)
    gpu = gain(Hosted(Roofline(GPU, MODEL)), load, limits)
    rows = limits.max_num_seqs
    is_bound = here.gain - 1 < (gpu.gain - 1) / 2
    start = "What this machine cannot show" if is_bound else "What this machine shows"
    slot = "costs little" if is_bound else "costs much of what a full one does"
    return (
        f"{start}: a step of {rows} decodes takes {amount(here.dearer)} times as long as a step of one "
        f"({seconds(here.full)} against {seconds(here.one)}), so a slot that static batching leaves empty "
        f"{slot}, and a burst of these {len(load):,} requests has {amount(here.gain)} times the throughput "
        f"under continuous batching that it has under static batching without padding. With the step times "
        f"of {MODEL} on one {GPU} (roofline) a step of {rows} takes {amount(gpu.dearer)} times as long as a "
        f"step of one, an empty slot costs as much as a full one, and the same burst has "
        f"{amount(gpu.gain)} times the throughput."
    )


def _wall(policy: Policy | Begins, cost: CostModel, load: Workload, limits: Limits) -> float:
    simulator = Simulator(Synchronous(policy), cost, limits)
    simulator.run(at_once(load, len(load)))
    return simulator.now


def _decodes(rows: int) -> Step:
    step = Step()
    step.quiet(rows, 0, rows * CONTEXT)
    return step
