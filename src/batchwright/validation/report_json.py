"""A validation for programs; the schema is in docs/json.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from batchwright.metrics import number
from batchwright.validation.bounds import Bound
from batchwright.validation.validation import Validation
from batchwright.validation.words import paragraph

SCHEMA_VERSION: Final = 1


def as_json(found: Validation, bounds: Sequence[Bound] = ()) -> dict[str, Any]:
    """All digits, units in the names; null where nothing applies."""
    drift = found.drift
    return {
        "schema_version": SCHEMA_VERSION,
        "policy": found.predicted.name,
        "measured": found.measured.name,
        "measured_remarks": list(found.measured.remarks),
        "is_paired": found.matching.is_paired,
        "matching": list(found.matching.lines),
        "num_requests": {"predicted": len(found.predicted), "measured": len(found.measured)},
        "num_skipped": found.skip,
        "num_unqueued": len(found.unqueued.measured),
        "unqueued_within_s": number(found.longest_step),
        "unqueued_by": found.who_tells_waits or None,
        "numbers": {key: line.to_json() for key, line in found.lines.items()},
        "drift": {"e2e_s": number(drift.value), "low": number(drift.low), "high": number(drift.high)},
        "parts": [part.to_json() for part in found.parts],
        "largest": [residual.to_json() for residual in found.residuals],
        "extrapolation": None if found.fitted is None else [one.to_json() for one in found.beyond],
        "bounds": [
            {"number": bound.key, "most": bound.most, "is_broken": bound.is_broken(found.lines)}
            for bound in bounds
        ],
        "paragraph": paragraph(found),
    }
