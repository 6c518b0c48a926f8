"""`--cost measured`: operators as they were measured, for the GPU, the model and the split of a scenario."""

from __future__ import annotations

from typing import Final

from batchwright.cost import Table
from batchwright.errors import InputError
from batchwright.operators import measured
from batchwright.scenario.keys import Scenario
from batchwright.scenario.split import Split

MEASURED: Final = "measured"  # the text of such a cost


def measured_table(scenario: Scenario, gpu: str, model: str, split: Split) -> Table:
    """The tables.  Raises InputError on what no operators were measured for."""
    for flag, is_given in (("--pp", split.pp > 1), ("--dp", split.dp > 1), ("--dtype", scenario.dtype)):
        if is_given:
            raise InputError(f"{flag} is given, but measured times are of one server; leave it out")
    return measured(
        gpu,
        model,
        split.tp,
        split.ep,
        quantization=scenario.quantization,
        kv_cache_dtype=scenario.kv_cache_dtype or "auto",
    )
