"""The requests that follow others: made in a run, when the one that they follow has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from batchwright.request import Request
from batchwright.workload.columns import Columns, Ints

Then = Callable[[Request, float], list[Request]]
Make = Callable[[int, float, Then | None], Request]  # row, arrival, what follows it


class Followers:
    """`make` makes one request of the load; `Request.then` of those that are followed is this object."""

    def __init__(self, columns: Columns, make: Make) -> None:
        assert columns.after is not None
        self._make = make
        self._arrival = columns.arrival
        self._think = columns.think
        self._after = columns.after
        self._rows = _rows_after(columns.after)

    def roots(self) -> Iterator[Request]:
        """Those that follow nobody, in order of arrival."""
        for row in (self._after < 0).nonzero()[0].tolist():
            yield self._request(row, float(self._arrival[row]))

    def __call__(self, r: Request, instant: float) -> list[Request]:
        """Those that follow `r`, whose client has seen its end at `instant`."""
        return [self._request(row, instant + self._pause(row)) for row in self._rows[r.id]]

    def _pause(self, row: int) -> float:
        return 0.0 if self._think is None else float(self._think[row])

    def _request(self, row: int, arrival: float) -> Request:
        return self._make(row, arrival, self if row in self._rows else None)


def _rows_after(after: Ints) -> dict[int, list[int]]:
    """The rows that follow each row."""
    found: dict[int, list[int]] = {}
    for row, before in enumerate(after.tolist()):
        if before >= 0:
            found.setdefault(before, []).append(row)
    return found
