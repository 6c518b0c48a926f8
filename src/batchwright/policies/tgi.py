"""TGI's router and queue: whatever a request may need is set aside when it joins.

order fcfs · gate enough wait, or they have waited long enough; chunked: any step but the one after
an admission · KV prompt + max_tokens - 1, less the cached prefix · composition new prompts alone
while the decodes pause, or chunks beside them · victim none · leave at once

While requests run, the router looks at its queue before each step, except before the one that
follows an admission.  Unchunked, it admits if

    waiting >= floor(running * waiting_served_ratio)    and so many fit, too, or
    1 + steps since the last prefill >= max_waiting_tokens

From the head of the queue come those that fit, up to the first that does not.  Their prompts run
alone.  Chunked, they come whenever tokens of the budget are left, beside the step's decodes.

Source: text-generation-inference @db931fc (3.x), `backends/v3/src/backend.rs`, `queue.rs`,
`block_allocator.rs`, `launcher/src/main.rs`, `flash_causal_lm.py`; version 2: `backends/v2/src/queue.rs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import InputError, LimitError
from batchwright.limits import Limits
from batchwright.policies.about import About
from batchwright.policies.check import (
    batch_size,
    check_bool,
    check_choice,
    check_count,
    check_number,
    kv_tokens,
)
from batchwright.policies.kv import blocks_to_take
from batchwright.request import NO_BLOCKS, PREFILLING, Block, Request

RATIOS: Final = {"3": 0.3, "2": 1.2}  # default of waiting_served_ratio, by version
PREFILL_TOKENS: Final = 4096  # default of max_batch_prefill_tokens


@ordinary
@dataclass(frozen=True, kw_only=True)
class Tgi:
    """TGI's scheduler under the flags of its launcher.

    None means TGI's default: `waiting_served_ratio` 0.3, in version 2 1.2;
    `max_batch_prefill_tokens` 4096, or what the KV cache holds if that is less;
    `max_batch_total_tokens` all of the KV cache; `max_batch_size` the server's `max_num_seqs`.
    `prefill_chunking` is the variable PREFILL_CHUNKING of the server; version 2 has none.

    Raises InputError on an unknown version, a flag that the version lacks, or a bad value.
    """

    about = About(
        engine="TGI 3, and 2",
        order="first come",
        first="chunks beside decodes; unchunked, new prompts alone while decodes pause",
        chunking="to what the budget leaves, several at a time; version 2: none",
        kv="prompt + max_tokens - 1, less the cached prefix",
        victim="nobody",
        leave="at once",
        source="text-generation-inference @db931fc, backends/v3 and v2, launcher",
        left_out="HTTP 429: a request over max_concurrent_requests waits; speculation; models that pad; "
        "the compute-optimal prefill budget; a prefix is found as soon as it is computed, not when its "
        "first request has left",
    )
    version: str = "3"
    prefill_chunking: bool = True
    waiting_served_ratio: float | None = None
    max_waiting_tokens: int = 20
    max_batch_prefill_tokens: int | None = None
    max_batch_total_tokens: int | None = None
    max_batch_size: int | None = None
    max_concurrent_requests: int = 128

    def __post_init__(self) -> None:
        check_choice("tgi", self, "version", RATIOS)
        check_bool("tgi", self, "prefill_chunking")
        if self.version == "2" and not self.prefill_chunking:
            raise InputError("tgi@2 has no flag prefill_chunking; leave it out")
        check_number("tgi", self, "waiting_served_ratio", 0.0, 1e6, optional=True)
        check_count("tgi", self, "max_waiting_tokens", least=0)
        check_count("tgi", self, "max_concurrent_requests")
        for name in ("max_batch_prefill_tokens", "max_batch_total_tokens", "max_batch_size"):
            check_count("tgi", self, name, optional=True)

    def begin(self, batch: Batch) -> Policy:
        batch.max_running = min(batch.limits.max_num_seqs, self.max_concurrent_requests)
        return TgiRun(self, batch)


class Room:
    """What one admission may still take: prompt tokens and KV blocks."""

    def __init__(self, tokens: int, blocks: int) -> None:
        self.tokens = tokens
        self.blocks = blocks


class TgiRun:
    """TGI on one batch."""

    def __init__(self, flags: Tgi, batch: Batch) -> None:
        limits = batch.limits
        usable = kv_tokens("tgi", "max_batch_total_tokens", flags.max_batch_total_tokens, limits)
        self.withheld = limits.blocks - usable // limits.block_size
        self.is_old = flags.version == "2"
        self.has_chunking = flags.prefill_chunking and not self.is_old
        self.budget = _prefill_budget(flags, usable, limits)
        ratio = flags.waiting_served_ratio
        self.ratio = RATIOS[flags.version] if ratio is None else ratio
        self.patience = flags.max_waiting_tokens
        self.most = batch.max_running
        if flags.max_batch_size is not None:
            self.most = batch_size("tgi", "max_batch_size", flags.max_batch_size, limits.max_num_seqs)
        self.prefilled = 0  # tick after the last admission
        self.joined = -1  # the same, if it was beside others; else -1

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        used = self.continue_chunks(b) if b.prefilling else b.num_decoding
        if b.num_waiting == 0:
            return
        if b.num_running == 0:
            self.join(b, 0, self.most, self.budget)
        elif b.tick_count == self.joined:
            b.wake_after(1)  # the batch runs once before the router looks at its queue again
        elif self.has_chunking:
            self.join(b, 0, b.max_running, self.budget - used)
        else:
            self.join_apart(b)

    def continue_chunks(self, b: Batch) -> int:
        """Give every unfinished prompt its next chunk, oldest first; tokens of the coming step."""
        left = self.budget - (b.num_running - 1)  # a token is kept for each of the others
        used = 0
        for r in b.running:
            tokens = 1
            if r.state == PREFILLING:
                tokens = max(1, min(r.unfilled, left))
                b.chunk(r, tokens)
            left -= tokens
            used += tokens
        return used

    def join_apart(self, b: Batch) -> None:
        """Let new prompts run alone, if enough wait, or they have waited long enough."""
        left = self.patience - 1 - (b.tick_count - self.prefilled)  # steps until they have
        least = int(b.num_running * self.ratio) if left > 0 else 0
        self.join(b, least, self.most - b.num_running, self.budget)
        if b.edits == 0 and left > 0:
            b.wake_after(left)

    # --- the queue ------------------------------------------------------------

    def join(self, b: Batch, least: int, most: int, tokens: int) -> None:
        """Admit from the head of the queue up to `most` that fit; nobody if fewer than `least` do."""
        size = b.blocks.block_size
        budget = (max(tokens, 0) + size - 1) // size * size
        most = min(most, b.num_waiting, b.max_running - b.num_running)
        if most < max(least, 1) or (least > 1 and not self.do_fit(b, least, budget)):
            return
        others = b.num_running
        room = Room(budget, b.blocks.free - self.withheld)
        for _ in range(most):
            r = b.waiting.first()
            hit = self.lookup(b, r)
            taken = self.take(b, r, hit, room)
            if taken == 0:
                break
            b.admit(r, taken, hit, reserve=r.prompt + r.max_tokens - 1)
        if b.num_running > others:
            self.prefilled = b.tick_count + 1
            self.joined = self.prefilled if others > 0 else -1
            b.decodes_run = self.has_chunking or others == 0

    def do_fit(self, b: Batch, count: int, budget: int) -> bool:
        """Do the first `count` of the queue fit together, with the prefixes that are cached now?"""
        room = Room(budget, b.blocks.free - self.withheld)
        return all(self.take(b, r, self.lookup(b, r), room) > 0 for r in b.waiting.head(count))

    def lookup(self, b: Batch, r: Request) -> list[Block]:
        return NO_BLOCKS if self.is_old else b.blocks.lookup(r)

    def take(self, b: Batch, r: Request, hit: list[Block], room: Room) -> int:
        """Prompt tokens of `r` that run now, taken from `room`; 0: it does not fit."""
        blocks = self.blocks(b, r, hit)
        if blocks > room.blocks and b.num_running > 0:  # a lone request always fits
            return 0
        tokens = r.unfilled - len(hit) * b.blocks.block_size
        cost = b.blocks.count(tokens) * b.blocks.block_size if self.is_old else tokens
        if cost > room.tokens:
            if not self.has_chunking or room.tokens <= 0:
                return 0
            tokens = cost = room.tokens
        room.tokens -= cost
        room.blocks -= blocks
        return tokens

    def blocks(self, b: Batch, r: Request, hit: list[Block]) -> int:
        """KV blocks that `r` must find free; version 2 rounds prompt and output up apart."""
        if self.is_old:
            return b.blocks.count(r.prompt) + b.blocks.count(r.max_tokens)
        return blocks_to_take(b, r.prompt + r.max_tokens - 1, hit)


def _prefill_budget(flags: Tgi, usable: int, limits: Limits) -> int:
    """`max_batch_prefill_tokens`, with its default.  Raises LimitError if TGI refuses to start with it."""
    budget = flags.max_batch_prefill_tokens
    if budget is None:
        budget = min(PREFILL_TOKENS, usable)
    has_chunking = flags.prefill_chunking and flags.version != "2"
    if not has_chunking and budget < limits.longest - 1:
        raise LimitError(
            f"tgi: without chunking max_batch_prefill_tokens {budget} must hold the longest prompt, "
            f"{limits.longest - 1} tokens; raise it or lower max_model_len"
        )
    return budget
