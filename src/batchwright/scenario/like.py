"""The key `like` of a scenario: a server's command, whose flags stand for keys that are not given.

What is given beside it wins, and is said.  Its policy runs beside those of the scenario.  A command that
was read stays in the scenario, so that it can be read again: that changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from msgspec import structs

from batchwright.errors import InputError
from batchwright.policies.text import split
from batchwright.scenario.keys import Scenario
from batchwright.server_command import ServerCommand, without_secrets
from batchwright.server_command import read as read_command

KEYS: Final = tuple(field.name for field in structs.fields(Scenario))
PRICED: Final = ("cost", "profile")  # keys that take the place of a GPU and a model
SERVER: Final = (
    "model", "tp", "pp", "dp", "enable_expert_parallel", "gpu_memory_utilization", "dtype", "quantization",
    "kv_cache_dtype", "kv_cache_memory_bytes",
)  # fmt: skip
MEMORY: Final = ("num_gpu_blocks_override", "gpu_memory_utilization", "kv_cache_memory_bytes")  # one of them


def with_like(keys: Mapping[str, Any]) -> dict[str, Any]:
    """The keys, and what the command in `like` says beside them.  Raises InputError."""
    text = keys.get("like")
    if text is None:
        return dict(keys)
    if not isinstance(text, str):
        raise InputError(f"like is {text!r}, not the command of a server as text; quote it")
    command = read_command(text, KEYS, keys.get("gpu"))
    out = _out(keys)
    told = {key: value for key, value in command.keys.items() if key not in out}
    own = {**keys, "like": without_secrets(text), "policies": _policies(command.policy, keys.get("policies"))}
    return {**told, **own}


def _out(keys: Collection[str]) -> set[str]:
    """Keys of the command that have no place beside those that are given."""
    found: set[str] = set()
    if any(key in keys for key in PRICED):
        found.update(SERVER)
    if any(key in keys for key in MEMORY):
        found.update(MEMORY)
    return found


def _policies(own: str, given: object) -> Any:
    """Those that are given, and the command's, once."""
    if isinstance(given, dict):
        return given if own in given.values() else {own: own, **given}
    listed = split(given) if isinstance(given, str) else list(given) if isinstance(given, list) else []
    return listed if own in listed else [own, *listed]


def like_notes(scenario: Scenario) -> Iterator[str]:
    """What was understood, and what of it does not count, for what is given beside it wins."""
    command = command_of(scenario)
    if command is None:
        return
    yield from command.lines()
    for key, value in command.keys.items():
        own = getattr(scenario, key)
        if own != value:
            yield (
                f"the {key} of --like, {value}, does not count beside what is given"
                if own is None
                else f"{key} is {own}, not the {value} of --like"
            )


def command_of(scenario: Scenario) -> ServerCommand | None:
    """The command of a scenario; None if it has none.

    Raises InputError if the scenario was made without `scenario.text.read`, which puts its flags in place.
    """
    if scenario.like is None:
        return None
    command = read_command(scenario.like, KEYS, scenario.gpu)
    policies = scenario.policies
    names = list(policies.values()) if isinstance(policies, dict) else policies
    if names is None or command.policy not in (split(names) if isinstance(names, str) else names):
        raise InputError("like is read with the scenario's text; use scenario.text.read, or leave it out")
    return command
