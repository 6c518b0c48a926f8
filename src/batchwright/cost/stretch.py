"""The time of so many quiet steps under any cost."""

from __future__ import annotations

from batchwright.cost.constant import Constant
from batchwright.cost.device import stretch_of_device
from batchwright.cost.hosted import Hosted
from batchwright.cost.model import CostModel, Stretch


def stretch_of(cost: CostModel, overlap: bool = False) -> Stretch:
    """The function (step, k) -> seconds of k quiet steps; `overlap`: a host hides behind its device.

    The function never changes the step, and raises CostError on a time that is not finite and
    greater than 0.  A cost with neither `stretch` nor `seconds` must be callable.
    """
    if isinstance(cost, Hosted):
        own = Hosted(cost.cost, cost.base, cost.per_running)  # whose sums nobody else adds to
        return own.overlapped if overlap else own.stretch
    return stretch_of_device(cost)


def empty_seconds(cost: CostModel) -> float:
    """Seconds of a step that computes nothing: the device rests, so a cost model is not asked.

    Such a step only preempts, or waits for the ends of the one before (asynchronous scheduling).
    """
    if isinstance(cost, Hosted):
        return cost.base + empty_seconds(cost.cost)
    return cost.empty if isinstance(cost, Constant) else 0.0
