"""What a comparison with a set of measurements found.

A study is a module of this package with `study(data: Path) -> Study`, where `data` is the folder of
the measurements; it never fits on what it predicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number.  `others`: what other simulators predicted of the same run, by name.

    `bound`: the greatest relative error, in absolute value, that is promised; inf: none.
    """

    what: str
    unit: str
    predicted: float
    measured: float
    others: Mapping[str, float] = field(default_factory=dict)
    bound: float = inf

    @property
    def error(self) -> float:
        """Relative to what was measured, with its sign."""
        return self.predicted / self.measured - 1

    @property
    def holds(self) -> bool:
        """Is the error within what is promised?"""
        return abs(self.error) <= self.bound


@dataclass(frozen=True, kw_only=True)
class Study:
    """One set of measurements.  `calibration`: what was fitted, on what; `wrong`: where it is off, why."""

    title: str
    source: str
    calibration: str
    rows: tuple[Row, ...]
    wrong: tuple[str, ...] = ()
