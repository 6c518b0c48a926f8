"""TensorRT-LLM's in-flight batching: who may hold KV, then who of these computes how many tokens.

order fcfs · gate a seat is free; static_batch: nobody generates · KV to completion, or the prompt
alone (max_utilization) · composition generations, then contexts, in one token budget · victim
nobody, or the newest (max_utilization); recompute · leave at once

1. The capacity scheduler chooses from the head of the queue, until one does not fit:

    guaranteed_no_evict  free blocks >= blocks of prompt + max_tokens, less those of the cached
                         prefix that others hold; all are set aside, so nobody is ever paused
    static_batch         the same, and only when no generation is in progress
    max_utilization      free blocks >= blocks of the prompt; a generation without a block for its
                         next token pauses the newest until it has one, and then nobody joins

   A request whose first new block is being computed by another one's context is passed over: a
   step later it finds the block in the cache.

2. The micro batch scheduler fills `max_num_tokens`.  Every generation takes 1.  Without chunked
   context, whole prompts follow until one does not fit.  With it, contexts share what is left:

    first_come_first_served  in order min(what it lacks, what is left), in whole blocks if it is cut
    equal_progress           round robin, one block each, until nothing is left

Source: TensorRT-LLM 1.3, `capacityScheduler.cpp`, `microBatchScheduler.cpp`, `kvCacheManager.cpp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import LimitError
from batchwright.policies.about import About
from batchwright.policies.check import check_bool, check_choice, check_count, usual
from batchwright.policies.kv import blocks_to_take, whole_length
from batchwright.policies.victim import preempt_newest
from batchwright.request import PREFILLING, Request

MAX_BATCH_SIZE: Final = 2048
MAX_NUM_TOKENS: Final = 8192
NO_EVICT: Final = "guaranteed_no_evict"
MAX_UTILIZATION: Final = "max_utilization"
STATIC_BATCH: Final = "static_batch"
FIRST_COME: Final = "first_come_first_served"
EQUAL_PROGRESS: Final = "equal_progress"
NO_KEY: Final = -1


@ordinary
@dataclass(frozen=True, kw_only=True)
class TensorrtLlm:
    """TensorRT-LLM's schedulers under its own flags.

    `max_batch_size`: seats; None: 2048, or the server's `max_num_seqs` if that is less.
    `max_num_tokens`: tokens of one step; None: 8192, or the server's `max_num_batched_tokens` if that
    is less.  A chunk unit is a KV block.

    Raises InputError on a value that cannot be.
    """

    about = About(
        engine="TensorRT-LLM 1.3, in-flight batching",
        order="first come; a request waits a step for a prefix that another one computes",
        first="generations, then contexts, in one token budget",
        chunking="none, or to what the budget leaves: in order, or in equal parts",
        kv="prompt + max_tokens, less its cached prefix; max_utilization: the prompt",
        victim="nobody; max_utilization: the newest; recomputes",
        leave="at once",
        source="TensorRT-LLM 1.3, batch_manager: capacityScheduler, microBatchScheduler, kvCacheManager",
        left_out="the batching type STATIC, which is our static; prefill-first capacity, overlap scheduling, "
        "beams, draft tokens, LoRA, attention windows, disaggregation; blocks that are set aside leave the "
        "prefix cache at admission, there when they are written; without chunked context it refuses a prompt "
        "over max_num_tokens, here no other prompt shares its step",
    )
    capacity_scheduler_policy: str = NO_EVICT
    max_batch_size: int | None = None
    max_num_tokens: int | None = None
    enable_chunked_context: bool = False
    context_chunking_policy: str = FIRST_COME

    def __post_init__(self) -> None:
        known = (NO_EVICT, MAX_UTILIZATION, STATIC_BATCH)
        check_choice("tensorrt_llm", self, "capacity_scheduler_policy", known)
        check_count("tensorrt_llm", self, "max_batch_size", optional=True)
        check_count("tensorrt_llm", self, "max_num_tokens", optional=True)
        check_bool("tensorrt_llm", self, "enable_chunked_context")
        check_choice("tensorrt_llm", self, "context_chunking_policy", (FIRST_COME, EQUAL_PROGRESS))

    def begin(self, batch: Batch) -> Policy:
        limits = batch.limits
        seats = usual(self.max_batch_size, MAX_BATCH_SIZE, limits.max_num_seqs)
        tokens = usual(self.max_num_tokens, MAX_NUM_TOKENS, limits.max_num_batched_tokens)
        _check_limits(seats, tokens, limits.block_size if self.enable_chunked_context else 1)
        batch.max_running = seats
        return TensorrtLlmRun(self, seats, tokens)


class TensorrtLlmRun:
    """TensorRT-LLM on one batch."""

    def __init__(self, flags: TensorrtLlm, seats: int, budget: int) -> None:
        self.seats = seats
        self.budget = budget
        self.pauses = flags.capacity_scheduler_policy == MAX_UTILIZATION
        self.is_static = flags.capacity_scheduler_policy == STATIC_BATCH
        self.has_chunking = flags.enable_chunked_context
        self.is_equal = flags.context_chunking_policy == EQUAL_PROGRESS

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        if self.pauses:
            preempt_newest(b)
        left = self.budget - b.num_decoding
        if left > 0 and not (self.is_static and b.num_decoding > 0):
            self.run_contexts(b, left)

    def run_contexts(self, b: Batch, left: int) -> None:
        """Share `left` tokens among those that may hold KV."""
        may_join = b.num_waiting > 0 and not b.has_preempted
        if may_join:
            b.reserve()  # what it evicts, nobody finds
        capacity = Capacity(b, self.pauses, b.blocks.caching and not self.is_static)
        if may_join:
            capacity.add_waiting(self.seats - b.num_running)
        if capacity.contexts:
            sizes = self.share(capacity.contexts, left, b.blocks.block_size)
            for (r, missing), tokens in zip(capacity.contexts, sizes, strict=False):
                if tokens > 0:
                    self.run(b, r, missing, tokens)

    def share(self, contexts: list[tuple[Request, int]], left: int, unit: int) -> list[int]:
        """Tokens for each of the contexts, which lack so many."""
        missing = [tokens for _, tokens in contexts]
        if not self.has_chunking:
            return whole(missing, left, contexts[0][0].tokens > self.budget)
        if sum(missing) <= left:
            return missing
        return equal_progress(missing, left, unit) if self.is_equal else first_come(missing, left, unit)

    def run(self, b: Batch, r: Request, missing: int, tokens: int) -> None:
        """Run a chunk of `r`, which lacked `missing` tokens when it was looked at.

        The admission of another one may have evicted blocks that it had found then.
        """
        if r.state == PREFILLING:
            b.chunk(r, tokens)
            return
        size = b.blocks.block_size
        hit = b.blocks.lookup(r)[: (r.tokens - missing) // size]
        if not self.has_chunking:
            tokens = r.tokens - len(hit) * size
        b.admit(r, tokens, hit, r.tokens if self.pauses else whole_length(r))


class Capacity:
    """The capacity scheduler in one step: `contexts` may hold KV, and lack so many tokens each."""

    def __init__(self, b: Batch, prompt_only: bool, defers: bool) -> None:
        self.b = b
        self.prompt_only = prompt_only
        self.defers = defers
        self.spare = b.spare_blocks
        self.contexts = [(r, r.unfilled) for r in b.prefilling]
        self.computing: set[int] = set()  # keys of the blocks that come next
        if defers:
            self.computing |= {_key(r, r.computed // b.blocks.block_size) for r in b.prefilling}

    def add_waiting(self, seats: int) -> None:
        """Add as many as have `seats`, from the head of the queue, until one does not fit."""
        most = len(self.contexts) + seats
        looked = 0
        while len(self.contexts) < most:
            line = self.b.waiting.head(4 * looked + 1)[looked:]  # few at a time: the first may not fit
            if not line:
                return
            for r in line:
                if len(self.contexts) == most or not self.add(r):
                    return
            looked += len(line)

    def add(self, r: Request) -> bool:
        """Add `r`, or pass it over; False if it does not fit."""
        hit = self.b.blocks.lookup(r)
        if self.defers and self.is_deferred(_key(r, len(hit))):
            return True
        tokens = r.tokens if self.prompt_only else whole_length(r)
        self.spare -= blocks_to_take(self.b, tokens, hit)
        if self.spare < 0:
            return False
        self.contexts.append((r, r.tokens - len(hit) * self.b.blocks.block_size))
        return True

    def is_deferred(self, key: int) -> bool:
        """Is the block `key` being computed?  It is from now on."""
        if key != NO_KEY and key in self.computing:
            return True
        self.computing.add(key)
        return False


def _key(r: Request, block: int) -> int:
    """The key of a block of `r` that others may share, or NO_KEY."""
    return r.prefix[block] if block < len(r.prefix) else NO_KEY


# --- how many tokens ----------------------------------------------------------


def whole(missing: list[int], left: int, is_long: bool) -> list[int]:
    """Whole prompts in order, until one does not fit.  `is_long`: could the first one never fit?  It runs."""
    sizes: list[int] = []
    for tokens in missing:
        if tokens > left and (sizes or not is_long):
            break
        sizes.append(tokens)
        left -= tokens
    return sizes


def first_come(missing: list[int], left: int, unit: int) -> list[int]:
    """In order as much as is left, in whole units where a prompt is cut."""
    sizes = []
    for tokens in missing:
        size = tokens if tokens <= left else left // unit * unit
        sizes.append(size)
        left -= size
    return sizes


def equal_progress(missing: list[int], left: int, unit: int) -> list[int]:
    """One unit to each in turn, until none of them fits."""
    sizes = [0] * len(missing)
    before = -1
    while left != before:
        before = left
        for i, tokens in enumerate(missing):
            more = min(unit, tokens - sizes[i])
            if more <= left:
                sizes[i] += more
                left -= more
    return sizes


def _check_limits(seats: int, tokens: int, unit: int) -> None:
    """What TensorRT-LLM refuses to start with, or what would let contexts wait for ever."""
    if seats > tokens:
        raise LimitError(
            f"tensorrt_llm: max_batch_size {seats} is over max_num_tokens {tokens}; "
            "lower max_batch_size or raise max_num_tokens"
        )
    if unit > tokens:
        raise LimitError(
            f"tensorrt_llm: max_num_tokens {tokens} is below the chunk unit of {unit} tokens, a KV block; "
            "raise it or lower block_size"
        )
