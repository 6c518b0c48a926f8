"""What the tests of swaps share: a small policy that swaps, a slow loop for it, and one that moves at random.

    Swapper        vLLM v0 without a watermark: prompts whole and alone, else decodes
    replay         the same, one list a state and one pass over the running requests a step
    RestlessSwap   swaps, holds, pauses and preempts at random, and never waits for a transfer
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Any

import reference
from batchwright.batch import Batch
from batchwright.host_memory import HostMemory
from batchwright.link import Link
from batchwright.policies.preemption import Preemption, preemption
from batchwright.request import DECODING
from batchwright.swapping import swap_in, swap_out


@dataclass(frozen=True, kw_only=True)
class Swapper:
    """`swap_space` in GiB; with one byte a token, one GiB holds 2**30 tokens."""

    preemption_mode: str = "swap"
    swap_space: float = 4.0
    swap_bandwidth: float | None = 16.0
    kv_bytes_per_token: float | None = 1.0
    watermark: int = 0

    def begin(self, batch: Batch) -> SwapperRun:
        return SwapperRun(preemption("swapper", self, batch), self.watermark)


class SwapperRun:
    def __init__(self, taking_back: Preemption, watermark: int) -> None:
        self.preemption = taking_back
        self.watermark = watermark

    def __call__(self, b: Batch) -> None:
        if b.edits > 0 or self.preemption.waits(b):
            return
        if not self.preemption.holds_prompts(b):
            self.admit(b)
        if b.chunks:
            b.decodes_run = False
            return
        self.preemption.make_room(b)
        if b.edits == 0:
            self.preemption.resume(b, self.watermark)

    def admit(self, b: Batch) -> None:
        while b.num_waiting > 0 and b.num_running + b.num_coming < b.max_running:
            r = b.waiting.first()
            if b.blocks.count(r.unfilled) + self.watermark * (b.num_running > 0) > b.blocks.free:
                return
            b.admit(r, r.unfilled)


class _Row(reference.Row):
    """With blocks as a count."""

    held = 0
    swaps = 0


class Replay:
    """The slow loop: time goes on here, because a step waits for the copies that it needs."""

    def __init__(self, load: dict[str, Any], seconds: reference.Seconds, flags: Swapper) -> None:
        config = load["config"]
        self.size: int = config["block_size"]
        self.free: int = config["num_blocks"] - 1
        self.seats: int = config["max_num_seqs"]
        self.rows = [_Row(i, request, config["max_model_len"]) for i, request in enumerate(load["requests"])]
        self.coming = deque(self.rows)
        self.seconds = seconds
        self.flags = flags
        self.host = int(flags.swap_space * 2**30 // self.size)  # one byte a token
        self.now = 0.0
        self.waiting: list[_Row] = []
        self.running: list[_Row] = []
        self.swapped: list[_Row] = []

    def run(self) -> list[_Row]:
        while self.coming or self.waiting or self.running or self.swapped:
            while self.coming and self.coming[0].arrival <= self.now:
                self.waiting.append(self.coming.popleft())
            if self.waiting or self.running or self.swapped:
                self.step()
            else:
                self.now = self.coming[0].arrival
        return self.rows

    def step(self) -> None:
        prompts = [] if self.swapped else self.admit()
        if prompts:
            parts = [reference.Part(row, row.prompt + row.generated, 0, True, True) for row in prompts]
        else:
            self.make_room()
            parts = [reference.Part(row, 1, row.computed, False, True) for row in self.running]
        if not parts:
            return
        self.now += self.seconds(reference.work_of(reference.Plan(parts)))
        for row, tokens, *_ in parts:
            row.computed += tokens
            row.generated += 1
            if row.generated == 1:
                row.first_token = self.now
            if row.generated == row.output:
                row.finished = self.now
                self.running.remove(row)
                self.free += row.held

    def admit(self) -> list[_Row]:
        joined: list[_Row] = []
        while self.waiting and len(self.running) < self.seats:
            row = self.waiting[0]
            need = self.count(row.prompt + row.generated)
            if need + (self.flags.watermark if self.running else 0) > self.free:
                break
            row.held = need
            self.free -= need
            self.running.append(row)
            joined.append(self.waiting.pop(0))
        return joined

    def make_room(self) -> None:
        out: list[_Row] = []
        was_preempted = False
        while self.lacking() > self.free + sum(row.held for row in out):
            row = self.running.pop()
            row.preemptions += 1
            if row.held <= self.host and not was_preempted:
                self.host -= row.held
                out.append(row)
            else:
                was_preempted = True
                self.free += row.held
                row.computed = row.held = 0
                self.waiting.insert(0, row)
        for row in out:
            self.copy(row)
            self.free += row.held
            row.swaps += 1
        self.swapped += out
        if not out and not was_preempted:
            self.resume()
        for row in self.running:
            need = self.count(row.computed + 1) - row.held
            row.held += need
            self.free -= need

    def resume(self) -> None:
        joined: list[_Row] = []
        while self.swapped and len(self.running) + len(joined) < self.seats:
            row = self.swapped[0]
            if not self.running and not joined:
                fits = self.count(row.computed + 1) <= self.free
            else:
                need = self.count(row.computed) + 1 + len(joined) + self.flags.watermark
                fits = need <= self.free - self.lacking()
            if not fits:
                break
            row.held = self.count(row.computed)
            self.free -= row.held
            joined.append(self.swapped.pop(0))
        for row in joined:
            self.copy(row)
            self.host += row.held
        self.running += joined

    def copy(self, row: _Row) -> None:
        assert self.flags.swap_bandwidth is not None
        self.now += row.held * self.size / self.flags.swap_bandwidth

    def lacking(self) -> int:
        return sum(self.count(row.computed + 1) - row.held for row in self.running)

    def count(self, tokens: int) -> int:
        return -(-tokens // self.size)


class RestlessSwap:
    """At random but the same every time; transfers go on while others run."""

    def __init__(self, seed: int, bandwidth: float = 100.0) -> None:
        self.random = Random(seed)
        self.bandwidth = bandwidth
        self.asked: tuple[int, ...] = (-1,)

    def begin(self, batch: Batch) -> RestlessSwap:
        batch.host = HostMemory(Link(bandwidth=self.bandwidth, bytes_per_token=1.0, latency=0.01))
        return self

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        asked = (b.tick_count, b.num_waiting, b.num_swapped, b.num_coming, b.num_running)
        if asked == self.asked:
            return
        self.asked = asked
        b.wake_after(self.random.choice([1, 1, 2, 5]))
        self.swap(b)
        decodes = [r for r in b.running if r.state == DECODING]
        if decodes and self.random.random() < 0.1:
            b.preempt(decodes.pop())
        if self.random.random() < 0.4:
            for r in decodes:
                if self.random.random() < 0.5:
                    b.hold(r)
        self.prefill(b, bool(decodes))
        if b.chunks:
            b.decodes_run = self.random.random() < 0.6

    def swap(self, b: Batch) -> None:
        assert b.host is not None
        is_idle = not b.running and b.host.num_moving == 0
        for r in list(b.host.swapped):
            if (is_idle or self.random.random() < 0.6) and b.num_running + b.num_coming < b.max_running:
                swap_in(b, r)
        for r in [r for r in b.running if r.state == DECODING]:
            if self.random.random() < 0.15 and r.admitted < b.tick_count:
                swap_out(b, r)

    def prefill(self, b: Batch, others_run: bool) -> None:
        for r in list(b.prefilling):
            if not others_run or self.random.random() < 0.8:
                b.chunk(r, self.random.randint(1, r.unfilled))
        while b.num_waiting > 0 and b.num_running + b.num_coming < b.max_running:
            r = b.waiting.first()
            b.admit(r, self.random.randint(1, r.prompt + r.generated))
