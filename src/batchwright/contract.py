"""What users plug in: policies and cost models, as plain callables.

A policy edits the batch before a step.  It is asked again only after an event (an arrival, a
finish, a cancel, a KV shortage, a wake-up, a step that it edited), and keeps this contract:

    asked at a later step with no event since, it edits nothing;
    asked again before the step has run, it sees its own plan and edits nothing.

A cost model gives the seconds of one step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from batchwright.batch import Batch

Policy = Callable[[Batch], None]


@runtime_checkable
class Begins(Protocol):
    """A policy with settings or state: `begin` sets up the batch and returns who is asked."""

    def begin(self, batch: Batch) -> Policy: ...
