"""What a comparison estimates, how sure it is, and who wins.

Three ways to an interval of 95 %:

    sections      one load: the same estimate of 20 consecutive parts of the run after its warm-up
    replications  a load that is made: the same policies on other seeds; Student's t over them
    bootstrap     a trace: the same policies on resamples of its blocks of requests; the spread
                  of the resamples around what the trace itself gives

Policies meet the same requests in every replication (common random numbers), so differences
are taken replication by replication, or request by request, and are surer than both values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import isnan, nan
from typing import Final, Literal

import numpy as np

from batchwright.errors import InputError
from batchwright.interval import (
    Interval,
    around,
    bootstrap_interval,
    difference,
    paired_interval,
    series_interval,
    t_interval,
)
from batchwright.metrics import Numbers
from batchwright.run import Run, paired
from batchwright.run.estimates import SPREADS, kept_requests
from batchwright.slo import Slo
from batchwright.workload import Workload

Method = Literal["sections", "replications", "bootstrap"]
HIGHER: Final = ("output_throughput", "total_throughput", "request_throughput", "attainment", "goodput")
MOST: Final = 10_000  # loads
COUNTED: Final = ("itl_s",)  # sections of it take longer than the run


def check_repeat(repeat: int) -> None:
    """Raises InputError unless so many loads can be run."""
    if type(repeat) is not int or not 1 <= repeat <= MOST:
        raise InputError(f"repeat is {repeat!r}; give a whole number of 1 to {MOST}")


def check_loads(load: Workload, repeat: int) -> None:
    """Raises InputError unless so many loads can be run, and this one can be repeated."""
    check_repeat(repeat)
    if repeat > 1:
        load.replicate(1)


def loads(load: Workload, repeat: int) -> Iterator[Workload]:
    """The load and its replications: `repeat` in all, or so many resamples beside a trace."""
    yield load
    for k in range(1, num_loads(load, repeat)):
        yield load.replicate(k)


def loads_of_all_lengths(load: Workload, repeat: int) -> Iterator[Workload]:
    """Those of `loads` among which is every length: resamples of a trace have no others than it has."""
    return islice(loads(load, repeat), 1 if load.made is None else None)


def num_loads(load: Workload, repeat: int) -> int:
    """How many loads are run; the trace itself is one more."""
    return repeat + (method_of(load, repeat) == "bootstrap")


def method_of(load: Workload, repeat: int) -> Method:
    """How the intervals of `repeat` loads are found."""
    if repeat == 1:
        return "sections"
    return "bootstrap" if load.made is None else "replications"


def over_loads(method: Method, values: list[float]) -> Interval:
    """The interval of what was found on several loads."""
    return bootstrap_interval(values[0], values[1:]) if method == "bootstrap" else t_interval(values)


@dataclass(frozen=True)
class Estimates:
    """`values`: per policy, one mapping from metric to value for every load that was run.

    `runs`: those of the first load, of which the first `skip` requests are left out.
    `digest`: of all loads.  `slo`: what attainment and goodput are of.
    """

    method: Method
    values: Mapping[str, list[dict[str, float]]]
    runs: Mapping[str, Run]
    skip: int
    digest: str
    slo: Slo | None = None
    _known: dict[tuple[str, str, str, str], Interval] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_steady(self) -> bool:
        """Do requests come one after the other?  Where all come at once, parts of a run are not alike."""
        return next(iter(self.runs.values())).span > 0

    @property
    def num_loads(self) -> int:
        """Loads that were run; in a bootstrap the first is the trace itself."""
        return len(next(iter(self.values.values())))

    @property
    def num_replications(self) -> int:
        """Loads that the intervals come from."""
        return self.num_loads - (self.method == "bootstrap")

    def interval(self, policy: str, metric: str) -> Interval:
        """The estimate of `metric` for `policy`; nan where not applicable, or too little is known."""
        key = ("interval", policy, "", metric)
        if key not in self._known:
            self._known[key] = self._interval(policy, metric)
        return self._known[key]

    def value(self, policy: str, metric: str) -> float:
        """The estimate alone."""
        return self.interval(policy, metric).value

    def difference(self, a: str, b: str, metric: str) -> Interval:
        """How much higher `metric` is for `a` than for `b`, paired."""
        key = ("difference", a, b, metric)
        if key not in self._known:
            self._known[key] = self._difference(a, b, metric)
        return self._known[key]

    def _interval(self, policy: str, metric: str) -> Interval:
        if self.method != "sections":
            return over_loads(self.method, [values[metric] for values in self.values[policy]])
        value = self.values[policy][0][metric]
        if metric == "attainment" and self.is_steady:
            return around(value, series_interval(self._met(policy)).half)
        if not self._has_sections(metric):
            return around(value, nan)
        return around(value, self.runs[policy].interval(metric, self.skip).half)

    def _difference(self, a: str, b: str, metric: str) -> Interval:
        pairs = zip(self.values[a], self.values[b], strict=True)
        apart = [float(difference(x[metric], y[metric])) for x, y in pairs]
        if self.method != "sections":
            return over_loads(self.method, apart)
        if metric == "attainment" and self.is_steady:
            return paired_interval(self._met(a), self._met(b))
        if not self._has_sections(metric):
            return around(apart[0], nan)
        return paired(self.runs[a], self.runs[b], metric, self.skip)

    def winner(self, metric: str) -> str | None:
        """The policy that is better than every other one by an interval that excludes 0; else None.

        A policy to which the metric is not applicable neither wins nor stands in the way.
        """
        names = [name for name in self.values if not isnan(self.interval(name, metric).value)]
        if not is_ranked(metric) or len(names) < 2:
            return None
        sign = 1 if metric in HIGHER else -1
        best = max(names, key=lambda name: sign * self.interval(name, metric).value)
        others = [self.difference(best, name, metric) for name in names if name != best]
        return best if all(found.is_clear and found.value * sign > 0 for found in others) else None

    def _met(self, policy: str) -> Numbers:
        """Per request after warm-up: 1 if it met the SLO, 0 if not; nan where no limit applies."""
        run = self.runs[policy]
        met = None if self.slo is None else run.met(self.slo)
        kept = kept_requests(run, self.skip)
        return np.full(len(kept), nan) if met is None else met[kept].astype(np.float64)

    def _has_sections(self, metric: str) -> bool:
        """Is it a metric of single requests, of a load whose parts are alike?"""
        name = metric.rpartition(".")[0]
        return self.is_steady and name in SPREADS and name not in COUNTED


def is_ranked(metric: str) -> bool:
    """Is more, or less, of it better?"""
    return metric in HIGHER or metric.rpartition(".")[0] in SPREADS
