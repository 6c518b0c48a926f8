"""Where a prediction leaves what its cost model was fitted on.

A profile says for features of a step, such as `num_decodes`, the least and the greatest that were
measured.  Steps outside are priced by the form of the model alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np

from batchwright.cost import Range
from batchwright.profile.beyond import with_tokens
from batchwright.validation.side import Columns


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """One feature.  Shares of the predicted steps, and of their time, outside `least` to `greatest`.

    `reached`: the value that is furthest outside; nan: none is.  Shares are nan if the steps do not tell.
    """

    feature: str
    least: float
    greatest: float
    steps: float
    seconds: float
    reached: float

    def to_json(self) -> dict[str, Any]:
        """Null: not known."""
        given = {"feature": self.feature, "least": self.least, "greatest": self.greatest}
        found = {"share_of_steps": self.steps, "share_of_time": self.seconds, "reached": self.reached}
        return given | {name: None if np.isnan(value) else value for name, value in found.items()}


def extrapolation(steps: Columns, fitted: Range) -> list[Beyond]:
    """Every feature of `fitted`, in its order; `tokens` is all tokens of a step."""
    steps = with_tokens(steps)
    is_work = steps["tokens"] > 0
    steps = {name: values[is_work] for name, values in steps.items()}
    return [_beyond(steps, feature, *map(float, ends)) for feature, ends in fitted.items()]


def _beyond(steps: Columns, feature: str, least: float, greatest: float) -> Beyond:
    if feature not in steps or not len(steps[feature]):
        return Beyond(feature=feature, least=least, greatest=greatest, steps=nan, seconds=nan, reached=nan)
    values, took = steps[feature], steps["end_s"] - steps["start_s"]
    outside = np.maximum(least - values, values - greatest)
    is_outside = outside > 0
    return Beyond(
        feature=feature,
        least=least,
        greatest=greatest,
        steps=float(is_outside.mean()),
        seconds=float(took[is_outside].sum() / took.sum()),
        reached=float(values[np.argmax(outside)]) if is_outside.any() else nan,
    )
