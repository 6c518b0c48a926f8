"""How a load can be made once more with another seed.

Everything here can be pickled: functions of modules, and what they are called with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, ParamSpec

if TYPE_CHECKING:
    from batchwright.workload.columns import Columns
    from batchwright.workload.load import Workload
    from batchwright.workload.token_limit import TokenLimit

Maker = Callable[[int], "Workload"]  # seed to load
_P = ParamSpec("_P")


@dataclass(frozen=True, kw_only=True)
class Made:
    """Calls `function` with these arguments and a seed."""

    function: Callable[..., Workload]
    arguments: Mapping[str, Any]

    def __call__(self, seed: int) -> Workload:
        return self.function(**self.arguments, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Changed:
    """Makes a load with another seed, and changes it in the same way."""

    made: Maker
    change: Callable[..., Workload]
    arguments: tuple[Any, ...]

    def __call__(self, seed: int) -> Workload:
        return self.change(self.made(seed), *self.arguments)


def remade(function: Callable[_P, Workload]) -> Callable[_P, Workload]:
    """Let the loads of `function`, which takes a `seed`, know how to be made with another one.

    Arguments that it passes on are its `**rest`.
    """
    parameters = signature(function)

    @wraps(function)
    def make(*args: _P.args, **kwargs: _P.kwargs) -> Workload:
        load = function(*args, **kwargs)
        given = parameters.bind(*args, **kwargs)
        given.apply_defaults()
        arguments = {**given.arguments, **given.arguments.get("rest", {})}
        arguments.pop("rest", None)
        seed = arguments.pop("seed")
        return replace(load, made=Made(function=make, arguments=arguments), seed=seed)

    return make


def changed(
    load: Workload,
    change: Callable[..., Workload],
    *arguments: object,
    columns: Columns,
    limit: TokenLimit | None = None,
) -> Workload:
    """`load` with other columns, as `change` makes them; another seed is changed alike."""
    made = None if load.made is None else Changed(made=load.made, change=change, arguments=arguments)
    return replace(load, columns=columns, token_limit=limit or load.token_limit, made=made)
