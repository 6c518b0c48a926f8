"""Fit a cost model to a log of steps.

    seconds of the device = line(tokens) + chunk * chunks + decode * rows + context * KV tokens read
                            + past * KV tokens behind chunks + prefill_attention * pairs
    seconds of the host   = base + per_running * running         where the log has them apart

Least squares of relative errors without negative coefficients; steps that took far longer or shorter
than the others like them lose weight, so the fit is of the machine without its pauses, and `total` tells
what those add.  The line along tokens has no kink, or one at powers of 4 or of 2: the simplest
whose held-out error is within `TIE` of the least.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from batchwright.calibration.blocks import HeldOut, Tell, held_out, nobody
from batchwright.calibration.errors import Class, Errors, classes, errors
from batchwright.calibration.measured import Steps, thinned
from batchwright.calibration.solve import check_extra, robust_fit
from batchwright.calibration.terms import UNITS, Terms, knots, usable
from batchwright.cost import Cost, Fitted, Hosted
from batchwright.errors import InputError
from batchwright.metrics import Numbers

FEWEST: Final = 60  # steps of a fit
MOST: Final = 20_000  # of a longer log as many, evenly spaced: their neighbours say the same
KINKS: Final = (0, 4, 2)  # powers of these
TIE: Final = 0.02  # of the least held-out error
FAR: Final = 0.1  # total of held-out steps; more is told
ROUNDING: Final = 1e-6  # of a step


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """`per`: what its seconds are per.  `error`: its standard error, by leaving out blocks of time."""

    name: str
    per: str
    value: float
    error: float


@dataclass(frozen=True, kw_only=True)
class StepFit:
    """A fit to steps.

    device          the model of the device, and what a part of it is worth
    host            seconds of a step and per running request; None: not apart in the log
    fit             errors on the steps that it was fitted to
    held_out        errors of fits that did not see the block of a step
    classes         held-out errors by kind of step
    kept            terms that the steps do not determine, with the reason
    range           of every feature of the measured steps, the least and the greatest
    """

    steps: Steps
    device: Fitted
    host: tuple[float, float] | None
    coefficients: tuple[Coefficient, ...]
    fit: Errors
    held_out: Errors
    classes: tuple[Class, ...]
    kept: tuple[str, ...]
    range: dict[str, tuple[float, float]]

    @property
    def cost(self) -> Cost:
        """The model of device and host."""
        return self.device if self.host is None else Hosted(self.device, *self.host)

    @property
    def remarks(self) -> list[str]:
        """What is to be known before the fit is believed."""
        found, total = [], self.held_out.total
        if abs(total) > FAR:
            found.append(
                f"all steps together took {1 / (1 + total) - 1:+.0%} against the fit, which is of most of "
                "them: the machine paused, or did what the log does not tell; predicted totals will miss that"
            )
        weak = [one.name for one in self.coefficients if 0 < one.value < one.error]
        if weak:
            found.append(f"hardly known, with a standard error over the value: {', '.join(weak)}")
        return found


def fit_steps(steps: Steps, attention: bool = True, tell: Tell = nobody) -> StepFit:
    """Raises InputError on too few steps, or without scipy.

    `attention`: with the terms of attention.  `tell`: is told what share of the work is done.
    """
    check_extra()
    if len(steps) < FEWEST:
        raise InputError(f"{len(steps)} steps were measured; a fit needs {FEWEST}, give a longer log")
    ends = {name: (float(values.min()), float(values.max())) for name, values in steps.work.items()}
    steps = thinned(steps, MOST)
    names, kept = usable(steps.work, steps.seconds, attention)
    terms, out = _chosen(steps, names, tell)
    columns = terms.columns(steps.work)
    found = robust_fit(columns, steps.seconds)
    host, of_host = _host(steps)
    return StepFit(
        steps=steps,
        device=terms.cost(found),
        host=host,
        coefficients=(*_coefficients(terms, found, out.errors), *of_host),
        fit=errors(columns @ found, steps.seconds),
        held_out=errors(out.seconds, steps.seconds),
        classes=tuple(classes(steps.work, out.seconds, steps.seconds)),
        kept=tuple(kept),
        range=ends,
    )


def _chosen(steps: Steps, names: tuple[str, ...], tell: Tell) -> tuple[Terms, HeldOut]:
    """The simplest line along tokens that predicts nearly as well as the best."""
    tried: dict[Terms, HeldOut] = {}
    for i, ratio in enumerate(KINKS):
        terms = Terms(knots(steps.work["tokens"], ratio), names)
        if terms not in tried:
            part = partial(_part, tell, i)
            tried[terms] = held_out(terms.columns(steps.work), steps.seconds, robust_fit, part)
    mean = {terms: errors(out.seconds, steps.seconds).mean for terms, out in tried.items()}
    most = (1 + TIE) * min(mean.values()) + ROUNDING
    return next((terms, out) for terms, out in tried.items() if mean[terms] <= most)


def _part(tell: Tell, part: int, share: float) -> None:
    tell((part + share) / len(KINKS))


def _coefficients(terms: Terms, found: Numbers, spread: Numbers) -> list[Coefficient]:
    names = ["base", *terms.pieces, *terms.names]
    per = ["step", *("token" for _ in terms.pieces), *(UNITS[name] for name in terms.names)]
    rows = zip(names, per, found.tolist(), spread.tolist(), strict=True)
    return [Coefficient(name=name, per=what, value=value, error=error) for name, what, value, error in rows]


def _host(steps: Steps) -> tuple[tuple[float, float] | None, list[Coefficient]]:
    """Seconds of a step and per running request, where the log has them apart."""
    if steps.host is None or not (steps.host > 0).all():
        return None, []
    work = steps.work
    running = work["num_decodes"] + work.get("padded_rows", 0.0) + work.get("num_chunks", 0.0)
    columns = np.column_stack([np.ones(len(running)), running])
    base, each = robust_fit(columns, steps.host).tolist()
    errs = held_out(columns, steps.host, robust_fit).errors.tolist()
    return (base, each), [
        Coefficient(name="host base", per="step", value=base, error=errs[0]),
        Coefficient(name="host per_running", per="running request", value=each, error=errs[1]),
    ]
