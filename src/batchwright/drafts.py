"""The draft tokens that decodes verify in the coming step, and the KV blocks that hold them.

A decode with c tokens in the cache computes n = 1 + k tokens, fewer near the longest request that
may be, or where the policy trims it for want of budget.  Its blocks must hold c + n tokens.  Those
of the drafts that turn out wrong stay with it and are used again, as in vLLM: they are counted in
`Request.reserved`, and what a decode needs is found by a walk over all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from batchwright.blocks import Blocks
from batchwright.request import DECODING, Request
from batchwright.speculation import Speculation
from batchwright.step import Step


class Drafts:
    """Those of one batch.  `running`: its requests, `clock`: its decode clock, before the step."""

    def __init__(self, speculation: Speculation, blocks: Blocks, longest: int) -> None:
        self.speculation = speculation
        self.trimmed: dict[Request, int] = {}  # decodes with fewer tokens than they could have, and these
        self._blocks = blocks
        self._tokens = speculation.num_speculative_tokens + 1
        self._longest = longest

    def tokens(self, r: Request, clock: int) -> int:
        """Tokens of the decode `r`: none after the last but one that a request can have is drafted."""
        if r in self.trimmed:
            return self.trimmed[r]
        room = self._longest - 1 - (clock + r.shift)
        return self._tokens if self._tokens < room else room

    def all_tokens(self, running: Iterable[Request], clock: int) -> int:
        """Tokens of all decodes."""
        total = 0
        for r in running:
            if r.state == DECODING:
                total += self.tokens(r, clock)
        return total

    def needs(self, running: Iterable[Request], clock: int) -> int:
        """Blocks that all decodes need beyond those that they have."""
        total = 0
        for r in running:
            if r.state == DECODING:
                total += self._lacks(r, clock)
        return total

    def reserve(self, running: Iterable[Request], clock: int) -> None:
        """Take these blocks."""
        for r in running:
            if r.state == DECODING:
                self.take(r, self._lacks(r, clock))

    def take(self, r: Request, need: int) -> None:
        """Take `need` blocks for `r`."""
        if need > 0:
            self._blocks.take(need)
            r.reserved += need

    def join(self, r: Request) -> None:
        """`r` starts to decode: from now on its blocks are counted one by one."""
        r.reserved = self._blocks.count(r.computed)

    def measure(self, running: Iterable[Request], clock: int, step: Step) -> None:
        """Add the drafts to `step`."""
        drafts = 0
        for r in running:
            if r.state == DECODING:
                count = self.tokens(r, clock) - 1
                drafts += count
                step.prefill_attention += count * (clock + r.shift + 1 + 0.5 * count)
        step.draft_tokens = drafts
        step.prefill_tokens += drafts
        step.sampled_rows += drafts

    def _lacks(self, r: Request, clock: int) -> int:
        need = self._blocks.count(clock + r.shift + self.tokens(r, clock)) - r.reserved
        return need if need > 0 else 0
