"""Sarathi-Serve: every step a small budget of tokens, decodes first, the rest for chunks of prompts.

order fcfs · gate a seat and a token are free · KV the blocks of the prompt, and 1 % of all ·
composition decodes, then chunks of running prompts, then chunks of new ones, in one token
budget · victim the newest; recompute · leave at once

    1  every decode gains a token; the newest is preempted while a block is missing
    2  every incomplete prompt, in admission order: min(what it lacks, chunk_size - tokens so far)
    3  new requests, while a seat is free, tokens are left, and free blocks - blocks of the whole
       prompt >= 1 % of all blocks; these blocks are taken at once

Dynamic schedule: the budget seen by a prompt falls with its progress, from `high_chunk_size` to
`low_chunk_size` in `chunk_schedule_stages` equal stages of `chunk_schedule_max_tokens` tokens,
because a late chunk also attends to all tokens before it.

The two halves can be switched off, as in table 4 of the paper:

    enable_chunked_prefill  off  a prompt runs whole, as soon as a token of the budget is left
    enable_hybrid_batching  off  a step has either chunks or decodes; they take turns while both wait

Source: Agrawal et al., "Sarathi-Serve", OSDI 2024, algorithm 3; sarathi-serve, `sarathi_scheduler.py`,
and for the turns `simple_chunking_scheduler.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import InputError
from batchwright.policies.about import About
from batchwright.policies.check import check_bool, check_count, usual
from batchwright.policies.kv import watermark
from batchwright.policies.victim import preempt_newest
from batchwright.request import Request

MAX_NUM_SEQS: Final = 128
CHUNK_UNIT: Final = 32  # tokens; chunk sizes of a schedule are multiples of it
SCHEDULE: Final = ("low_chunk_size", "high_chunk_size", "chunk_schedule_max_tokens", "chunk_schedule_stages")


@ordinary
@dataclass(frozen=True, kw_only=True)
class Sarathi:
    """Sarathi-Serve's scheduler under its own flags; lengths in tokens.

    `max_num_seqs`: seats; None: 128, or the server's if these are fewer.  `chunk_size`: tokens of one
    step.  `low_chunk_size` to `chunk_schedule_stages`: the dynamic schedule, all or none of them.
    `enable_chunked_prefill`, `enable_hybrid_batching`: the halves of table 4 of the paper.

    Raises InputError on a value that cannot be.
    """

    about = About(
        engine="Sarathi-Serve",
        order="first come",
        first="decodes, then chunks of running prompts, then of new ones, in one token budget",
        chunking="to what the budget leaves",
        kv="the prompt, and 1% of all blocks beside it; taken at once",
        victim="the newest; recomputes",
        leave="at once",
        source="Agrawal et al., OSDI 2024; sarathi-serve, sarathi_scheduler.py",
        left_out="pipeline stages; it preempts as soon as no block is free, here only when one is missing; "
        "it never admits a prompt that leaves less than 1% of the blocks free, here an empty server does; "
        "a schedule must cover the longest prompt there, here its last stage goes on",
    )
    max_num_seqs: int | None = None
    chunk_size: int = 512
    enable_dynamic_chunking_schedule: bool = False
    low_chunk_size: int | None = None
    high_chunk_size: int | None = None
    chunk_schedule_max_tokens: int | None = None
    chunk_schedule_stages: int | None = None
    enable_chunked_prefill: bool = True
    enable_hybrid_batching: bool = True

    def __post_init__(self) -> None:
        check_count("sarathi", self, "max_num_seqs", optional=True)
        check_count("sarathi", self, "chunk_size")
        check_bool("sarathi", self, "enable_dynamic_chunking_schedule")
        check_bool("sarathi", self, "enable_chunked_prefill")
        check_bool("sarathi", self, "enable_hybrid_batching")
        for name in SCHEDULE:
            check_count("sarathi", self, name, optional=True)
        self._check_schedule()

    def _check_schedule(self) -> None:
        values = vars(self)
        if not self.enable_dynamic_chunking_schedule:
            for name in SCHEDULE:
                if values[name] is not None:
                    raise InputError(
                        f"sarathi: {name} is {values[name]}, but there is no schedule; "
                        "set enable_dynamic_chunking_schedule or leave it out"
                    )
            return
        if not self.enable_chunked_prefill:
            raise InputError("sarathi: a schedule of chunks needs enable_chunked_prefill; set it to true")
        for name in SCHEDULE:
            if values[name] is None:
                raise InputError(f"sarathi: enable_dynamic_chunking_schedule needs {name}; give it, too")
        _check_sizes(values["low_chunk_size"], values["high_chunk_size"])

    def begin(self, batch: Batch) -> Policy:
        batch.max_running = usual(self.max_num_seqs, MAX_NUM_SEQS, batch.limits.max_num_seqs)
        run = SarathiRun(self, batch.max_running)
        return run if self.enable_hybrid_batching else TurnsRun(run)

    def sizes(self) -> list[int]:
        """The budget in each stage of a prompt."""
        if not self.enable_dynamic_chunking_schedule:
            return [self.chunk_size]
        low, high, stages = self.low_chunk_size, self.high_chunk_size, self.chunk_schedule_stages
        assert low is not None and high is not None and stages is not None
        even = [low + i * (high - low) // max(stages - 1, 1) for i in range(stages)]
        return [round(size / CHUNK_UNIT) * CHUNK_UNIT for size in reversed(even)]

    def stage(self) -> int:
        """Prompt tokens of one stage; 0: there is one stage only."""
        if self.chunk_schedule_max_tokens is None or self.chunk_schedule_stages is None:
            return 0
        return -(-self.chunk_schedule_max_tokens // self.chunk_schedule_stages)


def _check_sizes(low: int, high: int) -> None:
    for name, size in (("low_chunk_size", low), ("high_chunk_size", high)):
        if size % CHUNK_UNIT != 0:
            raise InputError(f"sarathi: {name} is {size}, but must be a multiple of {CHUNK_UNIT}")
    if low > high:
        raise InputError(f"sarathi: low_chunk_size {low} is over high_chunk_size {high}; lower it")


class SarathiRun:
    """Sarathi-Serve on one batch: decodes and chunks in one step."""

    def __init__(self, flags: Sarathi, seats: int) -> None:
        self.seats = seats
        self.sizes = flags.sizes()
        self.stage = flags.stage()
        self.has_chunking = flags.enable_chunked_prefill

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        preempt_newest(b)
        self.prefill(b, b.num_decoding, b.decode_blocks())

    def prefill(self, b: Batch, used: int, taken: int) -> None:
        """Run chunks beside decodes that use so many tokens, and take so many blocks."""
        for r in list(b.prefilling):
            tokens = self.chunk_of(r, used)
            if tokens > 0:
                b.chunk(r, tokens)
                used += tokens
        self.admit_waiting(b, used, taken)

    def admit_waiting(self, b: Batch, used: int, taken: int) -> None:
        """Admit from the head of the queue until one does not fit.

        Whoever was preempted in this step is the first one, and does not: its blocks are used.
        """
        while b.num_waiting > 0 and b.num_running < self.seats:
            r = b.waiting.first()
            tokens = self.chunk_of(r, used)
            if tokens == 0 or b.blocks.count(r.tokens) + watermark(b) > b.blocks.free - taken:
                return
            b.admit(r, tokens, reserve=r.tokens)
            used += tokens

    def chunk_of(self, r: Request, used: int) -> int:
        """Tokens that `r` gets in a step that has `used` ones already."""
        left = self.budget(r.computed) - used
        if left < 1:
            return 0
        return min(r.unfilled, left) if self.has_chunking else r.unfilled

    def budget(self, progress: int) -> int:
        """Tokens of one step, as a prompt sees them that has computed `progress` tokens."""
        if self.stage == 0:
            return self.sizes[0]
        return self.sizes[min(progress // self.stage, len(self.sizes) - 1)]


class TurnsRun:
    """Sarathi-Serve on one batch: chunks and decodes in steps of their own."""

    def __init__(self, run: SarathiRun) -> None:
        self.run = run
        self.turn = -1  # the step that belongs to the decodes, because chunks had the one before

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        is_theirs = b.tick_count == self.turn and b.num_decoding > 0
        if not is_theirs:
            self.run.prefill(b, 0, 0)
        if b.edits > 0:
            b.decodes_run = False
            self.turn = b.tick_count + 1
            return
        preempt_newest(b)
        if is_theirs and (b.prefilling or b.num_waiting > 0):
            b.wake_after(1)
