"""A fit to requests as text, tables, JSON and a profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from batchwright.calibration.requests import STATISTICS, RequestsFit
from batchwright.calibration.timings import Estimate
from batchwright.cost import CostModel, Hosted
from batchwright.figures import count, signed_share
from batchwright.imported import Imported
from batchwright.limits import Limits
from batchwright.plain_table import plain_table
from batchwright.profile import LIMITS, Profile
from batchwright.run.run import METRICS
from batchwright.version import __version__

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA_VERSION: Final = 1
MEANS: Final = {
    "mfu": "share of the GPU's arithmetic",
    "mbu": "share of its memory bandwidth",
    "fixed_seconds": "seconds of every step",
}


def profile_of(
    fit: RequestsFit, name: str, measured: Imported, cost: str, max_model_len: int | None
) -> Profile:
    """What `--profile` reads; `cost`: its text.

    `max_model_len`: of the server; None: not known, for the simulation has what these requests need.
    """
    return Profile(
        name=name,
        cost=cost,
        limits=profile_limits(fit.server.limits, max_model_len),
        provenance={
            "made_by": f"batchwright {__version__} fit",
            "sources": [source(fit, measured)],
            "server": dict(measured.about),
            "intervals": _intervals(fit),
        },
        range=fit.range,
        error=_error(fit),
        kept=tuple(_why(one) for one in fit.found.estimates if one.is_kept),
    )


def _intervals(fit: RequestsFit) -> dict[str, list[float]]:
    return {one.parameter.name: [_four(one.low), _four(one.high)] for one in fit.found.estimates}


def _error(fit: RequestsFit) -> dict[str, dict[str, float]]:
    found = {"fitted": _means(fit.fitted)}
    return found if fit.held_out is None else found | {"held_out": _means(fit.held_out)}


def profile_limits(limits: Limits, max_model_len: int | None) -> dict[str, int]:
    """Those of a profile, by vLLM's names; `max_model_len` as in `profile_of`."""
    found = {name: getattr(limits, name, None) for name in LIMITS if name != "num_gpu_blocks_override"}
    found["max_model_len"] = max_model_len
    if limits.num_kv_blocks is not None:
        found["num_gpu_blocks_override"] = limits.num_kv_blocks + 1  # with vLLM's null block
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _means(errors: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {f"mean {METRICS[name]}": _four(of["mean"]) for name, of in errors.items()}


def _four(value: float) -> float:
    return float(f"{value:.4g}")


def _why(one: Estimate) -> str:
    name, value, low, high = one.parameter.name, one.value, one.low, one.high
    return f"{name}: anything from {low:.3g} to {high:.3g} fits as well; kept at {value:.3g}"


def source(fit: RequestsFit, measured: Imported) -> str:
    """What it was fitted to."""
    requests = f"{count(fit.num_fitted)} of {count(fit.num_requests)} requests"
    return f"{requests} of {measured.file} ({measured.form})"


def lines(fit: RequestsFit, measured: Imported) -> Iterator[str]:
    """What was fitted, and what is to be known of it."""
    found = fit.found
    yield f"{source(fit, measured)}, in {count(found.num_simulations)} simulations"
    for finding in measured.findings:
        yield f"  {finding.text}"
    for one in found.estimates:
        if one.is_kept:
            yield f"  not determined: {_why(one)}"


def tables(fit: RequestsFit) -> list[Table]:
    """Parameters with their intervals, and relative errors."""
    return [_parameters(fit), _errors(fit)]


def _parameters(fit: RequestsFit) -> Table:
    table = plain_table()
    table.add_column("parameter")
    for title in ("value", "95 % interval"):
        table.add_column(title, justify="right")
    table.add_column("is")
    for one in fit.found.estimates:
        name = one.parameter.name
        kept = " (kept)" if one.is_kept else ""
        table.add_row(name, f"{one.value:.3g}{kept}", f"{one.low:.3g} to {one.high:.3g}", MEANS[name])
    return table


def _errors(fit: RequestsFit) -> Table:
    table = plain_table()
    table.add_column("predicted against measured")
    for title in STATISTICS:
        table.add_column(title, justify="right")
    parts = [("fitted", fit.fitted)] + ([] if fit.held_out is None else [("held out", fit.held_out)])
    for part, errors in parts:
        for name, of in errors.items():
            table.add_row(f"{part}: {METRICS[name]}", *(signed_share(of[title]) for title in STATISTICS))
    return table


def to_json(fit: RequestsFit, measured: Imported, cost: str) -> dict[str, Any]:
    """The same; the schema is in docs/fit.md."""
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "requests",
        "sources": [source(fit, measured)],
        "notes": [finding.text for finding in measured.findings],
        "cost": cost,
        "num_fitted": fit.num_fitted,
        "num_requests": fit.num_requests,
        "num_simulations": fit.found.num_simulations,
        "parameters": [_as_json(one) for one in fit.found.estimates],
        "fitted": fit.fitted,
        "held_out": fit.held_out,
        "kept": [_why(one) for one in fit.found.estimates if one.is_kept],
        "range": {name: list(ends) for name, ends in fit.range.items()},
    }


def _as_json(one: Estimate) -> dict[str, Any]:
    return {
        "name": one.parameter.name,
        "value": one.value,
        "interval": [one.low, one.high],
        "prior": one.parameter.prior,
        "is_kept": one.is_kept,
    }


def cost_text(cost: CostModel, given: Mapping[str, Any], values: Mapping[str, float]) -> str:
    """A roofline of `given` with the fitted `values`, with its host if it has one, as `--cost` takes it."""
    arguments = {**given, **{name: _four(value) for name, value in values.items()}}
    text = f"roofline({', '.join(f'{name}={value!r}' for name, value in arguments.items())})"
    if isinstance(cost, Hosted):
        return f"hosted({text}, base={cost.base!r}, per_running={cost.per_running!r})"
    return text
