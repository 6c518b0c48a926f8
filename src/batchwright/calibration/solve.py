"""Robust least squares without negative coefficients, by scipy.

The rounds of weights are those of the live calibration (`measured.fit`), which must do without scipy
and has its own solver; a fit that a user asks for has the extra `fit`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from batchwright.errors import InputError
from batchwright.measured.fit import robust
from batchwright.metrics import Numbers

SHORT: Final = 4096  # steps that the solver takes as they are
PIECE: Final = 1024
EXTRA: Final = "fit needs scipy, which the extra brings: pip install 'batchwright[fit]'"


def check_extra() -> None:
    """Raises InputError if scipy is not installed."""
    try:
        import scipy.optimize  # noqa: F401
    except ImportError:
        raise InputError(EXTRA) from None


def robust_fit(columns: Numbers, seconds: Numbers) -> Numbers:
    """The coefficients, none negative, under which relative errors are least; outliers count less."""
    return robust(columns, seconds, _least)


def _least(columns: Numbers, values: Numbers) -> Numbers:
    """Columns are scaled alike, so that the solver's tolerances fit all of them."""
    from scipy.optimize import nnls

    scale = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    rows = _triangle(np.column_stack([columns / scale, values]))
    found: Numbers = nnls(rows[:, :-1], rows[:, -1], maxiter=100 * len(scale))[0] / scale
    return found


def _triangle(rows: Numbers) -> Numbers:
    """Few rows with the same least squares as many: R of QR, piece by piece, each as large as a cache."""
    if len(rows) <= SHORT:
        return rows
    done: Numbers = rows[:0]
    for start in range(0, len(rows), PIECE):
        done = np.linalg.qr(np.vstack([done, rows[start : start + PIECE]])).R
    return done
