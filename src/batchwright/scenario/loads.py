"""The load of a scenario: opened, then cut and scaled in the order of the keys.

    between, sample, tile, requests, time_scale, prompt_scale, output_scale, rate
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import inf
from typing import Any

from batchwright.durations import duration
from batchwright.errors import InputError
from batchwright.imported import read as read_measured
from batchwright.imported.load import load_of as load_of_measured
from batchwright.scenario.keys import Scenario
from batchwright.workload import Workload
from batchwright.workload.cells import counted
from batchwright.workload.load_text import longer
from batchwright.workload.roles import checked, mapping


def load_of(scenario: Scenario) -> Workload:
    """The requests that are served.  Raises InputError."""
    reading = _given(seed=scenario.seed, columns=_columns(scenario.columns), time_unit=scenario.time_unit)
    return _scaled(scenario, _head(scenario, _part(scenario, _opened(scenario, reading))))


def _opened(scenario: Scenario, reading: Mapping[str, Any]) -> Workload:
    """A trace or a load; or the requests of a file that a benchmark wrote, to be served again."""
    limit = max_tokens_of(scenario.max_tokens)
    try:
        return Workload.open(scenario.workload, max_tokens=limit, **reading)
    except InputError:
        load = _measured(scenario.workload) if os.path.exists(scenario.workload) else None
        if load is None:
            raise
    return load if limit is None else load.with_max_tokens(limit)


def _measured(path: str) -> Workload | None:
    """None: it is no file of measurements with requests."""
    try:
        return load_of_measured(read_measured(path)).workload
    except InputError:
        return None


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
    return default if not text else 0.0 if text == "0" else duration(text, "between", may_be_zero=True)


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
        has = f"{load.name} has {counted(len(load), 'request')}"
        raise InputError(f"--requests is {count}, but {has}; give 1 to {len(load)}{_or_more(scenario, load)}")
    return load.head(count)


def _or_more(scenario: Scenario, load: Workload) -> str:
    """The text of a made load that has as many requests as are asked for."""
    is_part = scenario.between is not None or scenario.sample is not None or scenario.tile is not None
    count = scenario.requests or 0
    if load.made is None or is_part or count < 1:
        return ""
    text = longer(scenario.workload, count)
    return "" if text is None else f", or make more: {text}"


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
