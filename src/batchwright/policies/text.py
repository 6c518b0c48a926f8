"""Texts of the form `name@version(flag=value, flag=value)`, read with a table of classes by name.

A value is a number, true, false, none, a word (`fcfs`, `dfs-weight`), or a list of these in brackets.
A flag that holds something with flags of its own, such as another policy, is a field with the metadata
`part`, and is read in the same way:  `ordered(order=sjf(sigma=0.5), policy=vllm@0.19(max_num_seqs=64))`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from batchwright.errors import InputError, nearest
from batchwright.expressions import expression

DEEPEST: Final = 16  # brackets in brackets
_ITEM: Final = re.compile(r"([A-Za-z_][\w-]*)(?:@([\w.]+))?\s*(\(.*\))?", re.DOTALL)
_FLAG: Final = re.compile(r"[A-Za-z_][\w-]*(?=\s*=)")
_GIVEN: Final = re.compile(r"\s*(?:([A-Za-z_][\w-]*)\s*=(?!=))?\s*(.*)", re.DOTALL)
_WORDS: Final = {"true": True, "false": False, "none": None}
_PART: Final = "part"


def part(reader: Callable[[str], Any] | None = None) -> dict[str, Any]:
    """Metadata of a field whose value `reader` reads from its text, or each one of a list in brackets.

        policy: Any = field(default=None, metadata=part())

    None: as that in which it stands, so a policy within a policy is found in the same table.
    """
    return {_PART: reader}


def read(text: str, kinds: Mapping[str, type], word: str = "policy") -> Any:
    """The object of one text such as `vllm@0.19(max_num_seqs=64)`; `word`: what it is.  Raises InputError."""
    match = _ITEM.fullmatch(text.strip())
    if _depth(text) > DEEPEST:
        raise InputError(f"{word} {text[:40]!r}... has over {DEEPEST} brackets in brackets; write less")
    if match is None:
        raise InputError(f"{word} {text!r} is not of the form name, name@version or name(flag=value)")
    name, version, arguments = match.groups()
    kind = _kind(name, kinds)
    if kind is None:
        raise InputError(f"unknown {word} {name!r}{nearest(name, kinds)}")
    known = [flag.name for flag in fields(kind)]
    given, parts = _parts(kind, arguments or "()", lambda inner: read(inner, kinds, word))
    values = _arguments(f"{word} {name!r}", name, known, given) | parts
    if "version" in values:
        values["version"] = str(values["version"])
    if version is not None:
        if "version" not in known:
            raise InputError(f"{word} {name!r} has no versions; write {name}{arguments or ''}")
        if "version" in values:
            raise InputError(f"{word} {name!r}: version is given twice; leave one out")
        values["version"] = version
    return kind(**values)


def _kind(name: str, kinds: Mapping[str, type]) -> type | None:
    """The class of that name, which may be printed as the class is: `VllmV0` is `vllm_v0`."""
    plain = name.lower().replace("_", "").replace("-", "")
    return next((kind for known, kind in kinds.items() if known.replace("_", "") == plain), None)


def read_list(text: str, reader: Callable[[str], Any]) -> dict[str, Any]:
    """What `reader` reads from each text of a comma-separated list, by that text.  Raises InputError."""
    found: dict[str, Any] = {}
    for item in split(text):
        if item in found:
            raise InputError(f"policy {item!r} is listed twice; leave one out")
        found[item] = reader(item)
    if not found:
        raise InputError("no policy is named; give for instance static,dynamic,continuous")
    return found


def split(text: str) -> list[str]:
    """The items between commas outside brackets."""
    items, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            items.append(text[start:i].strip())
            start = i + 1
    items.append(text[start:].strip())
    return [item for item in items if item]


def _depth(text: str) -> int:
    """Brackets within brackets, at most."""
    depth = deepest = 0
    for char in text:
        depth += (char in "([") - (char in ")]")
        deepest = max(deepest, depth)
    return deepest


def _parts(kind: type, text: str, same: Callable[[str], Any]) -> tuple[str, dict[str, Any]]:
    """`text` with none in place of every value that is read by itself, and these values by flag."""
    readers = {flag.name: flag.metadata[_PART] or same for flag in fields(kind) if _PART in flag.metadata}
    if not readers:
        return text, {}
    known = [flag.name for flag in fields(kind)]
    left: list[str] = []
    found: dict[str, Any] = {}
    for i, item in enumerate(split(text[1:-1])):
        match = _GIVEN.fullmatch(item)
        assert match is not None
        key = match[1].replace("-", "_") if match[1] else known[i] if i < len(known) else ""
        if key in readers:
            found[key] = _part_value(match[2], readers[key])
            item = f"{match[1]}=none" if match[1] else "none"
        left.append(item)
    return f"({', '.join(left)})", found


def _part_value(text: str, reader: Callable[[str], Any]) -> Any:
    text = text.strip()
    if text.lower() == "none":
        return None
    if text[:1] in ("[", "(") and text[-1:] in ("]", ")"):
        return tuple([_part_value(item, reader) for item in split(text[1:-1])])
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return reader(text[1:-1] if is_quoted else text)


def _arguments(where: str, name: str, known: list[str], text: str) -> dict[str, Any]:
    text = _FLAG.sub(lambda match: match[0].replace("-", "_"), text)
    call = expression(f"f{text}")
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise InputError(f"{where}: {text!r} cannot be read; write {name}(flag=value, flag=value)")
    if len(call.args) > len(known):
        raise InputError(f"{where} takes at most {len(known)} values, but {len(call.args)} are given")
    values = {key: _value(where, node) for key, node in zip(known, call.args, strict=False)}
    for keyword in call.keywords:
        key = keyword.arg or "**"
        if key not in known:
            raise InputError(f"{where} has no flag {key!r}{nearest(key, known)}")
        if key in values:
            raise InputError(f"{where}: {key} is given twice; leave one out")
        values[key] = _value(where, keyword.value)
    return values


def _value(where: str, node: ast.expr) -> Any:
    word = _word(node)
    if word:
        return _WORDS.get(word.lower(), word)
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError):
        raise InputError(f"{where}: {ast.unparse(node)!r} is not a number, word or list") from None
    return tuple(value) if isinstance(value, list) else value


def _word(node: ast.expr) -> str:
    """The word that `node` is, or words joined by hyphens, as engines have them; empty if it is neither."""
    words: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Name):
        words.append(node.right.id)
        node = node.left
    if not isinstance(node, ast.Name):
        return ""
    return "-".join([node.id, *reversed(words)])
