"""What becomes of a request that must give its blocks back: it recomputes, or is swapped out.

    recompute   it is preempted at once, waits in front, and prefills again
    swap        its KV goes to host memory, and the step waits for the copy.  It comes back, first out
                first, in a step that swaps nobody out; until then no new prompt is admitted

A policy asks `waits` first, admits new prompts unless it `holds_prompts`, and before a step of
decodes lets it `make_room` and `resume`.

Source: vLLM 0.6, `core/scheduler.py` (`PreemptionMode`, `_schedule_swapped`), `core/block_manager.py`
(`can_swap_in`); `worker/cache_engine.py`: copies come before the forward pass of their step.
Where host memory is full vLLM gives up; here that victim, and the others of its step, recompute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Protocol

from batchwright.batch import Batch
from batchwright.errors import InputError
from batchwright.host_memory import HostMemory
from batchwright.link import Link
from batchwright.policies.check import check_choice, check_number
from batchwright.policies.victim import preempt_newest
from batchwright.request import DECODING, Request
from batchwright.swapping import swap_in, swap_out

RECOMPUTE: Final = "recompute"
SWAP: Final = "swap"
GIB: Final = 1 << 30


class Preemption(Protocol):
    """How blocks are taken back, on one batch."""

    def waits(self, b: Batch) -> bool:
        """Does the coming step wait for KV that moves?  Then no decode runs."""

    def holds_prompts(self, b: Batch) -> bool:
        """Must new prompts wait for those that were preempted?"""

    def make_room(self, b: Batch) -> None:
        """Take blocks back, from the newest first, until the decodes of the coming step have theirs."""

    def resume(self, b: Batch, watermark: int = 0) -> None:
        """Let those come back that fit beside the decodes and `watermark` blocks."""


class SwapFlags(Protocol):
    """The flags of a policy that can swap.

    preemption_mode     recompute or swap
    swap_space          GiB of host memory for each GPU
    swap_bandwidth      bytes/s in each direction; None: the GPU's slot, if the run has a GPU
    kv_bytes_per_token  on each GPU; None: the model's
    """

    @property
    def preemption_mode(self) -> str: ...
    @property
    def swap_space(self) -> float: ...
    @property
    def swap_bandwidth(self) -> float | None: ...
    @property
    def kv_bytes_per_token(self) -> float | None: ...


def check_swap(policy: str, flags: SwapFlags) -> None:
    """Raises InputError on a flag that cannot be."""
    check_choice(policy, flags, "preemption_mode", (RECOMPUTE, SWAP))
    check_number(policy, flags, "swap_space", 0.0, 1e9)
    check_number(policy, flags, "swap_bandwidth", 1.0, 1e18, optional=True)
    check_number(policy, flags, "kv_bytes_per_token", 1.0, 1e12, optional=True)


def preemption(policy: str, flags: SwapFlags, batch: Batch) -> Preemption:
    """What `policy` does on `batch`.  Raises InputError if it swaps over a link that nobody knows."""
    if flags.preemption_mode == RECOMPUTE:
        return Recompute()
    link = _link(policy, flags, batch.link)
    block = batch.blocks.block_size * link.bytes_per_token
    batch.host = HostMemory(link, int(flags.swap_space * GIB // block))
    return Swap(batch.host)


def _link(policy: str, flags: SwapFlags, known: Link | None) -> Link:
    """The link of the run, with what the flags say in its place."""
    bandwidth, each = flags.swap_bandwidth, flags.kv_bytes_per_token
    if known is None and (bandwidth is None or each is None):
        raise InputError(
            f"{policy}: preemption_mode swap needs swap_bandwidth and kv_bytes_per_token where the cost is "
            "not that of a GPU and a model; give both, or use recompute"
        )
    found = known or Link(bandwidth=1.0, bytes_per_token=1.0)
    if bandwidth is not None:
        found = replace(found, bandwidth=bandwidth)
    return found if each is None else replace(found, bytes_per_token=each)


class Recompute:
    """By recomputation: who is preempted is a prompt like any other."""

    def waits(self, b: Batch) -> bool:
        return False

    def holds_prompts(self, b: Batch) -> bool:
        return False

    def make_room(self, b: Batch) -> None:
        preempt_newest(b)

    def resume(self, b: Batch, watermark: int = 0) -> None:
        pass


class Swap:
    """By swap to host memory."""

    def __init__(self, host: HostMemory) -> None:
        self.host = host
        self.tick = -1  # of the step that KV moves for

    def waits(self, b: Batch) -> bool:
        if self.host.num_moving > 0:
            b.decodes_run = False
        return self.host.num_moving > 0

    def holds_prompts(self, b: Batch) -> bool:
        if self._is_open(b):
            b.wake_after(1)
            return True
        return b.num_swapped > 0

    def make_room(self, b: Batch) -> None:
        while b.decode_blocks() > b.blocks.free + self.host.leaving_blocks:
            r = b.newest()
            if self._has_place(b, r) and not b.has_preempted:
                swap_out(b, r)
            elif self.host.num_moving > 0:  # it is asked again when the copies have been made
                break
            else:
                b.preempt(r)
        self._wait(b)

    def resume(self, b: Batch, watermark: int = 0) -> None:
        while not self._is_open(b) and b.num_swapped > 0 and b.num_running + b.num_coming < b.max_running:
            r = next(iter(self.host.swapped))
            if not self._fits(b, r, watermark):
                break
            swap_in(b, r)
        self._wait(b)

    def _is_open(self, b: Batch) -> bool:
        """Is the step that KV moved for still to come?"""
        return self.tick == b.tick_count and len(b.running) > 0

    def _wait(self, b: Batch) -> None:
        if self.waits(b):
            self.tick = b.tick_count

    def _has_place(self, b: Batch, r: Request) -> bool:
        """Does host memory hold the KV of `r`?  An incomplete prompt is not worth a copy."""
        return r.state == DECODING and b.blocks.count(b.clock + r.shift) <= self.host.free

    def _fits(self, b: Batch, r: Request, watermark: int) -> bool:
        """Is there room for `r` and its next token, beside those that come with it?"""
        if len(b.running) + b.num_coming == 0:
            return b.blocks.count(r.computed + 1) <= b.blocks.free
        need = b.blocks.count(r.computed) + 1 + b.num_coming
        return need + watermark <= b.spare_blocks
