"""One quantity of the report: a formula, the same with its numbers put in, and what a run says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from math import isnan, nan
from textwrap import wrap
from typing import Any

from batchwright.errors import InputError
from batchwright.figures import NOT_APPLICABLE, three
from batchwright.interval import Interval, around
from batchwright.metrics import number

WIDTH = 110  # characters of the report
NAME, VALUE = 46, 20  # characters of its first two columns


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """`value` in `unit`, nan where it does not apply; `why`: the reason.

    formula, filled   in symbols, and with the numbers of this load and server
    simulated         what a run says; None: nothing was run
    holds             when the formula is right, and how near it is
    """

    key: str
    name: str
    unit: str
    formula: str
    filled: str
    value: float
    simulated: Interval | None = None
    holds: str = ""
    why: str = ""


@dataclass(frozen=True)
class Section:
    """Quantities under one headline, after lines that say what they stand on."""

    title: str
    said: tuple[str, ...]
    quantities: tuple[Quantity, ...]


def quantity(
    key: str,
    name: str,
    unit: str,
    formula: str,
    filled: str,
    value: Callable[[], float],
    simulated: Interval | None = None,
    holds: str = "",
) -> Quantity:
    """The quantity whose `value()` is asked; InputError says why it does not apply."""
    try:
        found, why = value(), ""
    except InputError as error:
        found, why = nan, str(error)
    return Quantity(
        key=key,
        name=name,
        unit=unit,
        formula=formula,
        filled="" if why else filled,
        value=found,
        simulated=simulated,
        holds=holds,
        why=why,
    )


# --- numbers as text ---------------------------------------------------------------------


def seconds(value: float) -> str:
    """Four digits, in us, ms or s."""
    if isnan(value):
        return NOT_APPLICABLE
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us")):
        if abs(value) * factor >= 0.9995:
            return f"{plain(value * factor)} {unit}"
    return f"{plain(value * 1e6)} us" if value else "0 s"


def plain(value: float) -> str:
    """Four significant digits; all digits before the point."""
    if isnan(value):
        return NOT_APPLICABLE
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


def shown(value: float, unit: str) -> str:
    """`value` with its unit, to three digits."""
    factor, suffix = _scale(value, unit)
    return f"{_three(value * factor, unit)}{suffix}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """What a value of `unit` is multiplied by, and what stands behind it."""
    if unit in ("share", "gain"):
        return 100.0, "%"
    if unit != "s":
        return 1.0, "x" if unit == "x" else f" {unit}"
    size = abs(value)
    return (1.0, " s") if size >= 0.9995 else (1e3, " ms") if size >= 0.9995e-3 else (1e6, " us")


def _three(scaled: float, unit: str) -> str:
    if unit in ("share", "gain"):
        return f"{scaled:+.1f}" if unit == "gain" else f"{scaled:.1f}"
    is_whole = abs(scaled) < 1e-3 or (unit == "requests" and scaled % 1 == 0)
    return f"{scaled:,.0f}" if is_whole else three(scaled)


# --- the report as text ------------------------------------------------------------------


def lines(section: Section) -> Iterator[str]:
    """The section as text, no line over WIDTH characters."""
    yield f"{section.title:<{NAME}}{'formula':>{VALUE}}    simulated"
    for said in section.said:
        yield from _wrapped(said, "  ")
    for found, after in zip_longest(section.quantities, section.quantities[1:]):
        yield from _quantity_lines(found, after)


def _quantity_lines(found: Quantity, after: Quantity | None) -> Iterator[str]:
    """What the next quantity says again is said there."""
    value = NOT_APPLICABLE if isnan(found.value) else shown(found.value, found.unit)
    yield f"  {found.name:<{NAME - 2}}{value:>{VALUE}}    {_simulated(found)}".rstrip()
    if found.why and after is not None and found.why == after.why:
        return
    filled = f"{found.formula} = {found.filled}" if found.filled else found.formula
    yield from _wrapped(filled, "      ")
    if found.why:
        yield from _wrapped(f"does not apply: {found.why}", "      ")
    elif found.holds and (after is None or found.holds != after.holds):
        yield from _wrapped(found.holds, "      ")


def _simulated(found: Quantity) -> str:
    """`value [low, high] unit`."""
    if found.simulated is None or isnan(found.simulated.value):
        return ""
    factor, suffix = _scale(found.simulated.value, found.unit)
    value = _three(found.simulated.value * factor, found.unit)
    if isnan(found.value) or not found.simulated.is_known:
        return f"{value}{suffix}"
    low, high = (_three(end * factor, found.unit) for end in (found.simulated.low, found.simulated.high))
    return f"{value} [{low}, {high}]{suffix}"


def _wrapped(text: str, indent: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


# --- the report as JSON ------------------------------------------------------------------


def to_json(found: Quantity) -> dict[str, Any]:
    """The quantity for programs; null: does not apply, or no interval."""
    simulated = found.simulated
    return {
        "name": found.name,
        "unit": found.unit,
        "formula": found.formula,
        "filled": found.filled,
        "value": None if isnan(found.value) else found.value,  # a whole number stays one
        "simulated": None if simulated is None else number(simulated.value),
        "simulated_low": None if simulated is None else number(simulated.low),
        "simulated_high": None if simulated is None else number(simulated.high),
        "holds": found.holds,
        "does_not_apply": found.why,
    }


def single(value: float) -> Interval:
    """A simulated value without an interval."""
    return around(value, nan)
