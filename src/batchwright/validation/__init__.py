"""Predicted against measured, of one run: see `Validation`."""

from batchwright.validation.bounds import Bound, read_bounds
from batchwright.validation.predicted import predicted_side
from batchwright.validation.side import Side, measured_side
from batchwright.validation.validation import Validation
from batchwright.validation.words import paragraph

__all__ = ["Bound", "Side", "Validation", "measured_side", "paragraph", "predicted_side", "read_bounds"]
