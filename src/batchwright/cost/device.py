"""The time of so many quiet steps on a device: closed forms where there are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from batchwright.cost.checks import GREATEST, checked
from batchwright.cost.constant import Constant
from batchwright.cost.fitted import Fitted
from batchwright.cost.layers import Layers
from batchwright.cost.linear import Linear
from batchwright.cost.model import CostModel, Stretch
from batchwright.cost.roofline import Roofline
from batchwright.cost.running_sum import RunningSum
from batchwright.cost.table import Table
from batchwright.errors import CostError
from batchwright.step import Step


class _Checked:
    """A stretch of the user's own, with its times checked."""

    def __init__(self, stretch: Callable[[Step, int], object]) -> None:
        self._stretch = stretch

    def stretch(self, step: Step, steps: int) -> float:
        return checked(self._stretch(step, steps), step, steps * GREATEST)


def stretch_of_device(cost: CostModel) -> Stretch:
    """The function (step, k) -> seconds of k quiet steps.  Raises CostError on what is no cost model."""
    if isinstance(cost, type):
        raise CostError(f"{cost.__name__} is a class, not a cost model; make an object of it")
    closed = closed_form(cost)
    if closed is not None:
        return closed
    seconds = getattr(cost, "seconds", cost)
    if not callable(seconds):
        raise CostError(f"{cost!r} is no cost model; give one with seconds(step), or a function of a step")
    return RunningSum(seconds).stretch


def closed_form(cost: Any) -> Stretch | None:
    """The stretch that the model of a device offers; None: it has only single steps."""
    if isinstance(cost, (Constant, Linear, Fitted, Roofline, Table, Layers)):
        stretch: Stretch = cost.stretch
        return stretch
    own = getattr(cost, "stretch", None)
    return _Checked(own).stretch if callable(own) else None
