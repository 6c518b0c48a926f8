"""The times of a degree of tensor parallelism that was not measured, from one that was.

    time = least + (time of the measured degree - least) * measured degree / wanted degree

A rank has a part of every matrix and of the attention heads, so what grows with them shrinks; `least`,
what a layer takes whatever its size, is that of the shortest layer measured.  Norms and the sampler
are whole on every rank.  Rank-local times at TP t, each GPU by itself: what GPUs send is added elsewhere.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from batchwright.layer_profile.folder import Profile
from batchwright.layer_profile.lines import Line
from batchwright.layer_profile.surface import Surface
from batchwright.metrics import Numbers

WHOLE: Final = ("layernorm", "final_layernorm", "sampler")  # on every rank


def at_tp(profile: Profile, tp: int) -> Profile:
    """The profile at `tp`, a multiple of the measured degree."""
    if tp == profile.tp:
        return profile
    part = profile.tp / tp
    least = min(line.seconds.min() for line in profile.dense.values())
    floor = profile.attention.values.min()
    return replace(
        profile,
        tp=tp,
        dense=_shrunk(profile.dense, part, least),
        sequences=_shrunk(profile.sequences, part, least),
        attention=Surface(profile.attention.axes, _part(profile.attention.values, part, floor)),
    )


def _shrunk(lines: dict[str, Line], part: float, least: float) -> dict[str, Line]:
    return {
        name: line if name in WHOLE else Line(line.counts, _part(line.seconds, part, least))
        for name, line in lines.items()
    }


def _part(seconds: Numbers, part: float, least: float) -> Numbers:
    """`part` of what is over `least`."""
    return np.where(seconds > least, least + (seconds - least) * part, seconds)
