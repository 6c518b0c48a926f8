"""Dynamic batching: a time window; a batch starts when it is full or when its window ends.

order fcfs · gate the batch is empty, and full or old enough · KV the worst case of every
slot · composition all prompts in one step, then decodes · victim none · leave at once

Nobody joins until the batch has ended, so it only shrinks.  The rule for the first `w` waiting
requests, at most max_batch_size, the oldest of which came at `t`:

    a preferred size p <= w, and now < t + window or window = 0   start the p that came first
    now >= t + window                                             start all w
    otherwise                                                     wait until then, or for an arrival

Source: Triton Inference Server, `dynamic_batch_scheduler.cc`, GetDynamicBatch
(`max_queue_delay_microseconds`, `preferred_batch_size`).
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.policies.about import About
from batchwright.policies.check import DEFAULT_BATCH, batch_size, check_count, check_number, check_sizes
from batchwright.policies.kv import admit_whole, can_reserve, whole_length


@ordinary
@dataclass(frozen=True)
class Dynamic:
    """`max_batch_size`: requests of one batch; None: 32, or `max_num_seqs` if that is less.

    `window`: seconds that the oldest request waits at most while the server is free; 0: nobody waits then.

    `preferred_sizes`: batch sizes to start at before the window ends, or at any time if there is none;
    empty: `max_batch_size`.
    Raises InputError on a value that cannot be.
    """

    about = About(
        engine="Triton Inference Server's dynamic batcher",
        order="first come",
        first="all prompts of a batch, then its decodes",
        chunking="none",
        kv="prompt + max_tokens",
        victim="nobody",
        leave="at once; nobody joins before all have",
        source="triton-inference-server/core, dynamic_batch_scheduler.cc; the defaults are our choice",
        left_out="several instances; priority levels; queue limits and timeouts",
    )
    max_batch_size: int | None = None
    window: float = 0.25
    preferred_sizes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_count("dynamic", self, "max_batch_size", optional=True)
        check_number("dynamic", self, "window", 0.0, 1e6)
        most = DEFAULT_BATCH if self.max_batch_size is None else self.max_batch_size
        sizes = check_sizes("dynamic", self, "preferred_sizes", most)
        object.__setattr__(self, "preferred_sizes", sizes)

    def begin(self, batch: Batch) -> Policy:
        size, preferred = self.sizes(batch.limits.max_num_seqs)
        batch.max_running = size
        return DynamicRun(size, float(self.window), preferred)

    def sizes(self, max_num_seqs: int) -> tuple[int, list[int]]:
        """The greatest batch, and the preferred ones, ascending.  Raises LimitError."""
        size = batch_size("dynamic", "max_batch_size", self.max_batch_size, max_num_seqs)
        return size, [preferred for preferred in sorted(self.preferred_sizes) if preferred <= size] or [size]


class DynamicRun:
    """Dynamic batching on one batch."""

    def __init__(self, max_batch_size: int, window: float, preferred: list[int]) -> None:
        self.max_batch_size = max_batch_size
        self.window = window
        self.preferred = preferred  # ascending

    def __call__(self, b: Batch) -> None:
        if b.edits > 0 or b.num_running > 0 or b.num_waiting == 0:
            return
        self.start(b, self.size(b))

    def size(self, b: Batch) -> int:
        """How many requests to start now; 0: wait."""
        deadline = b.waiting.oldest(b.num_waiting) + self.window
        ready = min(b.num_waiting, self.max_batch_size)
        size = starting(ready, self.window, b.now >= deadline, self.preferred)
        if size == 0:
            b.wake_at(deadline)
        return size

    def start(self, b: Batch, size: int) -> None:
        """Admit the first `size` requests, or as many as the KV cache holds."""
        for r in b.waiting.head(size):
            if not can_reserve(b, whole_length(r)):
                return
            admit_whole(b, r, whole_length(r))


def starting(ready: int, window: float, is_over: bool, preferred: list[int]) -> int:
    """How many of `ready` waiting requests to start; 0: wait.  `is_over`: has the window ended?"""
    best = max([size for size in preferred if size <= ready], default=0)
    if best > 0 and (window == 0 or not is_over):
        return best
    return ready if is_over else 0
