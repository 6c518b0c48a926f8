"""The load that a file of timings tells of, and what a simulated server makes of it.

A trace with more to say of the same requests, such as which prompts start alike, may stand in for the
lengths; it must have the same ones, in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan
from typing import Final

import numpy as np

from batchwright.calibration.timings import Parameter, Timings, Values
from batchwright.comparison import Served as Policy
from batchwright.comparison import run
from batchwright.cost import CostModel, Hosted, Roofline
from batchwright.errors import InputError
from batchwright.figures import count
from batchwright.hardware.roofline import FIXED_SECONDS, MBU, MFU
from batchwright.imported import Imported
from batchwright.imported.load import load_of
from batchwright.limits import Limits
from batchwright.metrics import Numbers
from batchwright.workload import Workload

PARAMETERS: Final = (
    Parameter(name="mfu", prior=MFU, least=0.05, most=1.0),
    Parameter(name="mbu", prior=MBU, least=0.1, most=1.0),
    Parameter(name="fixed_seconds", prior=FIXED_SECONDS, least=1e-5, most=0.05),
)
NAMES: Final = ("ttft_s", "tpot_s", "e2e_s")


@dataclass(frozen=True, kw_only=True)
class Served:
    """Requests, when they came and what they took; seconds, nan where it is not told.

    `rows`: of the file, in order of arrival.
    """

    load: Workload
    timings: Timings
    rows: Numbers

    def first(self, number: int) -> Timings:
        """The timings of the first `number` requests; the rest is nan."""
        return self._only(np.arange(len(self.rows)) < number)

    def rest(self, number: int) -> Timings:
        """Those of all others."""
        return self._only(np.arange(len(self.rows)) >= number)

    def _only(self, is_in: Numbers) -> Timings:
        return {name: np.where(is_in, values, nan) for name, values in self.timings.items()}


def served(found: Imported, trace: Workload | None = None) -> Served:
    """What `found` tells of its requests; those that failed are served too, without timings.

    Raises InputError if it has no requests with lengths and times, or `trace` has others.
    """
    load, rows = load_of(found)
    wrong = [finding.text for finding in found.findings if finding.is_wrong]
    if wrong:
        raise InputError(f"{found.file}: {wrong[0]}; a fit would rest on it")
    if trace is not None:
        load = _like(load, trace, rows)
    columns, missing = found.requests or {}, np.full(int(rows.max()) + 1, nan)
    timings = {name: columns.get(name, missing)[rows] for name in NAMES}
    return Served(load=load, timings=timings, rows=rows)


def _like(load: Workload, trace: Workload, rows: Numbers) -> Workload:
    """The requests of `trace` at the arrivals of `load`."""
    if len(trace) != len(load):
        raise InputError(
            f"{trace.name} has {count(len(trace))} requests, but {load.name} {count(len(load))}; "
            "give its own trace"
        )
    columns = trace.columns.take(rows)
    apart = np.flatnonzero((columns.prompt != load.prompt) | (columns.output != load.columns.output))
    if len(apart):
        at = int(apart[0])
        theirs, own = (f"{of.prompt[at]:,} + {of.output[at]:,}" for of in (columns, load.columns))
        raise InputError(
            f"request {int(rows[at])} of {trace.name} has {theirs} tokens, but {load.name} {own}; "
            "give its own trace"
        )
    columns = replace(columns, arrival=load.arrival)
    return replace(trace, columns=columns, token_limit=load.token_limit, made=None)


@dataclass(frozen=True, kw_only=True)
class Server:
    """A policy under limits, and the roofline whose efficiency is not known."""

    policy: Policy
    limits: Limits
    cost: CostModel

    def with_values(self, values: Values) -> CostModel:
        """The cost with these parameters.  Raises InputError if it is no roofline."""
        host = self.cost if isinstance(self.cost, Hosted) else None
        device = self.cost if host is None else host.cost
        if not isinstance(device, Roofline):
            raise InputError(
                f"{device!r} is no roofline of a GPU and a model, so it has nothing to fit here; "
                "leave the cost out"
            )
        moved = device.with_efficiency(**values)
        return moved if host is None else Hosted(moved, host.base, host.per_running)

    def timings(self, load: Workload, values: Values) -> Timings:
        """What it makes of `load`."""
        found = run("fit", self.policy, load, self.with_values(values), self.limits).requests()
        return {name: found[name] for name in NAMES}
