"""What the formulas need to know of a load: rate, burstiness, and moments of its lengths."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, nan

import numpy as np

from batchwright.errors import InputError
from batchwright.limits import Limits
from batchwright.metrics import Numbers
from batchwright.theory import continuous, lengths
from batchwright.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Means over the requests that are served; lengths in tokens.

    rate, gap_cv2    arrivals per second (inf: all at once; nan: only a run knows), CV^2 of the gaps
    prompts, outputs one value per request that is served, in order; `law`: of the outputs
    prompt, output   means; `pairs`: mean of prompt^2 / 2, what a whole prompt attends to
    area, read       KV tokens held times steps, and read by decodes, per request
    """

    rate: float
    gap_cv2: float
    prompts: Numbers
    outputs: Numbers
    law: lengths.Law
    prompt: float
    output: float
    pairs: float
    area: float
    read: float

    @property
    def resident_tokens(self) -> float:
        """KV tokens that one decode reads, mean over decodes."""
        return self.read / (self.output - 1) if self.output > 1 else 0.0

    def steady_rate(self) -> float:
        """Raises InputError where the load has no arrival rate."""
        if self.rate == inf:
            raise InputError("all requests come at once: there is no rate of arrivals; give a load with one")
        if isnan(self.rate):
            raise InputError("requests follow others: only a run knows their rate; give a load with arrivals")
        return self.rate


def facts(load: Workload, limits: Limits) -> Facts:
    """The facts of `load`, its outputs cut to `max_model_len`.  Raises InputError if none is served."""
    served = np.flatnonzero(load.prompt < limits.longest)
    if len(served) == 0:
        raise InputError(f"{load.name}: no prompt is under max_model_len {limits.longest}; raise it")
    prompts = load.prompt[served].astype(np.int64)
    outputs = np.minimum(load.output[served], limits.longest - prompts)
    return Facts(
        rate=nan if load.has_followers else load.rate,
        gap_cv2=nan if load.has_followers else load.gap_cv**2,
        prompts=prompts,
        outputs=outputs,
        law=lengths.empirical(outputs),
        prompt=float(prompts.mean()),
        output=float(outputs.mean()),
        pairs=float((prompts.astype(float) ** 2).mean() / 2),
        area=continuous.kv_area(prompts, outputs) + float(outputs.mean()) * (limits.block_size - 1) / 2,
        read=continuous.kv_read(prompts, outputs),
    )
