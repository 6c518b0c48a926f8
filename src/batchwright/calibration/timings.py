"""Fit parameters to the timings of requests alone: no step was seen, so every trial is a simulation.

    residuals   ln(predicted / measured) of each request's TPOT, E2E, and TTFT + a typical TPOT: the means
                of ten requests that came one after the other, in units of their spread
    loss        soft L1 beyond two of these units, so that a few odd requests do not decide

The spreads, median deviations, are those of the fit before, and 5 % (TTFT: 20 %) at first: where nothing
queues, TTFT is much less sure than the others, and would else decide with its noise.

A simulation is not smooth in its parameters: its batches change with them, and a request that just
missed a step of one waits for the next.  Means of ten are smoother; least squares in a trust region takes
derivatives over steps of 5 %, from several starts; and no loss counts that a change of 0.2 % makes by itself.

Only what the data determine is fitted.  The profile likelihood of a parameter is the best loss of all
others where it is held fixed; its interval of 95 % is where

    n ln(loss / least loss) < 3.84      n = residuals (1 - r) / (1 + r), r: their lag-one correlation

A parameter whose interval reaches an end of its range and holds its prior is not determined: it is kept
at the prior, and the others are fitted again.
Source: Raue et al. 2009 (Bioinformatics 25, profile likelihood); soft L1, Triggs et al. 2000.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from typing import Any, Final

import numpy as np

from batchwright.errors import InputError
from batchwright.interval import lag_one
from batchwright.metrics import Numbers

WIDE: Final = 2.0  # in spreads; residuals beyond it count linearly
SPREADS: Final = {"ttft_s": 0.2, "tpot_s": 0.05, "e2e_s": 0.05}  # relative, of the first fit
ROUNDS: Final = 2  # of new spreads
SMALLEST: Final = 0.003  # relative: errors below it are rounding
NORMAL: Final = 1.4826  # standard deviation over median deviation, of a normal law
NEARER: Final = 0.3  # how far those of later rounds are, relative to the first
STEP: Final = 0.05  # relative, of a derivative
TINY: Final = 0.002  # relative: a change that measurements cannot show
TOGETHER: Final = 10  # requests whose mean is a residual
STARTS: Final = (0.0, -0.5, 0.5)  # in ln, of all parameters from their priors
LIMIT: Final = 3.841  # of a chi-squared variable with one degree of freedom, 95 %
WALK: Final = 0.05  # in ln: the first step away from the best value, which doubles
ORIGIN: Final = 10.0  # of the searched variable, so that a relative step is an absolute one
FEWEST: Final = 20  # requests of a fit

Timings = Mapping[str, Numbers]  # ttft_s, tpot_s and e2e_s of each request in order of arrival; nan: none
Values = Mapping[str, float]
Predict = Callable[[Values], Timings]
Report = Callable[[int], None]  # simulations so far


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """What may be fitted, between `least` and `most`, all over 0.  `prior`: where nothing is known."""

    name: str
    prior: float
    least: float
    most: float


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """`value`, and its interval of 95 %, which may end where the range does.

    `is_kept`: the data do not determine it, so it has its prior.
    """

    parameter: Parameter
    value: float
    low: float
    high: float
    is_kept: bool = False

    @property
    def is_bounded(self) -> bool:
        """Do the data bound it on both sides?"""
        return self.low > self.parameter.least and self.high < self.parameter.most

    @property
    def is_unknown(self) -> bool:
        """Is its prior as good, and one end of its range too?"""
        return not self.is_bounded and self.low <= self.parameter.prior <= self.high


@dataclass(frozen=True, kw_only=True)
class TimingsFit:
    """What was found.  `num_independent`: unlike requests that would tell as much as all do."""

    estimates: tuple[Estimate, ...]
    loss: float
    num_requests: int
    num_independent: float
    num_simulations: int

    @property
    def values(self) -> dict[str, float]:
        """The value of every parameter, by name."""
        return {one.parameter.name: one.value for one in self.estimates}


def fit(
    predict: Predict,
    measured: Timings,
    parameters: Sequence[Parameter],
    report: Report = lambda simulations: None,
) -> TimingsFit:
    """Fit `parameters` so that `predict` gives what was `measured`, wherever that is not nan.

    Raises InputError on fewer than 20 requests.
    """
    trials = Trials(predict, measured, report)
    free, kept = list(parameters), list[Estimate]()
    while True:
        search = _Search(trials, free, {one.parameter.name: one.value for one in kept})
        found = [search.estimate(one) for one in free]
        unknown = max((one for one in found if one.is_unknown), key=_width, default=None)
        if unknown is None:
            break
        kept.append(_kept(unknown))
        free.remove(unknown.parameter)
    by_name = {one.parameter.name: one for one in [*found, *kept]}
    return TimingsFit(
        estimates=tuple(by_name[one.name] for one in parameters),
        loss=search.best.loss,
        num_requests=trials.num_requests,
        num_independent=search.num_independent,
        num_simulations=trials.num_simulations,
    )


def _width(found: Estimate) -> float:
    return log(found.high / found.low)


def _kept(found: Estimate) -> Estimate:
    one = found.parameter
    return Estimate(parameter=one, value=one.prior, low=found.low, high=found.high, is_kept=True)


class Trials:
    """Simulations, and how far each is from what was measured."""

    def __init__(self, predict: Predict, measured: Timings, report: Report) -> None:
        self.measured = measured
        self.num_simulations = 0
        self._predict = predict
        self._report = report
        has_ttft = ~np.isnan(measured["ttft_s"])
        self.num_requests = int(np.count_nonzero(has_ttft))
        if self.num_requests < FEWEST:
            told = f"{self.num_requests} requests have timings"
            raise InputError(f"{told}; a fit needs {FEWEST}, beside those held out")
        typical = np.nanmedian(measured["tpot_s"]) if np.any(measured["tpot_s"] > 0) else 0.0
        self.spread = dict(SPREADS)
        self._has = {"ttft_s": has_ttft, "tpot_s": measured["tpot_s"] > 0, "e2e_s": measured["e2e_s"] > 0}
        self._added = {"ttft_s": max(float(typical), 1e-3), "tpot_s": 0.0, "e2e_s": 0.0}

    def residuals(self, values: Values) -> Numbers:
        """Of TTFT, then of TPOT, then of E2E, in units of their spread."""
        errors = self._errors(values)
        return np.concatenate([errors[name] / self.spread[name] for name in self._has])

    def weigh(self, values: Values) -> None:
        """Take the spread of each metric from its errors under these values."""
        for name, errors in self._errors(values).items():
            if len(errors):
                self.spread[name] = max(NORMAL * float(np.median(np.abs(errors))), SMALLEST)

    def _errors(self, values: Values) -> dict[str, Numbers]:
        found = self._predict(values)
        self.num_simulations += 1
        self._report(self.num_simulations)
        return {name: self._means(found, name) for name in self._has}

    def _means(self, found: Timings, name: str) -> Numbers:
        has, added = self._has[name], self._added[name]
        errors = np.log((found[name][has] + added) / (self.measured[name][has] + added))
        parts = np.array_split(errors, -(-len(errors) // TOGETHER)) if len(errors) else []
        return np.array([part.mean() for part in parts])


@dataclass(frozen=True)
class _Point:
    values: dict[str, float]
    loss: float


class _Search:
    """The best values of `free` parameters, and how far each may be from it.

    num_independent   unlike residuals that would tell as much as all do
    roughness         the loss that a tiny change of the parameters makes
    """

    def __init__(self, trials: Trials, free: Sequence[Parameter], kept: Values) -> None:
        self.trials = trials
        self.free = free
        self.kept = dict(kept)
        trials.spread = dict(SPREADS)
        self.best = self._from_starts({one.name: one.prior for one in free}, 1.0)
        for _ in range(ROUNDS):
            trials.weigh(self.best.values)
            self.best = self._from_starts(self.best.values, NEARER)
        residuals = trials.residuals(self.best.values)
        alike = max(0.0, lag_one(residuals.tolist()))
        self.num_independent = len(residuals) * (1 - alike) / (1 + alike)
        self.roughness = self._roughness(residuals)

    def _roughness(self, residuals: Numbers) -> float:
        changed = [self.trials.residuals(self._beside(factor)) for factor in (1 - TINY, 1 + TINY)]
        return max(_loss(one - residuals) for one in changed)

    def _beside(self, factor: float) -> dict[str, float]:
        """All values times `factor`, but within their ranges: beyond them a cost model may not exist."""
        moved = {name: value * factor for name, value in self.best.values.items()}
        return moved | {one.name: _within(one, moved[one.name]) for one in self.free}

    def _from_starts(self, centre: Values, share: float) -> _Point:
        """The best of the descents from `centre` and from both sides of it."""
        starts = (
            {one.name: _within(one, centre[one.name] * exp(share * far)) for one in self.free}
            for far in STARTS
        )
        return min((self._descent(self.free, start, {}) for start in starts), key=lambda point: point.loss)

    def estimate(self, one: Parameter) -> Estimate:
        """The best value, and the interval around it."""
        return Estimate(
            parameter=one,
            value=self.best.values[one.name],
            low=self._end(one, -1.0),
            high=self._end(one, 1.0),
        )

    def _end(self, one: Parameter, side: float) -> float:
        """Where the profile passes the limit on one side, or the end of the range."""
        bound = one.most if side > 0 else one.least
        inside, point, step = self.best.values[one.name], self.best, WALK
        passed = 0.0
        while inside != bound:
            value = _within(one, inside * exp(side * step))
            others = [other for other in self.free if other is not one]
            point = self._descent(others, point.values, {one.name: value})
            deviance = self._deviance(point)
            if deviance > LIMIT:
                share = (LIMIT - passed) / (deviance - passed)
                return inside * exp(log(value / inside) * share)
            inside, passed, step = value, max(deviance, 0.0), 2 * step
        return bound

    def _deviance(self, point: _Point) -> float:
        ratio = (point.loss + self.roughness) / max(self.best.loss + self.roughness, 1e-12)
        return self.num_independent * log(max(ratio, 1e-12))

    def _descent(self, free: Sequence[Parameter], start: Values, held: Values) -> _Point:
        """The best values of `free` near `start`, with `held` as they are."""
        from scipy.optimize import least_squares

        def values(x: Numbers) -> dict[str, float]:
            moved = {
                one.name: _within(one, one.prior * exp(at - ORIGIN)) for one, at in zip(free, x, strict=True)
            }
            return {**self.kept, **moved, **held}

        def residuals(x: Numbers) -> Numbers:
            return self.trials.residuals(values(x))

        if not free:
            return _Point(values(np.empty(0)), _loss(residuals(np.empty(0))))
        ends = np.array([[_at(one, one.least), _at(one, one.most)] for one in free]).T
        found: Any = least_squares(
            residuals,
            np.clip([_at(one, start[one.name]) for one in free], ends[0] + 1e-9, ends[1] - 1e-9),
            bounds=ends,
            diff_step=STEP / ORIGIN,
            loss="soft_l1",
            f_scale=WIDE,
            xtol=1e-5,
            ftol=1e-5,
        )
        return _Point(values(found.x), float(2 * found.cost))


def _at(one: Parameter, value: float) -> float:
    """The searched variable of a value."""
    return log(value / one.prior) + ORIGIN


def _within(one: Parameter, value: float) -> float:
    return min(max(value, one.least), one.most)


def _loss(residuals: Numbers) -> float:
    """The soft L1 loss that `least_squares` takes, doubled as its cost is."""
    squares = (residuals / WIDE) ** 2
    return float(WIDE**2 * np.sum(2 * (np.sqrt(1 + squares) - 1)))
