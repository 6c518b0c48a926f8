"""In which numbers a scenario's model is served: its keys, and what engines and costs are told of them."""

from __future__ import annotations

from typing import Final

from batchwright.hardware.quantization import ONLINE
from batchwright.scenario.keys import Scenario

PRECISION: Final = ("dtype", "quantization", "kv_cache_dtype")  # keys of a scenario


def precision_of(scenario: Scenario) -> dict[str, str]:
    """What the scenario gives, by name."""
    given = {key: getattr(scenario, key) for key in PRECISION}
    return {key: value for key, value in given.items() if value is not None}


def serve_flags(scenario: Scenario) -> dict[str, str]:
    """The same as flags of `vllm serve`, which finds for itself how a checkpoint is stored."""
    found = precision_of(scenario)
    if found.get("quantization") not in ONLINE:
        found.pop("quantization", None)
    return found


def needs_checkpoint(scenario: Scenario) -> bool:
    """Is another checkpoint served than the model's own: one that is stored in the quantization given?"""
    return scenario.quantization is not None and scenario.quantization not in ONLINE


def in_words(scenario: Scenario) -> str:
    """What is given, for the name of a cost: `, fp8, KV in fp8_e4m3`."""
    found = precision_of(scenario)
    words = [found[key] for key in ("dtype", "quantization") if key in found]
    words += [f"KV in {found['kv_cache_dtype']}"] if "kv_cache_dtype" in found else []
    return "".join(f", {word}" for word in words)
