"""The load of a scenario: opened, then cut and scaled in the order of the keys.

    between, sample, tile, requests, time_scale, prompt_scale, output_scale, rate
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from batchwright.durations import duration
from batchwright.errors import InputError
from batchwright.scenario.keys import Scenario
from batchwright.workload import Workload
from batchwright.workload.roles import checked, mapping


def load_of(scenario: Scenario) -> Workload:
    """The requests that are served.  Raises InputError."""
    reading = _given(seed=scenario.seed, columns=_columns(scenario.columns), time_unit=scenario.time_unit)
    load = Workload.open(scenario.workload, max_tokens=max_tokens_of(scenario.max_tokens), **reading)
    return _scaled(scenario, _head(scenario, _part(scenario, load)))


def _part(scenario: Scenario, load: Workload) -> Workload:
    if scenario.between is not None:
        start, colon, end = scenario.between.partition(":")
        if not colon:
            raise InputError(f"between is {scenario.between!r}; write start:end, such as 10m:20m")
        load = load.between(_instant(start, 0.0), _instant(end, inf))
    if scenario.sample is not None:
        load = load.sample(scenario.sample, scenario.seed or 0)
    return load if scenario.tile is None else load.tiled(scenario.tile)


def _instant(text: str, default: float) -> float:
    """Seconds from the first arrival; 0 needs no unit."""
    text = text.strip()
    return default if not text else 0.0 if text == "0" else duration(text, "between")


def _scaled(scenario: Scenario, load: Workload) -> Workload:
    factors = _given(time=scenario.time_scale, prompt=scenario.prompt_scale, output=scenario.output_scale)
    if factors:
        load = load.scaled(**factors)
    return load if scenario.rate is None else load.at_rate(scenario.rate)


def _head(scenario: Scenario, load: Workload) -> Workload:
    count = scenario.requests
    if count is None:
        return load
    if not 1 <= count <= len(load):
        raise InputError(
            f"--requests is {count}, but {load.name} has {len(load)} requests; give 1 to {len(load)}"
        )
    return load.head(count)


def max_tokens_of(given: int | str | None) -> Any:
    """A number, "exact" or None, from what a flag or a key says.  Raises InputError."""
    if given is None or given == "exact" or isinstance(given, int):
        return given
    if not (given.isascii() and given.isdecimal() and len(given) < 20):
        raise InputError(f"--max-tokens is {given!r}, but must be a whole number, or exact")
    return int(given)


def _columns(given: str | Mapping[str, str] | None) -> dict[str, str] | None:
    if given is None or isinstance(given, str):
        return None if given is None else mapping(given)
    return checked(given)


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
