"""Two run folders side by side: what was set differently, and what came out differently.

How the interval of a difference is found:

    paired by request  both ran the same requests, once: the sections of their differences
    paired by load     both ran the same loads: Student's t, or the bootstrap, over the differences
    not paired         other requests: the squares of both half widths add up
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import hypot, isnan, nan
from typing import Any, Literal

from batchwright.errors import InputError
from batchwright.interval import Interval, around, difference, paired_interval
from batchwright.metrics import number
from batchwright.replications import over_loads
from batchwright.report_json import METRICS, key_of
from batchwright.run_folder import RunFolder

Pairing = Literal["paired by request", "paired by load", "not paired"]


@dataclass(frozen=True)
class FolderDifference:
    """Run folder `b` against run folder `a`."""

    a: RunFolder
    b: RunFolder

    @cached_property
    def policies(self) -> list[tuple[str, str]]:
        """The policies that are compared: those of one name, or the only one of each.

        Raises InputError if there are none.
        """
        mine, others = list(self.a.summary["policies"]), list(self.b.summary["policies"])
        common = [(name, name) for name in mine if name in others]
        if not common and len(mine) == len(others) == 1:
            common = [(mine[0], others[0])]
        if not common:
            raise InputError(
                f"{self.a.folder} has {', '.join(mine)}, {self.b.folder} has {', '.join(others)}: "
                "no policy is in both; compare runs that share one"
            )
        return common

    @cached_property
    def settings(self) -> dict[str, tuple[Any, Any]]:
        """The keys that differ: of the scenarios, and limits that were chosen; None: not given."""
        found = _different(self.a.config, self.b.config)
        limits = _different(self.a.summary["limits"], self.b.summary["limits"])
        return limits | found

    @cached_property
    def pairing(self) -> Pairing:
        """How differences are taken."""
        mine, other = self.a.summary, self.b.summary
        is_same = mine["workload"]["sha256"] == other["workload"]["sha256"]
        if not is_same or mine["loads_sha256"] != other["loads_sha256"]:
            return "not paired"
        return "paired by request" if mine["num_loads"] == 1 else "paired by load"

    def values(self, names: tuple[str, str], metric: str) -> tuple[float, float]:
        """What `metric` is in both; nan where it is not applicable."""
        return _value(self.a, names[0], metric), _value(self.b, names[1], metric)

    def difference(self, names: tuple[str, str], metric: str) -> Interval:
        """How much higher `metric` is in `b`."""
        if self.pairing == "paired by load":
            return self._by_load(names, metric)
        a, b = self.values(names, metric)
        apart = float(difference(b, a))
        spread, _, statistic = metric.partition(".")
        if self.pairing == "not paired":
            return around(apart, hypot(_half(self.a, names[0], metric), _half(self.b, names[1], metric)))
        if not statistic or spread == "itl_s":
            return around(apart, nan)
        skip = max(folder.summary["num_warm_up_requests"] for folder in (self.a, self.b))
        mine, other = self.a.requests(names[0])[spread], self.b.requests(names[1])[spread]
        return paired_interval(other[skip:], mine[skip:], statistic)

    def _by_load(self, names: tuple[str, str], metric: str) -> Interval:
        mine = self.a.summary["policies"][names[0]]["per_load"].get(metric)
        other = self.b.summary["policies"][names[1]]["per_load"].get(metric)
        if mine is None or other is None:
            return around(nan, nan)
        gaps = [float(difference(y, x)) for x, y in zip(mine, other, strict=True)]
        return over_loads(self.a.summary["intervals_from"], gaps)

    def to_json(self) -> dict[str, Any]:
        """All differences that apply: values of both, difference, low, high."""
        return {
            "a": str(self.a.folder),
            "b": str(self.b.folder),
            "pairing": self.pairing,
            "settings": {key: list(values) for key, values in self.settings.items()},
            "policies": {" -> ".join(dict.fromkeys(names)): self._rows(names) for names in self.policies},
        }

    def _rows(self, names: tuple[str, str]) -> dict[str, dict[str, float | None]]:
        rows = {}
        for metric in map(key_of, METRICS):
            a, b = self.values(names, metric)
            if not (isnan(a) or isnan(b)):
                found = self.difference(names, metric)
                low, high = number(found.low), number(found.high)
                rows[metric] = {"a": a, "b": b, "difference": found.value, "low": low, "high": high}
        return rows


def _different(a: dict[str, Any], b: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = [*a, *(key for key in b if key not in a)]
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def _value(folder: RunFolder, policy: str, metric: str) -> float:
    name, _, statistic = metric.partition(".")
    found = folder.summary["policies"][policy].get(name)
    if isinstance(found, dict):
        found = found.get(statistic)
    return nan if found is None else float(found)


def _half(folder: RunFolder, policy: str, metric: str) -> float:
    ends = folder.summary["policies"][policy]["intervals"].get(metric)
    return nan if ends is None else float(ends[1] - ends[0]) / 2
