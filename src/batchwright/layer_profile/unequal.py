"""How unequal contexts lengthen attention, as a profile measured it: `skew_fit.csv`."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path
from typing import Any

from batchwright.cost.skew import NO_SKEW, Key, Skew
from batchwright.errors import InputError
from batchwright.layer_profile.table import counts, number, read_table, rows_of

LABELS = ("n_label", "skew_rate_label", "kv_big_label", "kp_label")
MOST_ALPHA = 100.0  # measured: -4 to 5
ALPHA = f"a number from -{MOST_ALPHA:g} to {MOST_ALPHA:g}"
_LABEL = re.compile(r"[A-Za-z]+(<=|=|>)([0-9]+)(k?)(%?)")


def read_skew(path: Path, default: float) -> Skew:
    """The classes of a file; `default`: alpha where it has none.  Raises InputError."""
    table = read_table(path, ("pc", "alpha"), LABELS)
    edges: list[list[float]] = []
    places = [counts(path, table, "pc").tolist()]
    for name in LABELS:
        tops = [_top(path, at, name, text) for at, text in enumerate(table[name], 2)]
        edges.append(sorted({*tops, inf}))
        places.append([edges[-1].index(top) for top in tops])
    alpha = [_alpha(path, at, text) for at, text in enumerate(table["alpha"], 2)]
    keys: list[Key] = [(a, b, c, d, e) for a, b, c, d, e in zip(*places, strict=True)]
    kept = rows_of(table, "layer", "attention").tolist()
    found = {key: value for key, value, is_ours in zip(keys, alpha, kept, strict=True) if is_ours}
    return Skew(edges, found, default)


def skew_of(tables: Path, meta: dict[str, Any], tp: int) -> Skew:
    """The skew of a profile: none if it has no file of it, or says that its fit is off.

    Where nothing was measured, such as between the measured numbers of prompt tokens, alpha is the one
    that the profile pooled over all its measurements.  Raises InputError.
    """
    path, fit = tables / "skew_fit.csv", _within(tables, meta, "skew_fit")
    if not path.exists() or not fit.get("enabled", True):
        return NO_SKEW
    per_tp = _within(tables, fit, "per_tp")
    entry = _within(tables, per_tp, tp) or _within(tables, per_tp, str(tp))
    default = entry.get("alpha_default", 0.0)
    if not isinstance(default, int | float) or not abs(default) <= MOST_ALPHA:
        raise InputError(f"{tables}: alpha_default of meta.yaml is {default!r}, but must be {ALPHA}")
    return read_skew(path, float(default))


def _within(tables: Path, whole: dict[Any, Any], key: str | int) -> dict[Any, Any]:
    """A mapping of meta.yaml; empty if it is missing.  Raises InputError on anything else."""
    found = whole.get(key)
    if found is not None and not isinstance(found, dict):
        raise InputError(f"{tables}: {key} of meta.yaml is {found!r}, but must be a mapping; profile again")
    return found or {}


def _alpha(path: Path, at: int, text: str) -> float:
    value = number(path, at, "alpha", text)
    if abs(value) > MOST_ALPHA:
        raise InputError(f"{path}:{at}: alpha is {text!r}, but must be {ALPHA}")
    return value


def _top(path: Path, at: int, name: str, text: str) -> float:
    """The greatest value of a class from its label: `n<=64`, `kvB<=16k`, `sr<=15%`, `kp=0`, `n>256`."""
    found = _LABEL.fullmatch(text)
    if found is None:
        raise InputError(f"{path}:{at}: {name} is {text!r}, but must be of the form n<=64 or sr>70%")
    if found[1] == ">":
        return inf
    return int(found[2]) * (1024 if found[3] else 1) / (100 if found[4] else 1)
