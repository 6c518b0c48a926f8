"""The load of a scenario."""

from __future__ import annotations

from typing import Any

from batchwright.errors import InputError
from batchwright.scenario.keys import Scenario
from batchwright.workload import Workload


def load_of(scenario: Scenario) -> Workload:
    """The requests that are served.  Raises InputError."""
    return _head(scenario, Workload.open(scenario.workload, max_tokens=_max_tokens(scenario.max_tokens)))


def _head(scenario: Scenario, load: Workload) -> Workload:
    count = scenario.requests
    if count is None:
        return load
    if not 1 <= count <= len(load):
        raise InputError(
            f"--requests is {count}, but {load.name} has {len(load)} requests; give 1 to {len(load)}"
        )
    return load.head(count)


def _max_tokens(given: int | str | None) -> Any:
    if given is None or given == "exact" or isinstance(given, int):
        return given
    if not (given.isascii() and given.isdecimal()):
        raise InputError(f"--max-tokens is {given!r}, but must be a whole number, or exact")
    return int(given)
