"""Fit the roofline of a server to the timings of its requests: the first ones; the rest are held out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from batchwright.calibration.served import NAMES, PARAMETERS, Served, Server
from batchwright.calibration.timings import Report, Timings, TimingsFit, fit
from batchwright.comparison import run
from batchwright.errors import InputError
from batchwright.metrics import Numbers
from batchwright.profile.beyond import WORDS, with_tokens

STATISTICS: Final[dict[str, Callable[[Numbers], Any]]] = {
    "mean": np.mean,
    "P50": np.median,
    "P99": lambda values: np.percentile(values, 99),
}


@dataclass(frozen=True, kw_only=True)
class RequestsFit:
    """What was found of `server`, and how far its simulation then is from the requests.

    num_fitted   the first requests in order of arrival; all are simulated
    fitted       relative errors of them: metric -> statistic -> error
    held_out     the same of the rest; None: there are none
    range        features of the simulated steps: the least and the greatest
    """

    found: TimingsFit
    server: Server
    num_fitted: int
    num_requests: int
    fitted: Mapping[str, Mapping[str, float]]
    held_out: Mapping[str, Mapping[str, float]] | None
    range: Mapping[str, tuple[float, float]]


def fit_requests(served: Served, server: Server, held_out: float, report: Report) -> RequestsFit:
    """Fit on the first requests, and test on the last share `held_out` of them.

    Raises InputError if it is no share, or too few requests are left.
    """
    if not 0 <= held_out < 1:
        raise InputError(f"held-out is {held_out:g}, but must be at least 0 and less than 1")
    number = len(served.load)
    num_fitted = number - round(number * held_out)

    def predict(values: Mapping[str, float]) -> Timings:
        return server.timings(served.load, values)

    found = fit(predict, served.first(num_fitted), PARAMETERS, report)
    cost = server.with_values(found.values)
    again = run("fit", server.policy, served.load, cost, server.limits)
    predicted = {name: again.requests()[name] for name in NAMES}
    rest = served.rest(num_fitted)
    return RequestsFit(
        found=found,
        server=replace(server, cost=cost),
        num_fitted=num_fitted,
        num_requests=number,
        fitted=_errors(predicted, served.first(num_fitted)),
        held_out=_errors(predicted, rest) if num_fitted < number else None,
        range=_range(again.made_steps()),
    )


def _errors(predicted: Timings, measured: Timings) -> dict[str, dict[str, float]]:
    """Relative, of the statistics of the requests that have the metric on both sides."""
    found: dict[str, dict[str, float]] = {}
    for name in NAMES:
        both = ~np.isnan(predicted[name]) & ~np.isnan(measured[name])
        if both.any():
            mine, theirs = predicted[name][both], measured[name][both]
            found[name] = {title: float(of(mine) / of(theirs) - 1) for title, of in STATISTICS.items()}
    return found


def _range(steps: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Of the steps that compute something."""
    columns = with_tokens(steps)
    is_work = columns["tokens"] > 0
    return {
        name: (float(columns[name][is_work].min()), float(columns[name][is_work].max()))
        for name in WORDS
        if name in columns and is_work.any()
    }
