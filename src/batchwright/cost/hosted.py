"""A device and the host that schedules its steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchwright.cost.checks import check_not_negative
from batchwright.cost.device import closed_form, stretch_of_device
from batchwright.cost.layers import Layers
from batchwright.cost.model import CostModel, Stretch
from batchwright.cost.roofline import Roofline
from batchwright.cost.running_sum import RunningSum
from batchwright.cost.table import Table
from batchwright.errors import CostError
from batchwright.step import Step


@dataclass(frozen=True)
class Hosted:
    """A device and the host that schedules its steps in `base + per_running * running` seconds.

    running = decodes, padded rows and chunks.  The host's time adds to the device's; where scheduling
    is asynchronous (`overlapped`) the step takes the greater of both.
    Source of the defaults: schedule() and update of vLLM 0.32 on one CPU, 81 us at 8 running and
    254 us at 32.
    """

    cost: CostModel
    base: float = 20e-6
    per_running: float = 7.5e-6
    _device: Stretch = field(init=False, repr=False, compare=False)
    _overlap: Stretch = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_not_negative("hosted", "base", self.base)
        check_not_negative("hosted", "per_running", self.per_running)
        if isinstance(self.cost, Hosted):
            raise CostError("cost of hosted has a host already; give the model of its device")
        object.__setattr__(self, "_device", stretch_of_device(self.cost))
        summed = closed_form(self.cost) is None or isinstance(self.cost, Layers)  # which may get cheaper
        overlap = RunningSum(self._greater).stretch if summed else self._crossing
        object.__setattr__(self, "_overlap", overlap)

    def __reduce__(self) -> tuple[object, ...]:
        return Hosted, (self.cost, self.base, self.per_running)

    def host_seconds(self, step: Step) -> float:
        return self.base + self.per_running * (step.num_decodes + step.padded_rows + step.num_chunks)

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        return self._device(step, steps) + steps * self.host_seconds(step)

    def overlapped(self, step: Step, steps: int) -> float:
        """The same where the host's time hides behind the device's."""
        return self._overlap(step, steps)

    def _greater(self, step: Step) -> float:
        return max(self._device(step, 1), self.host_seconds(step))

    def _crossing(self, step: Step, steps: int) -> float:
        """The host is slower for the first steps, if at all: device time never falls in a stretch."""
        host = self.host_seconds(step)
        if self._device(step, 1) >= host:
            return self._device(step, steps)
        slow, fast = 0, steps  # the device is slower than the host from a step in (slow, fast] on
        while fast - slow > 1:
            middle = (slow + fast) // 2
            if self._device(step.later(middle), 1) >= host:
                fast = middle
            else:
                slow = middle
        if fast == steps:
            return steps * host
        return fast * host + self._device(step.later(fast), steps - fast)


def device_of(cost: CostModel) -> CostModel:
    """The model of the device, without its host."""
    return cost.cost if isinstance(cost, Hosted) else cost


def memory_of(cost: CostModel) -> Roofline | None:
    """What counts the memory of the GPUs of `cost`, and knows their model; None: it names none."""
    device = device_of(cost)
    if isinstance(device, Table):
        return device.memory
    return device if isinstance(device, Roofline) else None


def reads_extremes(cost: CostModel) -> bool:
    """Does it read the least and the greatest context of a step?"""
    return bool(getattr(device_of(cost), "reads_extremes", False))
