"""LMDeploy's PyTorch engine: rounds of decode steps, and prompts alone between them.

order fcfs · gate half the seats are free, many prompt tokens wait, or rounds enough have passed · KV
the prompt and one round · composition prompts alone, or decodes · victim the newest; recompute ·
leave at once

A decision comes after each prefill and after each round of decode steps.  Somebody waiting, it is
to prefill if

    running < max_batch_size / 2
    or the prompts that wait have max_prefill_token_num tokens
    or somebody has waited for prefill_interval rounds

Prompts are packed up to max_prefill_token_num tokens; the first may be longer, and then runs
alone, in chunks, one step after the other.  Else a round of decodes runs, for which every running
request must find the blocks it may need; the newest give theirs back while they are short.

Source: LMDeploy @1263d5c, `pytorch/engine/inputs_maker.py` (`do_prefill_default`), `engine_loop.py`,
`pytorch/paging/scheduler.py`, `lmdeploy/messages.py` (`PytorchEngineConfig`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.policies.about import About
from batchwright.policies.check import batch_size, check_bool, check_count
from batchwright.policies.kv import blocks_to_take
from batchwright.request import NO_BLOCKS

HEAD: Final = 32  # requests of the queue that are looked at first
FOREVER: Final = 1 << 50  # steps


@ordinary
@dataclass(frozen=True, kw_only=True)
class Lmdeploy:
    """LMDeploy's scheduler under the names of `PytorchEngineConfig`.

    `max_batch_size`: None means the server's `max_num_seqs`.  `num_loops`: decode steps of one
    round; None: `prefill_interval`.  Later versions of LMDeploy decide before every step: 1.

    Raises InputError on a bad value.
    """

    about = About(
        engine="LMDeploy, PyTorch engine",
        order="first come",
        first="prompts alone, or rounds of decodes",
        chunking="of prompts over max_prefill_token_num, one at a time",
        kv="the prompt and one round, less the cached prefix",
        victim="the newest, before a round; recomputes",
        leave="at once",
        source="InternLM/lmdeploy @1263d5c, pytorch/engine and pytorch/paging",
        left_out="rows of ended requests that are computed to the end of their round; sessions that keep "
        "their blocks; decodes between the chunks of a long prompt, as in later versions; sliding "
        "windows; TurboMind",
    )
    max_batch_size: int | None = None
    max_prefill_token_num: int = 8192
    prefill_interval: int = 16
    num_loops: int | None = None
    enable_prefix_caching: bool = False

    def __post_init__(self) -> None:
        check_count("lmdeploy", self, "max_batch_size", optional=True)
        check_count("lmdeploy", self, "max_prefill_token_num")
        check_count("lmdeploy", self, "prefill_interval")
        check_count("lmdeploy", self, "num_loops", optional=True)
        check_bool("lmdeploy", self, "enable_prefix_caching")

    def begin(self, batch: Batch) -> Policy:
        seats = batch.limits.max_num_seqs
        if self.max_batch_size is not None:
            batch.max_running = batch_size("lmdeploy", "max_batch_size", self.max_batch_size, seats)
        return LmdeployRun(self, batch.max_running)


class LmdeployRun:
    """LMDeploy on one batch.

    Rounds follow each other without a gap, so those since the last prefill end at

        anchor + steps, anchor + 2 steps, ...
    """

    def __init__(self, flags: Lmdeploy, seats: int) -> None:
        self.seats = seats
        self.most_tokens = flags.max_prefill_token_num
        self.steps = flags.num_loops or flags.prefill_interval  # of a round
        self.patience = self.steps * flags.prefill_interval  # steps
        self.has_caching = flags.enable_prefix_caching
        self.anchor = 0  # tick after the last prefill
        self.since = -1  # tick of the first decision since then for which somebody waited in vain; -1: none

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        if b.prefilling:
            self.continue_prompt(b)
            return
        left = (self.anchor - b.tick_count) % self.steps  # of the round
        if left == 0 or b.num_decoding == 0:
            self.decide(b)
            left = self.steps
        if b.num_decoding > 0 and not b.chunks:
            self.wake(b, left)

    def decide(self, b: Batch) -> None:
        """Prefill, or start a round of decodes."""
        if b.num_waiting == 0:
            self.since = -1
        elif self.is_due(b):
            self.admit_waiting(b)
        if b.chunks:
            self.end_prefill(b)
        elif b.num_decoding > 0:
            self.start_round(b)

    def wake(self, b: Batch, left: int) -> None:
        """Ask again at the end of a round, where somebody may be admitted or must be preempted.

        The current one has `left` steps.  Blocks are short for the first one that they do not last.
        """
        if b.num_waiting > 0 or self.since >= 0:
            b.wake_after(left)
        rounds = (b.quiet_steps(FOREVER) - left) // self.steps
        b.wake_after(left + self.steps * max(0, rounds))

    # --- prefill --------------------------------------------------------------

    def is_due(self, b: Batch) -> bool:
        """Somebody waits: is it time to prefill?"""
        if 2 * b.num_running < self.seats:
            return True
        has_waited = self.since >= 0 and b.tick_count - self.since >= self.patience
        return has_waited or self.do_many_wait(b)

    def do_many_wait(self, b: Batch) -> bool:
        """Do the prompts that wait have `max_prefill_token_num` tokens?"""
        count = HEAD
        while True:
            head = b.waiting.head(count)
            tokens = sum([r.tokens for r in head])
            if tokens >= self.most_tokens or len(head) < count:
                return tokens >= self.most_tokens
            count *= 2

    def admit_waiting(self, b: Batch) -> None:
        """Admit from the head of the queue while tokens, blocks and seats allow; the first may be longer."""
        size = b.blocks.block_size
        tokens = 0
        while b.num_waiting > 0 and b.num_running < self.seats:
            r = b.waiting.first()
            hit = b.blocks.lookup(r) if self.has_caching else NO_BLOCKS
            missing = r.unfilled - len(hit) * size
            if tokens > 0 and tokens + missing > self.most_tokens:
                return
            ahead = self.steps if b.num_running > 0 else 0  # a lone request always fits
            if blocks_to_take(b, r.tokens + ahead, hit) > b.blocks.free:
                return
            b.admit(r, min(missing, self.most_tokens), hit)
            tokens += missing

    def continue_prompt(self, b: Batch) -> None:
        """Run the next chunk of the prompt that is too long for one step."""
        for r in list(b.prefilling):
            b.chunk(r, min(r.unfilled, self.most_tokens))
        self.end_prefill(b)

    def end_prefill(self, b: Batch) -> None:
        """The coming step prefills, and a decision follows it."""
        b.decodes_run = False
        self.anchor = b.tick_count + 1
        self.since = -1

    # --- decode ---------------------------------------------------------------

    def start_round(self, b: Batch) -> None:
        """Preempt until all have blocks for a round; a lone request runs with those that there are."""
        if b.num_waiting > 0 and self.since < 0:
            self.since = b.tick_count
        while b.num_running > 1 and b.quiet_steps(self.steps) < self.steps:
            b.preempt(b.newest())
