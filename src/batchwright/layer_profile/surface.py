"""Times measured on a ragged grid, made whole: `attention.csv` and `moe.csv`.

A row of the file belongs to a slice (its first keys) and has a place along the last one.  Slices were
measured at different places; each is read at the places of all, straight between its own, so between
measured points the result is that of the slice by itself.  A step never gets shorter as its context
grows: where noise says so, the greater time before holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchwright.errors import InputError
from batchwright.layer_profile.table import counts, read_table, rows_of, seconds
from batchwright.metrics import Numbers

ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")


@dataclass(frozen=True, eq=False)
class Surface:
    """Seconds on a whole grid.  `axes`: the points of each; `values`: an array of their lengths."""

    axes: tuple[Numbers, ...]
    values: Numbers


def read_attention(path: Path) -> Surface:
    """The attention of one layer.  Raises InputError."""
    table = read_table(path, (*ATTENTION, "time_us"))
    if "layer" in table and set(table["layer"]) != {"attention"}:
        others = sorted(set(table["layer"]) - {"attention"})
        raise InputError(f"{path}: layer {others[0]!r} is no plain attention, which alone is modelled")
    keys = np.stack([counts(path, table, name) for name in ATTENTION], axis=1)
    is_plain = rows_of(table, "decode_q_len", "1")
    return whole(path, keys[is_plain], seconds(path, table)[is_plain])


def filled(path: Path, keys: Numbers, times: Numbers) -> Surface:
    """A whole grid of two axes.  `keys`: one row per time."""
    axes, values = _scattered(path, keys, times)
    for row in values:
        _along(axes[1], row)
    for column in values.T:
        _along(axes[0], column)
    return Surface(axes, values)


def whole(path: Path, keys: Numbers, times: Numbers) -> Surface:
    """A whole grid of attention.  `keys`: one row per time, columns as in ATTENTION."""
    axes, values = _scattered(path, keys, times)
    if np.isnan(values[0]).all() or axes[0][0] != 0:
        raise InputError(f"{path}: no step without prompt tokens (prefill_chunk 0); profile decodes, too")
    _fill(axes, values)
    if np.isnan(values).any():
        prefill = axes[0][int(np.argwhere(np.isnan(values))[0][0])]
        raise InputError(f"{path}: too few steps of {prefill} prompt tokens were measured; profile again")
    return Surface(axes, np.maximum.accumulate(values, axis=3))


def _scattered(path: Path, keys: Numbers, times: Numbers) -> tuple[tuple[Numbers, ...], Numbers]:
    """The axes, and an array with the times where they were measured and nan elsewhere."""
    if len(np.unique(keys, axis=0)) < len(keys):
        raise InputError(f"{path}: the same step is measured twice; keep one of its rows")
    axes = tuple(np.unique(keys[:, i]) for i in range(keys.shape[1]))
    values = np.full([len(axis) for axis in axes], np.nan)
    values[tuple(np.searchsorted(axis, keys[:, i]) for i, axis in enumerate(axes))] = times
    return axes, values


def _fill(axes: tuple[Numbers, ...], values: Numbers) -> None:
    """Fill the places that were not measured."""
    prefill, past, decodes, context = axes
    for p in range(len(prefill)):
        for n in range(len(decodes)):
            for h in range(len(past)):
                _along(context, values[p, h, n])
            for k in range(len(context)):
                _along(past, values[p, :, n, k])
    _fill_decodes(values)
    if np.isnan(values[0, :, 0]).all():  # no work at all
        values[0, :, 0] = values[:, :, 0][~np.isnan(values[:, :, 0])].min() if len(prefill) > 1 else 0.0


def _along(points: Numbers, line: Numbers) -> None:
    """Between the measured points straight, before the first its value, beyond the last the last slope."""
    has = ~np.isnan(line)
    if has.all() or not has.any():
        return
    x, y = points[has], line[has]
    filled = np.interp(points, x, y)
    if len(x) > 1:
        slope = max((y[-1] - y[-2]) / (x[-1] - x[-2]), 0.0)
        beyond = points > x[-1]
        filled[beyond] = y[-1] + slope * (points[beyond] - x[-1])
    line[:] = filled


def _fill_decodes(values: Numbers) -> None:
    """Steps of chunks with more decodes than were measured: the decodes add what they add without chunks."""
    alone = values[0, 0]
    for p in range(1, len(values)):
        for n in range(1, values.shape[2]):
            if np.isnan(values[p, :, n]).all():
                values[p, :, n] = values[p, :, n - 1] + np.maximum(alone[n] - alone[n - 1], 0.0)
