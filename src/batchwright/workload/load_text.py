"""Loads as text: `chat`, `poisson(rate=4, n=500)`, `mix(chat, closed(clients=8))`.

    load      name | name(argument=value, ...) | burst(n, ...) | servegen('file', ...) | mix(load, load, ...)
    value     number | law | 'file'
    law       uniform(a, b) | lognormal(mean=m, sigma=s) | geometric(m) | exponential(m) | empirical('file')

Names and arguments are those of the functions in `generated`, `multi_turn`, `servegen` and `laws`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from inspect import Parameter, signature
from typing import Any, Final, NoReturn

from batchwright.errors import InputError, nearest
from batchwright.expressions import expression, literal
from batchwright.workload import generated
from batchwright.workload.checks import GREATEST_SEED, check_seed, check_whole
from batchwright.workload.client_models import servegen
from batchwright.workload.laws import Empirical, Exponential, Geometric, Lognormal, Uniform
from batchwright.workload.lengths import shape_of
from batchwright.workload.load import Workload
from batchwright.workload.made import Changed
from batchwright.workload.multi_turn import sessions

LOADS: Final[dict[str, Callable[..., Workload]]] = {
    "chat": generated.chat,
    "article": generated.article,
    "poisson": generated.poisson,
    "gamma": generated.gamma,
    "weibull": generated.weibull,
    "constant": generated.constant,
    "onoff": generated.onoff,
    "diurnal": generated.diurnal,
    "burst": generated.burst,
    "closed": generated.closed,
    "sessions": sessions,
    "servegen": servegen,
}
LAWS: Final[dict[str, Callable[..., object]]] = {
    "uniform": Uniform,
    "lognormal": Lognormal,
    "geometric": Geometric,
    "exponential": Exponential,
    "empirical": Empirical,
}
EXAMPLES: Final = (  # one for each load, for whoever gives no file
    "chat", "article", "poisson(rate=4, n=1000)", "gamma(rate=4, cv=2)", "weibull(rate=4, cv=2)",
    "constant(rate=4)", "onoff(rate_on=8, on=10, off=30)", "diurnal(rate=4, peak=1.5)", "burst(100)",
    "closed(clients=8)", "sessions(rate=0.5, turns=4, think=20)", "servegen('folder')",
    "mix(chat, burst(100))",
)  # fmt: skip
_MIX: Final = "mix"
_BARE: Final = ("chat", "article")
_FIRST: Final = {"burst": "n", "servegen": "path"}  # arguments that need no name
_FILES: Final = ("lengths", "path")
_MOST_MIXED: Final = 1000
_APART: Final = 1 << 32  # between the seeds of the loads of a mix, so that no repetitions meet
_CALL: Final = re.compile(r"\s*[A-Za-z_]\w*\s*\(.*\)\s*", re.DOTALL)


def is_load(text: str) -> bool:
    """Does `text` look like a load, and not like the name of a file?"""
    return text in _BARE or _CALL.fullmatch(text) is not None


def unknown(text: str) -> str:
    """What to say of a text that is neither a file nor a load: the load that is near, or all of them."""
    examples = {example.partition("(")[0]: example for example in EXAMPLES}
    close = get_close_matches(text.strip().lower(), examples, n=1) if text.strip().isidentifier() else []
    loads = f"loads: {', '.join(examples)}"
    if not close:
        return f"give a trace file, or a load such as chat or {examples['poisson']}; {loads}"
    return f"did you mean the load {close[0]!r}? write {examples[close[0]]}; {loads}"


def longer(text: str, n: int) -> str | None:
    """The same load with `n` requests; None if that is not one argument of it."""
    tree = expression(text)
    call = ast.Call(tree, [], []) if isinstance(tree, ast.Name) else tree
    if not isinstance(call, ast.Call) or ast.unparse(call.func) not in LOADS.keys() - {"servegen"}:
        return None
    keywords = [keyword for keyword in call.keywords if keyword.arg != "n"]
    return ast.unparse(ast.Call(call.func, [], [*keywords, ast.keyword("n", ast.Constant(n))]))


def load_of(text: str, seed: int = 0) -> Workload:
    """The load that `text` describes; `seed` is that of all loads in it that do not say theirs.

    Raises InputError on anything else.
    """
    check_seed(seed)
    tree = expression(text)
    if tree is None:
        _refuse(text, "is not of the form name(argument=value)")
    load = _load(tree, text, seed)
    name = " ".join(text.split())
    return load if name == load.name else _named(load, name)


def _named(load: Workload, name: str) -> Workload:
    """The same under another name, whatever the seed."""
    made = None if load.made is None else Changed(made=load.made, change=_named, arguments=(name,))
    return replace(load, name=name, made=made)


def _load(node: ast.expr, text: str, seed: int) -> Workload:
    if isinstance(node, ast.Name) and node.id in _BARE:
        return LOADS[node.id](seed=seed)
    if not isinstance(node, ast.Call):
        _refuse(text, f"names no load with {ast.unparse(node)!r}; write name(argument=value)")
    name = ast.unparse(node.func)
    if name == _MIX:
        return _mix(node, text, seed)
    if name not in LOADS:
        _refuse(text, f"names the unknown load {name!r}{nearest(name, [*LOADS, _MIX])}")
    return _made(name, node, text, seed)


def _mix(node: ast.Call, text: str, seed: int) -> Workload:
    """A mix; each of its loads without a seed gets one that is far from the others'."""
    first = _keywords(node, "mix", ("seed",), text).get("seed", seed)
    count = len(node.args)
    check_whole("the number of loads of a mix", count, 1, _MOST_MIXED)
    check_whole("seed of a mix", first, 0, GREATEST_SEED - _APART * count)
    load = Workload.mix([_load(part, text, first + _APART * i) for i, part in enumerate(node.args)])
    note = f"load i of the mix, from 0, has seed {first} + {_APART} i, unless it says another"
    return replace(load, columns=load.columns.noted(note)) if count > 1 else load


