"""What one step costs in seconds.

    Constant    a
    Linear      a + p * prompt tokens + d * rows + c * KV tokens read + q * prefill attention
    Fitted      the same in pieces along the tokens of a step
    Roofline    max(FLOPs / rate, bytes / bandwidth) of the matrices + the same of attention
                + what GPUs send one another + launch
    Table       tables of measured operators: of all tokens + of attention + of the output head
    Layers      the layers of a model, each measured by itself (see `layer_profile`)
    Hosted      a model of the device + the host's time, which adds to it or hides behind it
    any callable from Step to seconds

`stretch(step, k)` is the time of k quiet steps, the first of which is `step`.  The models
here give it in closed form; `stretch_of` gives every other cost a running sum.
"""

from __future__ import annotations

from batchwright.cost.checks import GREATEST, LEAST
from batchwright.cost.constant import Constant
from batchwright.cost.features import FEATURES, Range, features
from batchwright.cost.fitted import Fitted
from batchwright.cost.hosted import Hosted, device_of, memory_of, reads_extremes
from batchwright.cost.layers import ExpertTimes, Layers, LayerTimes
from batchwright.cost.linear import Linear
from batchwright.cost.model import Cost, CostModel, Stretch
from batchwright.cost.roofline import FASTEST, Roofline
from batchwright.cost.running_sum import RunningSum
from batchwright.cost.stretch import empty_seconds, stretch_of
from batchwright.cost.table import OperatorTimes, Table
from batchwright.hardware.engine import UTILIZATION

__all__ = [
    "FASTEST",
    "FEATURES",
    "GREATEST",
    "LEAST",
    "UTILIZATION",
    "Constant",
    "Cost",
    "CostModel",
    "ExpertTimes",
    "Fitted",
    "Hosted",
    "LayerTimes",
    "Layers",
    "Linear",
    "OperatorTimes",
    "Range",
    "Roofline",
    "RunningSum",
    "Stretch",
    "Table",
    "device_of",
    "empty_seconds",
    "features",
    "memory_of",
    "reads_extremes",
    "stretch_of",
]
