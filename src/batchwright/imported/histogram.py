"""Histograms with cumulative buckets: a mean, and between which limits a percentile is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, inf, nan
from typing import Final

SHARES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True)
class Histogram:
    """`buckets`: upper limit to how many values are at most that; cumulative, the last one inf."""

    total: float
    count: float
    buckets: Mapping[float, float]

    def minus(self, earlier: Histogram) -> Histogram:
        """What came since `earlier`."""
        limits = {limit: value - earlier.buckets.get(limit, 0.0) for limit, value in self.buckets.items()}
        return Histogram(self.total - earlier.total, self.count - earlier.count, limits)

    @property
    def mean(self) -> float:
        """nan if there is no value."""
        return self.total / self.count if self.count > 0 else nan

    def between(self, share: float) -> tuple[float, float]:
        """The limits of a percentile, which interpolates between two order statistics; nan if there is none.

        The upper limit is inf if a value above the last finite limit takes part.
        """
        if self.count <= 0:
            return nan, nan
        place = share * (self.count - 1)
        return self._bucket(floor(place))[0], self._bucket(ceil(place))[1]

    def _bucket(self, rank: int) -> tuple[float, float]:
        """The limits of the bucket of the value of this rank, the least being 0."""
        low = 0.0
        for limit in sorted(self.buckets):
            if self.buckets[limit] > rank:
                return low, limit
            low = limit
        return low, inf

    def is_broken(self) -> bool:
        """Do its buckets fall, or hold another count than it tells?"""
        counts = [self.buckets[limit] for limit in sorted(self.buckets)]
        falls = any(after < before for before, after in pairwise(counts))
        return falls or (bool(counts) and counts[-1] != self.count)
