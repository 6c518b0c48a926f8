"""Cost models as text: `constant(0.025)`, `linear(base=0.005, prefill=2e-5)`, `hosted(linear(0.005))`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final, NoReturn, cast

from batchwright.cost import Constant, Cost, Fitted, Hosted, Linear, Roofline
from batchwright.errors import InputError, nearest
from batchwright.expressions import expression, literal


def cost(text: str) -> Cost:
    """The cost model that a text such as `linear(base=0.005, prefill=2e-5)` describes.

    Models: constant, linear, fitted, roofline, layers, measured, hosted; arguments are numbers, quoted
    names, for fitted a list of pairs or, for hosted, another model.
    Raises InputError on anything else, CostError on a value out of range.
    """
    tree = expression(text)
    if not isinstance(tree, ast.Call):
        _refuse_text(text, "is not of the form model(argument=value)")
    return _built(tree, text)


def _layers(**values: Any) -> Cost:
    """A layer profile is read only where one is named: its reader is slow to import."""
    from batchwright.layer_profile import layers

    return layers(**values)


def _measured(**values: Any) -> Cost:
    """Its package is looked for only where it is named."""
    from batchwright.operators import measured

    return measured(**values)


_MODELS: Final[dict[str, Callable[..., Cost]]] = {
    "constant": Constant,
    "linear": Linear,
    "fitted": Fitted,
    "roofline": Roofline,
    "layers": _layers,
    "measured": _measured,
    "hosted": Hosted,
}
_KINDS: Final = {  # "a number" for all others
    "gpu": "a quoted name",
    "model": "a quoted name",
    "tp": "a whole number",
    "pp": "a whole number",
    "dp": "a whole number",
    "ep": "True or False",
    "folder": "a quoted name",
    "layers": "a whole number",
    "max_cudagraph_capture_size": "a whole number",
    "dtype": "a quoted name",
    "engine": "a quoted name",
    "version": "a quoted name",
    "quantization": "a quoted name",
    "kv_cache_dtype": "a quoted name",
    "cost": "a cost model",
    "tokens": "a list of pairs, [(tokens, seconds), ...]",
}
_ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {  # in order
    "constant": ("seconds", "empty"),
    "linear": ("base", "prefill", "decode", "context", "prefill_attention"),
    "fitted": ("tokens", "chunk", "decode", "context", "past", "prefill_attention"),
    "roofline": (
        "gpu", "model", "tp", "mfu", "mbu", "link", "fixed_seconds", "pp", "dp", "ep", "router_skew",
        "context_cv", "dtype", "quantization", "kv_cache_dtype",
    ),
    "layers": (
        "folder", "model", "tp", "layers", "step", "dp", "ep", "link", "hop", "max_cudagraph_capture_size",
    ),
    "measured": ("gpu", "model", "tp", "ep", "engine", "version", "quantization", "kv_cache_dtype"),
    "hosted": ("cost", "base", "per_running"),
}  # fmt: skip
_REQUIRED: Final[dict[str, int]] = {
    "constant": 1, "linear": 1, "fitted": 1, "roofline": 2, "layers": 1, "measured": 2, "hosted": 1,
}  # fmt: skip


def _built(call: ast.Call, text: str) -> Cost:
    name = call.func.id if isinstance(call.func, ast.Name) else ast.unparse(call.func)
    if name not in _MODELS:
        _refuse_text(text, f"names the unknown model {name!r}{nearest(name, _MODELS)}")
    order = _ARGUMENTS[name]
    if len(call.args) > len(order):
        _refuse_text(text, f"gives {name} {len(call.args)} arguments; it takes {', '.join(order)}")
    given = list(zip(order, call.args, strict=False))
    given += [(keyword.arg or "**", keyword.value) for keyword in call.keywords]
    values: dict[str, object] = {}
    for key, node in given:
        if key not in order:
            _refuse_text(text, f"gives {name} the unknown argument {key!r}{nearest(key, order)}")
        if key in values:
            _refuse_text(text, f"gives {key} of {name} twice")
        values[key] = _value(node, key, text)
    for key in order[: _REQUIRED[name]]:
        if key not in values:
            _refuse_text(text, f"lacks {key} of {name}")
    return _MODELS[name](**values)


def _value(node: ast.expr, key: str, text: str) -> object:
    kind = _KINDS.get(key, "a number")
    if kind == "a cost model" and isinstance(node, ast.Call):
        return _built(node, text)
    if kind == "True or False" and isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return node.value
    if key == "tokens" and _is_points(node):
        return ast.literal_eval(node)
    value = literal(node)
    if kind == "a quoted name" and isinstance(value, str):
        return value
    if kind == "a whole number" and isinstance(value, int):
        return value
    if kind == "a number" and _is_number(value):
        return float(cast("int | float", value))
    _refuse_text(text, f"needs {kind} as {key}, not {ast.unparse(node)}")


def _is_points(node: ast.expr) -> bool:
    """Pairs of numbers, and nothing else?"""
    pairs = node.elts if isinstance(node, (ast.List, ast.Tuple)) else []
    return bool(pairs) and all(
        isinstance(pair, (ast.List, ast.Tuple))
        and len(pair.elts) == 2
        and all(_is_number(literal(one)) for one in pair.elts)
        for pair in pairs
    )


def _is_number(value: object) -> bool:
    """One that a float can hold?"""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**300)


def _refuse_text(text: str, why: str) -> NoReturn:
    raise InputError(f"cost {text!r} {why}")
