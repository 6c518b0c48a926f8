"""What the `summary.json` of a run folder must hold to be compared with another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from batchwright.errors import InputError
from batchwright.report_json import NAMES, SCHEMA_VERSION
from batchwright.run.estimates import SPREADS

AGAIN: Final = "run the comparison again"
_Ends = tuple[float, float] | None
_METRICS: Final = [(name, float | None, None) for name in NAMES.values()]
_SPREADS: Final[list[Any]] = [(name, dict[str, float | None], {}) for name in SPREADS]
_Policy: Any = msgspec.defstruct(
    "Policy",
    [("per_load", dict[str, list[float | None]]), ("intervals", dict[str, _Ends]), *_METRICS, *_SPREADS],
)


class _Workload(Struct):
    sha256: str
    num_requests: Annotated[int, Meta(ge=1)]


class _Summary(Struct):
    workload: _Workload
    limits: dict[str, Any]
    num_loads: Annotated[int, Meta(ge=1)]
    loads_sha256: str
    num_warm_up_requests: Annotated[int, Meta(ge=0)]
    intervals_from: str
    policies: Annotated[dict[str, _Policy], Meta(min_length=1)]


def checked(found: object, file: Path) -> dict[str, Any]:
    """The summary that was read from `file`.  Raises InputError on one that is old, cut or edited."""
    if not isinstance(found, dict) or "policies" not in found:
        raise InputError(f"{file}: is not the summary of a run; {AGAIN}")
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(f"{file}: has schema_version {version!r}, but {SCHEMA_VERSION} is read; {AGAIN}")
    try:
        summary = msgspec.convert(found, _Summary)
    except msgspec.ValidationError as error:
        raise InputError(f"{file}: is not the summary of a run ({error}); {AGAIN}") from None
    for name, policy in summary.policies.items():
        if any(len(values) != summary.num_loads for values in policy.per_load.values()):
            raise InputError(f"{file}: per_load of {name} is not of {summary.num_loads} loads; {AGAIN}")
    return found
