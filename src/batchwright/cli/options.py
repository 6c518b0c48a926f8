"""Commands that run a workload take every key of a scenario as a flag, and `--set`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from msgspec import Meta
from typer import Argument, Option

from batchwright.scenario.keys import MEASUREMENT, SERVER, WORKLOAD, Scenario

_LOAD: Final = Annotated[str, Argument(help="trace file, load such as chat, or scenario (.yaml)")]
_POLICIES: Final = ("policies", "policy_file", "batch_size")  # beside the load in the list of flags
_SET: Final = Annotated[
    list[str] | None, Option(help="key=value of a scenario; may be repeated", rich_help_panel=MEASUREMENT)
]


def scenario_command(own: Callable[..., None]) -> Callable[..., None]:
    """The command `own(scenario, ...)` with the argument LOAD and the flags of a scenario, then its own."""
    return _command(own, _FLAGS)


def load_command(own: Callable[..., None]) -> Callable[..., None]:
    """The same with those flags alone that make the load."""
    return _command(own, {name: kind for name, kind in _FLAGS.items() if _is_of_load(name, kind)})


def live_command(own: Callable[..., None]) -> Callable[..., None]:
    """The same with those flags alone that make sense on a real engine."""
    return _command(own, {name: kind for name, kind in _FLAGS.items() if _is_live(name, kind)})


def _command(own: Callable[..., None], kinds: dict[str, Any]) -> Callable[..., None]:
    def command(load: str, **given: Any) -> None:
        from batchwright.scenario.text import read

        flags = {name: given.pop(name) for name in kinds}
        own(read(load, flags, given.pop("set") or ()), **given)

    mine = list(inspect.signature(own, eval_str=True).parameters.values())[1:]
    parameters = [_parameter("load", _LOAD, inspect.Parameter.empty)]
    parameters += [_parameter(name, kind) for name, kind in kinds.items()] + [_parameter("set", _SET)]
    signature = inspect.Signature([*parameters, *mine])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: found.annotation for name, found in signature.parameters.items()}
    command.__doc__, command.__name__ = own.__doc__, own.__name__
    return command


def _is_of_load(name: str, kind: Any) -> bool:
    is_beside = get_args(kind)[1].rich_help_panel == WORKLOAD and name not in _POLICIES
    return is_beside or name == "seed"


def _is_live(name: str, kind: Any) -> bool:
    return get_args(kind)[1].rich_help_panel != SERVER and name != "block_size"


def _flag(kind: Any) -> Any:
    """The type of a flag, and its help, from a key of a scenario; None is not given."""
    accepted, meta = get_args(kind)[0], next(item for item in get_args(kind) if isinstance(item, Meta))
    extra = meta.extra or {}
    option = Option(*extra["flags"], help=meta.description, rich_help_panel=extra["panel"])
    return Annotated[_one_type(accepted) | None, option]


def _one_type(accepted: Any) -> Any:
    """What a flag is read as: the only type, or text where several would do."""
    kinds = get_args(accepted) if get_origin(accepted) in (Union, UnionType) else (accepted,)
    single = [kind for kind in kinds if kind is not type(None)]
    return single[0] if len(single) == 1 else str


def _parameter(name: str, kind: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


_FLAGS: Final[dict[str, Any]] = {
    name: _flag(kind)
    for name, kind in get_type_hints(Scenario, include_extras=True).items()
    if name != "workload"
}
