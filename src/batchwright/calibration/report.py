"""A fit to steps as text, tables, JSON and a profile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from batchwright.calibration.cost_words import DUST, text_of
from batchwright.calibration.errors import Class, Errors
from batchwright.calibration.steps import Coefficient, StepFit
from batchwright.figures import count, share, signed_share, three
from batchwright.plain_table import plain_table
from batchwright.profile import LIMITS, Profile
from batchwright.version import __version__

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION: Final = 1
_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"), (1e-12, "ps"))


def profile_of(fit: StepFit, name: str) -> Profile:
    """What `--profile` reads."""
    return Profile(
        name=name,
        cost=text_of(fit.cost),
        limits=_limits(fit),
        provenance={
            "made_by": f"batchwright {__version__} fit",
            "sources": [_source(*source) for source in fit.steps.sources],
            "server": dict(fit.steps.about),
            "notes": [*fit.steps.notes, *fit.remarks],
        },
        range=fit.range,
        error={
            "held_out": _named(fit.held_out),
            "fitted": _named(fit.fit),
            "standard": {one.name: _relative(one) for one in fit.coefficients if one.value > 0},
        },
        kept=fit.kept,
    )


def _limits(fit: StepFit) -> dict[str, int]:
    """What the log says of the KV cache; how many may run is for the user to choose."""
    about = dict(fit.steps.about)
    if "num_gpu_blocks" in about:
        about["num_gpu_blocks_override"] = about["num_gpu_blocks"]
    found = {name: about.get(name) for name in LIMITS[:2]}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _named(errors: Errors) -> dict[str, float]:
    """To four digits, so that a profile can be read."""
    named = {"mean of a step": errors.mean, "P95 of a step": errors.p95, "total": errors.total}
    return {name: float(f"{value:.4g}") for name, value in named.items()}


def _relative(one: Coefficient) -> float:
    return float(f"{one.error / one.value:.3g}")


def _source(file: str, form: str, steps: int) -> str:
    return f"{count(steps)} steps of {file} ({form})"


def lines(fit: StepFit) -> Iterator[str]:
    """What was fitted, and what is to be known of it."""
    for source in fit.steps.sources:
        yield _source(*source)
    for note in (*fit.steps.notes, *fit.kept):
        yield f"  {note}"


def tables(fit: StepFit) -> list[Table]:
    """Coefficients with their standard errors, and errors of steps by what they compute."""
    return [_coefficients(fit), _errors(fit)]


def _coefficients(fit: StepFit) -> Table:
    table = plain_table()
    table.add_column("seconds of a step")
    for title in ("value", "standard error"):
        table.add_column(title, justify="right")
    table.add_column("per", no_wrap=True)
    for one in fit.coefficients:
        table.add_row(one.name, _tiny(one.value), _tiny(one.error), one.per)
    return table


def _errors(fit: StepFit) -> Table:
    table = plain_table()
    table.add_column("predicted against measured")
    for title in ("steps", "of the time", "mean error", "P95", "total"):
        table.add_column(title, justify="right")
    number = len(fit.steps)
    table.add_row(*_row(Class(name="fitted", steps=number, share=1.0, errors=fit.fit)))
    table.add_row(*_row(Class(name="held out", steps=number, share=1.0, errors=fit.held_out)))
    table.add_section()
    for one in fit.classes:
        table.add_row(*_row(one))
    return table


def _row(one: Class) -> tuple[str, ...]:
    errors = one.errors
    shares = (share(errors.mean), share(errors.p95), signed_share(errors.total))
    return one.name, count(one.steps), share(one.share), *shares


def _tiny(value: float) -> str:
    """`4.45 ms`, `9.26 ns`."""
    if value < DUST:
        return "0"
    size, unit = next((pair for pair in _UNITS if abs(value) >= pair[0]), _UNITS[-1])
    return f"{three(value / size)} {unit}"


def to_json(fit: StepFit) -> dict[str, Any]:
    """The same; the schema is in docs/fit.md."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "steps",
        "num_steps": len(fit.steps),
        "sources": [dict(zip(("file", "form", "num_steps"), one, strict=True)) for one in fit.steps.sources],
        "notes": list(fit.steps.notes),
        "cost": text_of(fit.cost),
        "coefficients": [_as_json(one) for one in fit.coefficients],
        "fitted": fit.fit.to_json(),
        "held_out": fit.held_out.to_json(),
        "classes": [asdict(one) for one in fit.classes],
        "kept": list(fit.kept),
        "remarks": fit.remarks,
        "range": {name: list(ends) for name, ends in fit.range.items()},
    }


def _as_json(one: Coefficient) -> dict[str, Any]:
    return {"name": one.name, "per": one.per, "seconds": one.value, "standard_error_seconds": one.error}
