"""What a user promises of a prediction: `--bound e2e.mean=5%`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, isnan

from batchwright.errors import InputError, nearest
from batchwright.validation.lines import Line


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The greatest error of one line, in absolute value."""

    key: str
    most: float

    def is_broken(self, lines: Mapping[str, Line]) -> bool:
        """Is the error greater?  One that cannot be told is."""
        error = lines[self.key].error
        return isnan(error) or abs(error) > self.most


def read_bounds(texts: Sequence[str], lines: Mapping[str, Line]) -> list[Bound]:
    """`e2e.mean=5%`; a name may leave out its unit.  Raises InputError."""
    return [_read(text, lines) for text in texts]


def _read(text: str, lines: Mapping[str, Line]) -> Bound:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals:
        raise InputError(f"--bound is {text!r}; give a number and its greatest error, as e2e.mean=5%")
    names = {_short(key): key for key in lines} | {key: key for key in lines}
    if name not in names:
        raise InputError(f"--bound: no number is called {name!r}{nearest(name, names)}")
    key = names[name]
    if not lines[key].is_defined:
        raise InputError(f"--bound: {name} is not known on both sides; leave it out")
    return Bound(key=key, most=_share(text, value))


def _short(key: str) -> str:
    """Without its unit: `e2e.mean` for `e2e_s.mean`."""
    name, dot, which = key.partition(".")
    return f"{name.removesuffix('_s')}{dot}{which}"


def _share(text: str, value: str) -> float:
    try:
        share = float(value.removesuffix("%")) / 100
    except ValueError:
        share = -1.0
    if not value.endswith("%") or not isfinite(share) or share < 0:
        raise InputError(f"--bound is {text!r}; give the greatest error in per cent, as e2e.mean=5%")
    return share
