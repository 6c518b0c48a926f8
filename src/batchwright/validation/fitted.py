"""The range that the profile of a run was measured on."""

from __future__ import annotations

from batchwright.cost import Range
from batchwright.profile import read
from batchwright.run_folder import RunFolder


def fitted_range(folder: RunFolder) -> Range | None:
    """By feature of a step; None if the run was made without a profile.

    Raises InputError if its file has gone, or is none any more.
    """
    name = folder.config.get("profile")
    return None if name is None else read(folder.folder / str(name)).range
