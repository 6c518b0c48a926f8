"""Which run of a file that holds several."""

from __future__ import annotations

from collections.abc import Sequence

from batchwright.errors import InputError
from batchwright.imported.source import Source
from batchwright.workload.cells import listed


def chosen(source: Source, labels: Sequence[str]) -> int:
    """The number of the run that the user wants: its number or its label is `--run`.

    Raises InputError where none is wanted and there are several, or the one is not there.
    """
    known = "; ".join(listed(f"{number}: {label}" for number, label in enumerate(labels)))
    if source.run is None and len(labels) == 1:
        return 0
    if source.run is None:
        raise InputError(f"{source.name}: holds {len(labels)} runs; choose one with --run ({known})")
    names = [*map(str, range(len(labels)))]
    for places in (names, list(labels)):
        if places.count(source.run) == 1:
            return places.index(source.run)
    raise InputError(f"{source.name}: has no run {source.run!r}; choose one of {known}")
