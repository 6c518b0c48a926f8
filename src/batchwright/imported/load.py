"""The load that a file of measurements tells of: the same requests, at the same instants.

Requests come when their file starts to count: at the first token less the TTFT, or the end less the E2E.
Those that failed came too, if their lengths are known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from batchwright.errors import InputError
from batchwright.imported.result import Columns, Imported
from batchwright.metrics import Numbers
from batchwright.workload import Workload

LENGTHS = ("prompt_tokens", "output_tokens")


class Load(NamedTuple):
    """`rows`: of the file, in the order of the load's requests."""

    workload: Workload
    rows: Numbers


def load_of(found: Imported) -> Load:
    """Raises InputError if the file does not say how long its requests were, or when they came."""
    columns = found.requests
    lacking = "timings" if columns is None else next((n for n in LENGTHS if n not in columns), None)
    if columns is None or lacking is not None:
        raise InputError(f"{found.file}: has no {lacking} of its requests; give detailed results")
    since = _since(found, columns)
    is_known = ~np.isnan(since) & (columns["prompt_tokens"] >= 1) & (columns["output_tokens"] >= 1)
    rows = np.flatnonzero(is_known)[np.argsort(since[is_known], kind="stable")]
    if not len(rows):
        raise InputError(f"{found.file}: has no request with lengths and an instant; give detailed results")
    prompt, output = (columns[name][rows].astype(np.int64) for name in LENGTHS)
    arrival = since[rows] - since[rows[0]]
    load = Workload.from_columns(arrival, prompt, output, max_tokens="exact", name=found.file)
    return Load(load, rows)


def _since(found: Imported, columns: Columns) -> Numbers:
    """When the file starts to count each request, in seconds; nan: it does not say."""
    for end, taken in (("first_token_s", "ttft_s"), ("finished_s", "e2e_s")):
        if end in columns and taken in columns:
            since: Numbers = columns[end] - columns[taken]
            return np.where(np.isnan(since), columns.get("arrival_s", since), since)
    if "arrival_s" not in columns:
        raise InputError(f"{found.file}: does not say when its requests came; give detailed results")
    return columns["arrival_s"]
