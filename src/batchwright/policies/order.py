"""The order in which requests wait."""

from __future__ import annotations

from batchwright.request import Request


def by_priority(r: Request) -> tuple[float, ...]:
    """Lowest priority number first, then who came first."""
    return (r.priority, r.arrival, r.id)
