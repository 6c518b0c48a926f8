"""Predicted beside measured, for programs: all digits, units in the names, null where nothing applies."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from batchwright.measured.calibration import Calibration
from batchwright.measured.side_by_side import SideBySide
from batchwright.metrics import number
from batchwright.report_json import SCHEMA_VERSION, key_of


def as_json(found: SideBySide) -> dict[str, Any]:
    """What `--json` prints of the runs; the schema is in docs/live.md."""
    return {
        "schema_version": SCHEMA_VERSION,
        "calibrations": [calibration_json(one) for one in found.calibrations],
        "policies": {name: _policy(found, name) for name in found.cells},
        "predicted": found.predicted.to_json(),
        "measured": found.measured.to_json(),
    }


def _policy(found: SideBySide, name: str) -> dict[str, Any]:
    cells = found.cells[name]
    return {
        "errors": {key_of(metric): number(found.error(name, metric)) for metric in found.metrics},
        "errors_per_load": {
            key_of(metric): [number(error) for error in found.errors(name, metric)]
            for metric in found.metrics
        },
        "errors_before": {
            key_of(metric): [number(error) for error in found.errors_before(name, metric)]
            for metric in found.metrics
        },
        "pace": [None if cell.pace is None else list(cell.pace.range()) for cell in cells],
        "drift": [cell.drift for cell in cells],
        "slowdown": [number(cell.slowdown) for cell in cells],
        "contention": [cell.contention for cell in cells],
        "cpus": [cell.cpus for cell in cells],
        "attempts": [cell.attempts for cell in cells],
        "step_error": [cell.step_error for cell in cells],
    }


def calibration_json(found: Calibration) -> dict[str, Any]:
    """Its numbers and its model; not the probe, which only a drift needs."""
    told = {key: value for key, value in asdict(found).items() if key != "probe"}
    return told | {"pulse": number(found.pulse)}
