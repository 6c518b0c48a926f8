"""What users plug in: a router is a plain callable.

    def router(request, replicas): return 0       # the index of the replica that gets it

It is called when a request comes, and reads of the request what its client sent, never `true_output`.
One with settings or state is an object whose `begin(num_replicas)` returns what is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from batchwright.cluster.replica import Replica
from batchwright.request import Request

Router = Callable[[Request, Sequence[Replica]], int]


@runtime_checkable
class RouterBegins(Protocol):
    """A router with settings or state; `begin` is called once for every run."""

    def begin(self, num_replicas: int) -> Router: ...
