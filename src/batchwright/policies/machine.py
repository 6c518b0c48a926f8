"""A machine that computes prompts, decodes, or both: Splitwise's.

order fcfs · gate none · KV the prompt, or what a request brings · composition prompts alone, up to
`max_batch_tokens`, while decodes pause; else decodes · victim the newest; recomputes here · leave at once

In the prompt pool it never decodes, in the token pool it computes no prompts.  In the mixed pool prompts
preempt decodes: no decode runs beside them, but after `max_preemptions` such steps in a row there is one of
decodes.  What others have prefilled is pulled as soon as its blocks are free.

Source: Patel et al., Splitwise, ISCA 2024, section 4; its simulator, splitwise-sim.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.handover import pull
from batchwright.policies.pulls import fits
from batchwright.request import Request


@ordinary
@dataclass(frozen=True, kw_only=True)
class Machine:
    """`max_batch_tokens`: prompt tokens of a step; `max_preemptions`: steps that decodes wait for prompts."""

    max_batch_tokens: int
    max_preemptions: int

    def begin(self, batch: Batch) -> Policy:
        return MachineRun(self.max_batch_tokens, self.max_preemptions)


class MachineRun:
    """`Machine` on one batch."""

    def __init__(self, tokens: int, most: int) -> None:
        self.tokens = tokens
        self.most = most
        self.tick = -1  # of the last step of prompts that decodes waited for
        self.in_a_row = 0  # such steps, up to that one

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        if b.num_waiting > 0:
            self.join(b)
        if b.chunks:
            b.decodes_run = False
            return
        while b.decode_blocks() > b.blocks.free:
            b.preempt(b.newest())

    def join(self, b: Batch) -> None:
        """Pull those whose KV is elsewhere, and admit prompts, each in their order."""
        known = b.movers.elsewhere
        if known:
            self.pull(b, [r for r in b.waiting.head(b.num_waiting) if r in known])
        if b.num_waiting > len(known) and self.may_pause(b):
            self.admit(b)

    def pull(self, b: Batch, ready: list[Request]) -> None:
        for r in ready:
            if b.num_running + b.num_coming >= b.max_running or not fits(b, r):
                return
            pull(b, r)

    def may_pause(self, b: Batch) -> bool:
        """May the decodes wait for prompts in the coming step?"""
        if self.tick != b.tick_count - 1:
            self.in_a_row = 0
        if b.num_decoding == 0 or self.in_a_row < self.most:
            return True
        b.wake_after(1)
        return False

    def admit(self, b: Batch) -> None:
        left = self.tokens
        r = next_prompt(b)
        while r is not None and (r.unfilled <= left or not b.chunks) and self.has_room(b, r):
            left -= r.unfilled
            b.admit(r, r.unfilled)
            r = next_prompt(b)
        if b.chunks and b.num_decoding > 0:
            self.in_a_row += 1
            self.tick = b.tick_count

    def has_room(self, b: Batch, r: Request) -> bool:
        has_seat = b.num_running + b.num_coming < b.max_running
        return has_seat and b.blocks.count(r.unfilled) <= b.spare_blocks


def next_prompt(b: Batch) -> Request | None:
    """The first of the waiting whose KV is not elsewhere."""
    known = b.movers.elsewhere
    if not known:
        return b.waiting.first() if b.num_waiting > 0 else None
    for r in b.waiting.head(b.num_waiting):
        if r not in known:
            return r
    return None