def _made(name: str, node: ast.Call, text: str, seed: int) -> Workload:
    parameters = signature(LOADS[name]).parameters
    known = [key for key in parameters if key != "rest"]
    if "rest" in parameters:
        known += [key for key in signature(shape_of).parameters if key not in known]
    values = _keywords(node, name, known, text)
    first = _FIRST.get(name)
    if first is not None and len(node.args) == 1 and first not in values:
        values[first] = _value(node.args[0], first, text)
    elif node.args:
        what = f"gives {name} {ast.unparse(node.args[0])} without a name"
        _refuse(text, f"{what}; its arguments are {_listed(known)}")
    for key, parameter in parameters.items():
        if parameter.default is Parameter.empty and key != "rest" and key not in values:
            _refuse(text, f"lacks {key} of {name}")
    return LOADS[name](**{"seed": seed, **values})


def _keywords(node: ast.Call, name: str, known: Iterable[str], text: str) -> dict[str, Any]:
    names = list(known)
    values: dict[str, Any] = {}
    for keyword in node.keywords:
        key = keyword.arg or "**"
        if key not in names:
            _refuse(text, f"gives {name} the unknown argument {key!r}{nearest(key, names)}")
        if key in values:
            _refuse(text, f"gives {key} of {name} twice")
        values[key] = _value(keyword.value, key, text)
    return values


def _value(node: ast.expr, key: str, text: str) -> Any:
    """A number, a law, or a load whose lengths are drawn."""
    if isinstance(node, ast.Call):
        return _law(node, key, text)
    value = literal(node)
    if isinstance(value, str) and key in _FILES:
        return Workload.open(value) if key == "lengths" else value
    if isinstance(value, (int, float)) and key not in _FILES:
        return value
    wanted = "a quoted file" if key in _FILES else "a number or a law"
    _refuse(text, f"needs {wanted} as {key}, not {ast.unparse(node)}")


def _law(node: ast.Call, key: str, text: str) -> object:
    name = ast.unparse(node.func)
    if name not in LAWS:
        _refuse(text, f"names the unknown law {name!r} as {key}{nearest(name, LAWS)}")
    if name == "empirical":
        return _empirical(node, key, text)
    parameters = signature(LAWS[name]).parameters
    values = _keywords(node, name, parameters, text)
    order = [key for key, found in parameters.items() if found.kind is not Parameter.KEYWORD_ONLY]
    if len(node.args) > len(order):
        _refuse(text, f"gives {name} arguments without a name; it takes {_listed(parameters)}")
    for given, argument in zip(order, node.args, strict=False):
        if given in values:
            _refuse(text, f"gives {given} of {name} twice")
        values[given] = _value(argument, given, text)
    for given, parameter in parameters.items():
        if parameter.default is Parameter.empty and given not in values:
            _refuse(text, f"lacks {given} of {name}")
    return LAWS[name](**values)


def _empirical(node: ast.Call, key: str, text: str) -> Empirical:
    """The prompts of a file as `prompt`, its outputs as `output`."""
    path = literal(node.args[0]) if len(node.args) == 1 and not node.keywords else None
    if not isinstance(path, str) or key not in ("prompt", "output"):
        _refuse(text, "needs empirical('file') as prompt or output; for both together use lengths='file'")
    load = Workload.open(path)
    return Empirical(load.prompt if key == "prompt" else load.output)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"{name}=" for name in names)


def _refuse(text: str, why: str) -> NoReturn:
    raise InputError(f"load {' '.join(text.split())!r} {why}")
