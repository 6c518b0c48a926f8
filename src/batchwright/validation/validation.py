"""A prediction beside what was measured: see `Validation`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import nan

import numpy as np

from batchwright.cost import Range
from batchwright.errors import InputError
from batchwright.interval import Interval
from batchwright.metrics import Numbers
from batchwright.validation.extrapolation import Beyond, extrapolation
from batchwright.validation.lines import Kept, Line, all_lines
from batchwright.validation.matching import Matching, matching
from batchwright.validation.residuals import Part, Residual, drift, greatest, parts
from batchwright.validation.side import Side


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Both sides, and what they have in common.  Times in seconds, differences predicted less measured.

    skip     requests left out on both sides as warm-up, the first ones by arrival
    fitted   range of each feature of a step that the cost model was fitted on; None: it was not
    """

    predicted: Side
    measured: Side
    skip: int = 0
    fitted: Range | None = None

    def __post_init__(self) -> None:
        most = min(len(self.predicted), len(self.measured))
        if self.skip < 0 or (self.skip and self.skip >= most):
            there = f"there are {most:,} requests; give 0 to {max(most - 1, 0)}"
            raise InputError(f"--skip is {self.skip}, but {there}")

    @cached_property
    def matching(self) -> Matching:
        """Are the requests the same?"""
        return matching(self.predicted, self.measured)

    @cached_property
    def kept(self) -> Kept:
        """All but the warm-up."""
        mine, theirs = (np.arange(self.skip, len(side)) for side in (self.predicted, self.measured))
        return Kept(predicted=mine, measured=theirs, is_paired=self.matching.is_paired)

    # --- who did not queue ------------------------------------------------------------

    @cached_property
    def longest_step(self) -> float:
        """Of the predicted steps, in seconds; a request that waited no longer has not queued."""
        steps = self.predicted.steps
        if steps is None or not len(steps["end_s"]):
            return nan
        return float((steps["end_s"] - steps["start_s"]).max())

    @property
    def who_tells_waits(self) -> str:
        """Whose waits decide who has queued: `measured`, `predicted`, or nobody's."""
        sides = {"measured": self.measured, "predicted": self.predicted}
        return next((name for name, side in sides.items() if "scheduled_s" in side.requests), "")

    @cached_property
    def unqueued(self) -> Kept:
        """Those that were admitted within the longest predicted step.

        Pairs are judged by one side; where there are none, each side by its own waits.
        """
        kept = self.kept
        if not kept.is_paired:
            rows = [self._at_once(side, of) for side, of in self._rows]
            return Kept(predicted=rows[0], measured=rows[1], is_paired=False)
        teller = self.predicted if self.who_tells_waits == "predicted" else self.measured
        both = self._at_once(teller, kept.measured)
        return Kept(predicted=both, measured=both, is_paired=True)

    @property
    def _rows(self) -> list[tuple[Side, Numbers]]:
        return [(self.predicted, self.kept.predicted), (self.measured, self.kept.measured)]

    def _at_once(self, side: Side, rows: Numbers) -> Numbers:
        wait = (side.column("scheduled_s") - side.column("arrival_s"))[rows]
        return rows[wait <= self.longest_step]

    def has_level(self, name: str) -> bool:
        """Do both sides say how many requests are there, run, or wait?"""
        return name in self.predicted.levels and name in self.measured.levels

    # --- what came out ----------------------------------------------------------------

    @cached_property
    def lines(self) -> dict[str, Line]:
        """Every number by key, whether or not both sides have it."""
        found = all_lines(self.predicted, self.measured, self.kept, self.unqueued, self.skip)
        return {line.key: line for line in found}

    @cached_property
    def residuals(self) -> list[Residual]:
        """The requests that are off by most; none if they are not in pairs."""
        return greatest(self.predicted, self.measured, self.kept)

    @cached_property
    def parts(self) -> list[Part]:
        """The differences in consecutive parts of the requests; none if arrivals are not known."""
        return parts(self.predicted, self.measured, self.kept)

    @cached_property
    def drift(self) -> Interval:
        """By how much the difference of E2E grows from the first part to the last; nan: not known."""
        return drift(self.parts)

    @cached_property
    def beyond(self) -> list[Beyond]:
        """The features of a step whose range is known."""
        if self.fitted is None or self.predicted.steps is None:
            return []
        return extrapolation(self.predicted.steps, self.fitted)
