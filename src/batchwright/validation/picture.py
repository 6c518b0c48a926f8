"""The two sides as one picture, by matplotlib: levels over time, distributions, requests in pairs."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np

from batchwright.errors import InputError
from batchwright.metrics import Numbers
from batchwright.run.counts import Count
from batchwright.run.run import METRICS
from batchwright.validation.lines import window
from batchwright.validation.side import RUNNING, WAITING, Side
from batchwright.validation.validation import Validation

FORMATS: Final = (".svg", ".png")
PREDICTED, MEASURED, NEUTRAL = "#0072b2", "#d55e00", "#808080"  # told apart by colour-blind eyes, too
SIZE: Final = (12.0, 9.0)  # inches
DOTS: Final = 110  # per inch
TICKS: Final = 6  # of an axis, at most about
POINTS: Final = 3000  # of a line, at most; more are too close to be seen
MANY: Final = 5000  # dots that are drawn one by one; more become an image inside the picture
_STYLE: Any = {  # matplotlib has a type of its own for such keys
    "svg.hashsalt": "batchwright",  # so that names inside are the same every time
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
}


def check_plot(file: Path) -> None:
    """Raises InputError unless a picture can be drawn to a file of that name."""
    if file.suffix.lower() not in FORMATS:
        raise InputError(f"{file}: --plot writes {' or '.join(FORMATS)}; give a name that ends so")
    if find_spec("matplotlib") is None:
        raise InputError("--plot draws with matplotlib; install the extra: pip install 'batchwright[plot]'")


def picture(found: Validation, suffix: str) -> bytes:
    """The picture as a file of that ending.  The same numbers give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        whole = Figure(figsize=SIZE, layout="constrained")
        axes = whole.subplots(3, 3)
        _draw(found, axes)
        whole.suptitle(f"{found.predicted.name}: predicted, and measured in {found.measured.name}")
        return _bytes(whole, suffix.lower())


def _bytes(whole: Any, suffix: str) -> bytes:
    out = BytesIO()
    metadata = {"Date": None} if suffix == ".svg" else {"Software": None}
    whole.savefig(out, format=suffix[1:], dpi=DOTS, metadata=metadata)
    return out.getvalue()


def _draw(found: Validation, axes: Any) -> None:
    _level(found, axes[0][0], RUNNING)
    _level(found, axes[0][1], WAITING)
    _differences(found, axes[0][2])
    for column, name in enumerate(METRICS):
        _shares(found, axes[1][column], name)
        _points(found, axes[2][column], name)
    handles, labels = axes[1][0].get_legend_handles_labels()
    if handles:
        axes[1][0].legend(handles, labels, frameon=False, loc="lower right")


def _empty(axis: Any, why: str) -> None:
    axis.set_axis_off()
    axis.text(0.5, 0.5, why, ha="center", va="center", color=NEUTRAL, transform=axis.transAxes)


def _level(found: Validation, axis: Any, name: str) -> None:
    begin, end = window(found.predicted, found.measured, found.kept, name)
    if not end > begin or not found.has_level(name):
        _empty(axis, f"{name}: not on both sides")
        return
    for side, colour in ((found.measured, MEASURED), (found.predicted, PREDICTED)):
        axis.step(*_thinned(*_course(side.levels[name], begin, end)), where="post", **_LINES[colour])
    axis.set(title=f"{name} requests", xlabel="seconds from the first arrival", ylim=(0, None))


def _course(level: Count, begin: float, end: float) -> tuple[Numbers, Numbers]:
    """Times and values of a level, with those at both ends."""
    inside = (level.times > begin) & (level.times < end)
    times: Numbers = np.concatenate(([begin], level.times[inside], [end]))
    return times, level.at(times)


def _sides(found: Validation) -> list[tuple[Side, Numbers, str, str]]:
    return [
        (found.measured, found.kept.measured, "measured", MEASURED),
        (found.predicted, found.kept.predicted, "predicted", PREDICTED),
    ]


# The predicted line lies over the measured one, which is wide enough to be seen below it.
_LINES: Final[dict[str, dict[str, Any]]] = {
    MEASURED: {"color": MEASURED, "linewidth": 3.2, "alpha": 0.55},
    PREDICTED: {"color": PREDICTED, "linewidth": 1.1},
}


def _shares(found: Validation, axis: Any, name: str) -> None:
    values = [side.column(name)[rows] for side, rows, _, _ in _sides(found)]
    if any(np.isnan(each).all() for each in values):
        _empty(axis, f"{METRICS[name]}: not on both sides")
        return
    for each, (_, _, label, colour) in zip(values, _sides(found), strict=True):
        axis.step(*_below(each), where="post", label=label, **_LINES[colour])
    axis.set(title=f"{METRICS[name]}, distribution", xlabel="seconds", ylabel="share of requests")
    axis.set(xlim=(0, None), ylim=(0, 1.02))
    axis.locator_params(axis="x", nbins=TICKS)


def _below(values: Numbers) -> tuple[Numbers, Numbers]:
    """Each value, and the share of them that is not greater."""
    ordered = np.sort(values[~np.isnan(values)])
    shares = (1 + np.arange(len(ordered))) / len(ordered)
    values, shares = _thinned(ordered, shares)
    return np.concatenate((values[:1], values)), np.concatenate(([0.0], shares))


def _thinned(x: Numbers, y: Numbers) -> tuple[Numbers, Numbers]:
    """At most `POINTS` of the points of a line, the first and the last among them."""
    if len(x) <= POINTS:
        return x, y
    kept = np.linspace(0, len(x) - 1, POINTS).round().astype(np.int64)
    return x[kept], y[kept]


def _points(found: Validation, axis: Any, name: str) -> None:
    a, b = found.predicted.column(name), found.measured.column(name)
    if not found.kept.is_paired:
        _empty(axis, "not the same requests: no pairs")
        return
    a, b = a[found.kept.predicted], b[found.kept.measured]
    if np.isnan(a - b).all():
        _empty(axis, f"{METRICS[name]}: not on both sides")
        return
    most = 1.05 * float(np.nanmax([a, b]))
    axis.plot([0, most], [0, most], color=NEUTRAL, linewidth=0.8)
    _scatter(axis, b, a)
    axis.set(
        title=f"{METRICS[name]} of each request", xlabel="measured, seconds", ylabel="predicted, seconds"
    )
    axis.set(xlim=(0, most), ylim=(0, most))
    axis.locator_params(nbins=TICKS)


def _scatter(axis: Any, x: Numbers, y: Numbers) -> None:
    axis.scatter(x, y, s=7, color=PREDICTED, alpha=0.4, linewidths=0, rasterized=len(x) > MANY)


def _differences(found: Validation, axis: Any) -> None:
    """E2E predicted less measured by arrival: each request in pairs, and the mean of each part."""
    if not found.parts:
        _empty(axis, "arrivals are not known")
        return
    axis.axhline(0, color=NEUTRAL, linewidth=0.8)
    if found.kept.is_paired:
        apart = (found.predicted.column("e2e_s") - found.measured.column("e2e_s"))[found.kept.measured]
        arrival = found.measured.column("arrival_s")[found.kept.measured]
        _scatter(axis, arrival, apart)
    middles = [(part.begin + part.end) / 2 for part in found.parts]
    means = [part.e2e for part in found.parts]
    axis.plot(middles, means, color="black", linewidth=1.2, marker="o", markersize=3)
    axis.set(title="E2E, predicted - measured", xlabel="arrival, seconds", ylabel="seconds")
