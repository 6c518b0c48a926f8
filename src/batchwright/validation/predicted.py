"""The predicted side, from a run folder that `compare -o` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from batchwright.columns_file import read_columns
from batchwright.errors import InputError
from batchwright.metrics import NOTHING, Numbers, Spread
from batchwright.run.counts import Count
from batchwright.run_folder import RunFolder
from batchwright.validation.side import RUNNING, WAITING, Columns, Side, changes, in_order, present

_LEVELS: Final = (RUNNING, WAITING)


def predicted_side(folder: RunFolder, policy: str | None = None, title: str | None = None) -> Side:
    """What `policy` of a run folder says, called `title`; None: the only one, by its name.

    Raises InputError.
    """
    name = chosen(folder, policy)
    requests = in_order(folder.requests(name))
    steps = _steps(folder, name)
    return Side(
        name=name if title is None else title,
        remarks=tuple(_remarks(folder.summary)),
        requests=requests,
        levels=present(requests) | {level: _level(steps, level) for level in _LEVELS},
        itl=_itl(folder.summary, name),
        itl_skip=folder.summary["num_warm_up_requests"],
        steps=steps,
    )


def _remarks(summary: dict[str, Any]) -> Iterator[str]:
    """Where its own summary counts other requests than are compared here."""
    loads, warm_up = summary["num_loads"], summary["num_warm_up_requests"]
    if loads > 1:
        yield f"the run folder is of {loads} loads; the first one is compared"
    if warm_up:
        yield f"its own summary leaves out {warm_up:,} requests as warm-up; here --skip says how many"


def chosen(folder: RunFolder, policy: str | None) -> str:
    """The policy that is meant.  Raises InputError if that is not clear."""
    known = list(folder.summary["policies"])
    if policy is None and len(known) > 1:
        raise InputError(f"{folder.folder}: has the policies {', '.join(known)}; give one with --policy")
    return known[0] if policy is None else policy


def _steps(folder: RunFolder, policy: str) -> Columns:
    """The steps of one policy, replica by replica."""
    rows = read_columns(folder.folder / "steps")
    needed = ("policy", "start_s", "end_s", *_LEVELS)
    missing = [name for name in needed if name not in rows]
    if missing:
        raise InputError(f"{folder.folder / 'steps'}: has no {missing[0]}; run the comparison again")
    mine = rows["policy"] == policy
    return {name: values[mine] for name, values in rows.items() if name != "policy"}


def _level(steps: Columns, name: str) -> Count:
    """After each step, summed over the replicas."""
    replica = steps.get("replica", np.zeros(len(steps["end_s"]), np.int64))
    before: Numbers = np.concatenate(([0], steps[name][:-1]))
    before[np.flatnonzero(np.diff(replica)) + 1] = 0
    return changes(steps["end_s"], steps[name] - before)


def _itl(summary: dict[str, Any], policy: str) -> Spread:
    """That of the whole run, if it has one load; a mean over loads has no gaps to compare."""
    found = summary["policies"][policy].get("itl_s", {})
    if summary["num_loads"] != 1 or found.get("mean") is None:
        return NOTHING
    return Spread(**found)
