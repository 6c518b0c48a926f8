"""Parts of a log that are left out in turn.

Neighbours in a log are alike, for the same requests run in them and the machine has the same
temperature: a step between two others that a model was fitted to is hardly a test of it.  So whole
blocks of time are left out, and their errors are held-out errors.  The fits without one block also
say how uncertain a coefficient is (jackknife: Quenouille 1949; Efron and Tibshirani 1993, chapter 11):

    standard error = sqrt((B - 1) / B * sum of (fit without block - mean of those)^2)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from batchwright.metrics import Numbers

BLOCKS: Final = 10
Tell = Callable[[float], None]
Solver = Callable[[Numbers, Numbers], Numbers]  # columns and seconds -> coefficients


def nobody(share: float) -> None:
    """Nobody is told."""


@dataclass(frozen=True)
class HeldOut:
    """`seconds`: of each step, by the fit that did not see its block.  `errors`: of the coefficients."""

    seconds: Numbers
    errors: Numbers


def held_out(columns: Numbers, seconds: Numbers, solve: Solver, tell: Tell = nobody) -> HeldOut:
    """Fit without each block in turn.  `tell`: is told what share of them is done."""
    block = block_of(len(seconds))
    predicted, found = np.empty(len(seconds)), []
    for number in range(int(block[-1]) + 1):
        tell(number / BLOCKS)
        is_out = block == number
        found.append(solve(columns[~is_out], seconds[~is_out]))
        predicted[is_out] = columns[is_out] @ found[-1]
    fits = np.array(found)
    spread = ((fits - fits.mean(axis=0)) ** 2).sum(axis=0)
    return HeldOut(predicted, np.sqrt(spread * (len(fits) - 1) / len(fits)))


def block_of(count: int) -> Numbers:
    """The block of each of `count` steps."""
    return np.arange(count) * min(BLOCKS, count) // count
