"""`--like` of commands whose flags are no keys of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from typer import Context

from batchwright.errors import InputError
from batchwright.server_command import ServerCommand, read

VLLM = "vllm"


class Taken(NamedTuple):
    """`values`: with what the command says for flags that are not given.  `lines`: for the user."""

    values: dict[str, Any]
    lines: list[str]
    command: ServerCommand


def of_vllm(context: Context, like: str, values: Mapping[str, Any]) -> Taken:
    """What a command of vLLM says beside the flags of `context`, which have `values`.

    Raises InputError on a command of another engine.
    """
    command = read(like, values.keys())
    if command.engine != VLLM:
        raise InputError(
            f"--like starts {command.title}, but KV blocks are counted as vLLM does; give its command"
        )
    told = {**command.keys, **({} if command.version is None else {"engine": f"{VLLM}@{command.version}"})}
    lines, taken = list(command.lines()), dict(values)
    for key, value in told.items():
        if _is_given(context, key):
            lines.append(f"{key} is {values[key]}, not the {value} of --like")
        else:
            taken[key] = value
    return Taken(taken, lines, command)


def _is_given(context: Context, key: str) -> bool:
    source = context.get_parameter_source(key)
    return source is not None and source.name == "COMMANDLINE"
