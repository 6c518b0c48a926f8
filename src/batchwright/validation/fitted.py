"""The range that the profile of a run was fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchwright.validation.extrapolation import Range


def fitted_range(config: Mapping[str, Any], folder: Path) -> Range | None:
    """By feature of a step; None if the run was made without a profile."""
    return None
