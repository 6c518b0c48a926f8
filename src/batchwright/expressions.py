"""Texts of the form name(argument=value): Python's own grammar reads them, and nothing in them is run."""

from __future__ import annotations

import ast


def expression(text: str) -> ast.expr | None:
    """The syntax tree of `text`; None if it is no expression."""
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def literal(node: ast.expr) -> object:
    """A number or a text; None for anything else, True and False included."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = literal(node.operand)
        return -value if isinstance(value, (int, float)) else None
    value = node.value if isinstance(node, ast.Constant) else None
    return None if isinstance(value, bool) else value
