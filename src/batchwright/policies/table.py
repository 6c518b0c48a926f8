"""Policies by name, and their text form: `static(batch_size=32),dynamic(window=0.25),vllm@0.19`.

The same text works on the command line, in YAML and in Python.  `name@version` sets the
version; values are numbers, true, false, none, words, or lists in brackets.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import Any, Final

from batchwright.errors import InputError, nearest
from batchwright.expressions import expression
from batchwright.policies.dynamic import Dynamic
from batchwright.policies.lightllm import Lightllm
from batchwright.policies.lmdeploy import Lmdeploy
from batchwright.policies.orca import Orca
from batchwright.policies.static import Static
from batchwright.policies.tgi import Tgi
from batchwright.policies.vllm import Vllm

POLICIES: Final[dict[str, type]] = {
    "static": Static,
    "dynamic": Dynamic,
    "orca": Orca,
    "vllm": Vllm,
    "continuous": Vllm,
    "tgi": Tgi,
    "lightllm": Lightllm,
    "lmdeploy": Lmdeploy,
}
_ITEM: Final = re.compile(r"([A-Za-z_][\w-]*)(?:@([\w.]+))?\s*(\(.*\))?", re.DOTALL)
_FLAG: Final = re.compile(r"[A-Za-z_][\w-]*(?=\s*=)")
_WORDS: Final = {"true": True, "false": False, "none": None}


def policies(text: str) -> dict[str, Any]:
    """The policies of a comma-separated list, by their text.  Raises InputError."""
    found: dict[str, Any] = {}
    for item in _split(text):
        if item in found:
            raise InputError(f"policy {item!r} is listed twice; leave one out")
        found[item] = policy(item)
    if not found:
        raise InputError("no policy is named; give for instance static,dynamic,continuous")
    return found


def policy(text: str) -> Any:
    """The policy of one text such as `vllm@0.19(max_num_seqs=64)`.  Raises InputError."""
    match = _ITEM.fullmatch(text.strip())
    if match is None:
        raise InputError(f"policy {text!r} is not of the form name, name@version or name(flag=value)")
    name, version, arguments = match.groups()
    kind = POLICIES.get(name.lower())
    if kind is None:
        raise InputError(f"unknown policy {name!r}{nearest(name, POLICIES)}")
    known = [field.name for field in fields(kind)]
    values = _arguments(name, known, arguments or "()")
    if "version" in values:
        values["version"] = str(values["version"])
    if version is not None:
        if "version" not in known:
            raise InputError(f"policy {name!r} has no versions; write {name}{arguments or ''}")
        if "version" in values:
            raise InputError(f"policy {name!r}: version is given twice; leave one out")
        values["version"] = version
    return kind(**values)


def _split(text: str) -> list[str]:
    """The items between commas outside brackets."""
    items, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            items.append(text[start:i].strip())
            start = i + 1
    items.append(text[start:].strip())
    return [item for item in items if item]


def _arguments(name: str, known: list[str], text: str) -> dict[str, Any]:
    text = _FLAG.sub(lambda match: match[0].replace("-", "_"), text)
    call = expression(f"f{text}")
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise InputError(f"policy {name!r}: {text!r} cannot be read; write {name}(flag=value, flag=value)")
    if len(call.args) > len(known):
        raise InputError(f"policy {name!r} takes at most {len(known)} values, but {len(call.args)} are given")
    values = {key: _value(name, node) for key, node in zip(known, call.args, strict=False)}
    for keyword in call.keywords:
        key = keyword.arg or "**"
        if key not in known:
            raise InputError(f"policy {name!r} has no flag {key!r}{nearest(key, known)}")
        if key in values:
            raise InputError(f"policy {name!r}: {key} is given twice; leave one out")
        values[key] = _value(name, keyword.value)
    return values


def _value(name: str, node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return _WORDS.get(node.id.lower(), node.id)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        raise InputError(f"policy {name!r}: {ast.unparse(node)!r} is not a number, word or list") from None
    return tuple(value) if isinstance(value, list) else value
