"""Numbers and lists as people read them: three significant digits, all before the point, and a unit.

What is not applicable is `n/a`, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor, isinf, isnan, log10
from typing import Final

from batchwright.interval import Interval

NOT_APPLICABLE: Final = "n/a"
Unit = Callable[[float], tuple[float, str]]  # value -> what it is divided by, what is written behind


def seconds_unit(value: float) -> tuple[float, str]:
    """Milliseconds under a second; what rounds to 1,000 ms is 1 s."""
    return (1e-3, " ms") if abs(value) < 0.9995 else (1.0, " s")


def plain_unit(value: float) -> tuple[float, str]:
    """The number as it is."""
    return 1.0, ""


def share_unit(value: float) -> tuple[float, str]:
    """Per cent."""
    return 0.01, "%"


def seconds(value: float) -> str:
    """`77.1 ms`, `1.00 s`."""
    return figure(value, seconds_unit)


def signed_seconds(value: float) -> str:
    """`+77.1 ms`."""
    return f"{'+' if value > 0 else ''}{seconds(value)}"


def amount(value: float) -> str:
    """`1,279`, `8.70`."""
    return figure(value, plain_unit)


def share(value: float) -> str:
    """`12.3%`."""
    return NOT_APPLICABLE if isnan(value) else f"{value:.1%}"


def signed_share(value: float) -> str:
    """`+1.2%`; what rounds to 0 has no minus."""
    return f"{round(value, 3) + 0.0:+.1%}"


def count(value: float) -> str:
    """`1,000`; the mean of several counts may have a fraction."""
    return NOT_APPLICABLE if isnan(value) else f"{value:,.0f}" if value == int(value) else three(value)


def with_interval(found: Interval, unit: Unit) -> str:
    """`77.1 ±3.2 ms`: half of the interval, with the digits of the value; left out if it is not known."""
    if isnan(found.value) or not found.is_known:
        return figure(found.value, unit)
    size, behind = unit(found.value)
    value = found.value / size
    places = 1 if unit is share_unit else decimals(value)
    shown = f"{value:.1f}" if unit is share_unit else three(value)
    return f"{shown} ±{found.half / size:,.{places}f}{behind}"


def three(value: float) -> str:
    """Three significant digits, trailing zeros too; all digits before the point."""
    return f"{value:,.{decimals(value)}f}" if value else "0"


def decimals(value: float) -> int:
    """Digits behind the point, for three significant ones."""
    if value == 0 or isinf(value):
        return 0
    rounded = float(f"{abs(value):.2e}")
    return max(2 - floor(log10(rounded)), 0)


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, or `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def figure(value: float, unit: Unit) -> str:
    """`value` in `unit`; a share has one digit behind the point."""
    if unit is share_unit:
        return share(value)
    if isnan(value):
        return NOT_APPLICABLE
    size, behind = unit(value)
    return f"{three(value / size)}{behind}"
