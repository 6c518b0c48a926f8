"""What a step takes on the engine that is served, for policies that ask `batch.predict`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from batchwright.checkpoint import prompt_ids
from batchwright.contract import Begins, Policy
from batchwright.engines.engine import Engine
from batchwright.errors import InputError, PolicyError
from batchwright.limits import Limits
from batchwright.measured.bench import Bench
from batchwright.measured.calibration import calibrate
from batchwright.measured.report import calibration_lines
from batchwright.measured.step_time import StepTime
from batchwright.step import Step
from batchwright.workload import Workload

LEAST: Final = 24  # tokens of a sequence: the small loads of a calibration have as many
PROMPT: Final = 256  # tokens of the longest prompt that is measured,
OUTPUT: Final = 128  # and of the longest output


def unknown(step: Step) -> float:
    """Where nothing was measured."""
    raise PolicyError(
        "the policy asks what a step takes, which this server has not measured; start it with --calibrate"
    )


def calibrated(
    engine: Engine,
    limits: Limits,
    ids: npt.NDArray[np.int64],
    policy: Policy | Begins,
    say: Callable[[str], None],
) -> StepTime:
    """Measure steps of `engine`, with prompts of `ids`, and say how well the model fits.

    Raises InputError, and what the policy or the engine raises.
    """
    load = load_within(limits)
    bench = Bench(engine, limits, lambda r: prompt_ids(r, limits.block_size, ids, seed=0))
    say("calibrates, which takes about a minute")
    found = calibrate(bench, load, [policy], lambda text, share: None)
    for line in calibration_lines(found):
        say(f"  {line}")
    return found.step_time


def load_within(limits: Limits) -> Workload:
    """Requests such as chats have, but none longer than `limits` allow.  Raises InputError."""
    longest = limits.longest
    if longest < LEAST:
        raise InputError(
            f"--calibrate needs requests of {LEAST} tokens, but --max-model-len is {longest}; raise it"
        )
    output = min(OUTPUT, longest // 3)
    prompt = min(PROMPT, longest - output)
    return Workload.open(
        f"poisson(rate=4, n=64, prompt=uniform({min(32, prompt)},{prompt}), "
        f"output=uniform({min(16, output)},{output}))"
    )
