"""SGLang's scheduler, on one replica.

order fcfs, by priority, or by what is cached (`sglang_order`) · gate a seat is free and the batch is not
known to be full · KV the uncached prompt and all that its client allows, beside a share of what the
running may still need · composition a prefill step if anybody can take part, else a decode step; mixed:
both in one · victim the fewest output tokens, then the longest prompt; recompute · leave at once

A prefill step goes on with the prompt that was cut, then admits in order.  Of one request, let

    left = min(max_tokens - output tokens, 4096)

With `t` KV tokens free, and nobody running or `need < t - ratio * sum(left of who decodes) - left of who
joins before it`, where `need = uncached prompt + left + block_size`, a request joins.  The first that does
not ends the step's admission and makes the batch full: nobody else is tried until somebody has left it.
A prompt over what is left of `chunked_prefill_size` is cut there; one prompt at a time is cut.

    ratio   0.7 * schedule_conservativeness, at most 1, when nobody runs; falls in 600 decode steps to 14 %
            of that; sum(output tokens + 20) / (sum(max_tokens) + 1) of who is left, after a retraction

Who ends with a decode step leaves the batch full for one more, because the engine looks for prompts before
it takes out who has ended.  A request that was retracted queues anew, behind those that wait.

Source: SGLang 0.5 (2026) and 0.4, `managers/schedule_policy.py`, `scheduler.py`, `schedule_batch.py`,
`scheduler_components/new_token_ratio_tracker.py`, `prefill_delayer.py`, `server_args.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import InputError, LimitError
from batchwright.policies.about import About
from batchwright.policies.check import check_bool, check_choice, check_count, check_number
from batchwright.policies.kv import sampled
from batchwright.policies.sglang_delayer import Delayer
from batchwright.policies.sglang_order import AWARE, KNOWN, NEWER_ORDERS, ORDERS, SMALL_ONLY, Past, queue_key
from batchwright.policies.sglang_state import Full, Left, Ratio
from batchwright.policies.victim import by_outputs
from batchwright.request import PREFILLING, Block, Request

VERSIONS: Final = {"0.5": "fcfs", "0.4": "lpm"}  # and the order that is its default
CLIP: Final = 4096  # tokens to come that are counted of one request
NO_CHUNKS: Final = -1
UNCUT: Final = 1 << 40  # tokens, or requests: more than there are
SHORT_QUEUE: Final = 128  # requests; in a longer one the costly orders are not computed
STEPS_AHEAD: Final = 20  # tokens that each may gain after a retraction
LONGEST_DELAY: Final = 5000.0  # milliseconds
NEWER: Final = {  # flags that 0.4 lacks
    "prefill_max_requests", "enable_priority_scheduling", "schedule_low_priority_values_first",
    "enable_prefill_delayer", "prefill_delayer_queue_min_ratio", "prefill_delayer_max_delay_ms",
}  # fmt: skip
COUNTS: Final = ("max_running_requests", "max_prefill_tokens", "prefill_max_requests")
OPTIONAL: Final = ("max_running_requests", "prefill_max_requests")
SWITCHES: Final = (
    "enable_mixed_chunk", "enable_priority_scheduling", "schedule_low_priority_values_first",
    "disable_overlap_schedule", "enable_prefill_delayer",
)  # fmt: skip


@ordinary
@dataclass(frozen=True, kw_only=True)
class Sglang:
    """SGLang's scheduler under its own flags and defaults.

    `max_running_requests`: seats; None: the server's `max_num_seqs`.  `schedule_policy`: None is fcfs, in
    0.4 lpm.  `chunked_prefill_size`: -1 does not cut prompts; the default is that of a GPU of 60 to 160 GB.
    `page_size` is the server's `block_size`.  `max_prefill_tokens` is at least `max_model_len`.
    The delayer: `prefill_delayer_queue_min_ratio` None does not look at the queue; `max_delay_ms` None is
    5000 milliseconds.

    Raises InputError on an unknown version, a bad value, or flags that the engine does not take together.
    """

    about = About(
        engine="SGLang 0.5; 0.4 with its default order",
        order="first come, priority, or by cached prefix, length, chance",
        first="prompts that can join, in a step of their own; mixed: beside the decodes",
        chunking="to chunked_prefill_size, one prompt at a time",
        kv="the prompt and max_tokens (at most 4096), beside a share of what the running may still need",
        victim="the fewest output tokens, then the longest prompt; recomputes",
        leave="at once, seen a step late if overlapped",
        source="SGLang 0.5 and 0.4, managers/schedule_policy.py, scheduler.py, schedule_batch.py",
        left_out="preemption by priority, routing-key, the exact test for ignore_eos without a radix cache, "
        "the row that an overlapped request computes in vain after its end, hierarchical cache, "
        "speculative decoding, data parallelism",
    )
    version: str = "0.5"
    max_running_requests: int | None = None
    max_prefill_tokens: int = 16384
    chunked_prefill_size: int = 8192
    prefill_max_requests: int | None = None
    enable_mixed_chunk: bool = False
    schedule_policy: str | None = None
    schedule_conservativeness: float = 1.0
    enable_priority_scheduling: bool = False
    schedule_low_priority_values_first: bool = False
    random_seed: int = 0
    disable_overlap_schedule: bool = False
    enable_prefill_delayer: bool = False
    prefill_delayer_queue_min_ratio: float | None = None
    prefill_delayer_max_delay_ms: float | None = None

    def __post_init__(self) -> None:
        check_choice("sglang", self, "version", VERSIONS)
        for name in COUNTS:
            check_count("sglang", self, name, optional=name in OPTIONAL)
        check_count("sglang", self, "random_seed", least=0)
        _check_chunks(self)
        if vars(self)["schedule_policy"] is not None:
            check_choice("sglang", self, "schedule_policy", KNOWN)
        check_number("sglang", self, "schedule_conservativeness", 0.0, 1e6)
        check_number("sglang", self, "prefill_delayer_queue_min_ratio", 0.0, 1e6, optional=True)
        check_number("sglang", self, "prefill_delayer_max_delay_ms", 0.0, 1e9, optional=True)
        for name in SWITCHES:
            check_bool("sglang", self, name)
        _check_together(self)

    @property
    def order(self) -> str:
        """The order of the waiting by name."""
        return self.schedule_policy or VERSIONS[self.version]

    def delayer(self) -> Delayer | None:
        """Who delays prefill steps; None: nobody does."""
        if not self.enable_prefill_delayer:
            return None
        delay = self.prefill_delayer_max_delay_ms
        seconds = (LONGEST_DELAY if delay is None else delay) / 1000
        return Delayer(float(self.prefill_delayer_queue_min_ratio or 0.0), seconds)

    def begin(self, batch: Batch) -> Policy:
        _check_limits(self, batch)
        batch.overlap = not self.disable_overlap_schedule
        if self.max_running_requests is not None:
            batch.max_running = self.max_running_requests
        sign = 1 if self.schedule_low_priority_values_first else -1
        batch.order_by(queue_key(self.order, sign if self.enable_priority_scheduling else 0))
        return SglangRun(self, batch)


class SglangRun:
    """SGLang's scheduler on one batch."""

    def __init__(self, flags: Sglang, batch: Batch) -> None:
        self.page = batch.limits.block_size
        self.seats = batch.max_running
        self.input = max(flags.max_prefill_tokens, batch.limits.max_model_len or 0)
        self.is_cutting = flags.chunked_prefill_size != NO_CHUNKS
        self.chunk = flags.chunked_prefill_size if self.is_cutting else UNCUT
        self.most = flags.prefill_max_requests or UNCUT
        self.is_mixed = flags.enable_mixed_chunk
        self.order = flags.order if batch.blocks.caching or flags.order not in AWARE else "fcfs"
        self.past = Past(flags.random_seed)
        self.ratio = Ratio(flags.schedule_conservativeness)
        self.delayer = flags.delayer()
        self.greatest = 0  # tokens that one request may still have needed when it joined
        self.full = Full()

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        if not b.running:
            self.ratio.reset(b.clock)
        self.full.look(b)
        if b.prefilling or (b.num_waiting > 0 and not self.full.is_full):
            self.prefill(b)
        if not b.chunks and b.decode_blocks() > b.blocks.free:
            self.retract(b)
        self.full.planned(b)

    # --- prefill steps ----------------------------------------------------------

    def prefill(self, b: Batch) -> None:
        """Plan a prefill step, if anybody can take part in one."""
        decodes = len(b.running) - len(b.prefilling)
        beside = decodes if self.is_mixed else 0
        left = Left(self.input - beside, self.chunk - beside)
        if decodes >= self.seats:
            self.full.is_full = True
            return
        if left.chunk < (1 if b.prefilling else self.page):
            return
        if beside > 0:
            if b.decode_blocks() > b.blocks.free:
                return
            b.reserve()
        line = self.line(b)
        if b.prefilling and not self.go_on(b, left):
            return
        if b.num_waiting > 0 and (self.delayer is None or not self.delayer.holds(b, decodes, self.seats)):
            self.full.is_full = False
            self.admit_waiting(b, line, left)
        if b.chunks:
            self.start(b, beside)

    def start(self, b: Batch, beside: int) -> None:
        """The prefill step is planned, with so many requests beside it."""
        if self.order == "hrrn":
            self.past.note(b.tick_count, sum([r.planned for r in b.chunks]))
        if self.delayer is not None:
            self.delayer.saw(len(b.chunks))
        if beside > 0 and b.num_decoding > 0:
            self.ratio.skip()
        else:
            b.decodes_run = False

    def line(self, b: Batch) -> list[Request]:
        """Those that wait, in the order of this step; empty: as they queue."""
        if self.order not in ORDERS or (self.order in SMALL_ONLY and b.num_waiting > SHORT_QUEUE):
            return []
        return ORDERS[self.order](b, b.waiting.head(b.num_waiting), self.past)

    def go_on(self, b: Batch, left: Left) -> bool:
        """Compute more of the prompt that was cut; False if no token of it has room."""
        r = next(iter(b.prefilling))
        have = b.blocks.count(r.computed) + b.blocks.free
        tokens = min(r.unfilled, left.chunk, have * self.page - r.computed)
        if not self.affords(b, tokens, left):
            spare = int(self.room(b, left) - self.promised(b, left))
            tokens = min(tokens, spare) if spare > 0 else tokens
        if tokens < 1:
            return False
        b.chunk(r, tokens)
        self.take(b, r, tokens, left)
        return True

    def admit_waiting(self, b: Batch, line: list[Request], left: Left) -> None:
        """Admit in order, until one does not fit."""
        joined = 0
        while b.num_waiting > 0:
            if len(b.running) >= self.seats:
                self.full.is_full = True
                return
            r = line[joined] if line else b.waiting.first()
            if len(b.chunks) >= self.most or not self.admit(b, r, left):
                return
            joined += 1

    def admit(self, b: Batch, r: Request, left: Left) -> bool:
        """Admit `r` if it fits; may the next one be tried?"""
        hit = self.find(b, r, left)
        missing = r.prompt + r.generated - len(hit) * self.page
        need = missing + to_come(r) + self.page * (1 + sum([block.users == 0 for block in hit]))
        if b.running and not self.affords(b, need, left):
            self.full.is_full = True
            return False
        tokens = self.share(b, missing, left)
        if tokens < 1:
            return False
        b.admit(r, tokens, hit)
        self.take(b, r, tokens, left)
        return left.input > 0 and left.chunk > 0

    def share(self, b: Batch, missing: int, left: Left) -> int:
        """How many of the prompt tokens that a request lacks are computed in this step; 0: it waits."""
        whole = self.paged(missing)
        if not self.is_cutting:
            return 0 if b.chunks and whole >= left.input else missing
        if whole <= left.chunk:
            return missing
        return left.chunk // self.page * self.page if left.chunk > 0 else 0

    def take(self, b: Batch, r: Request, tokens: int, left: Left) -> None:
        """The step computes so many tokens of `r`: note what that leaves."""
        whole = self.paged(tokens)
        left.input -= whole
        left.chunk -= whole
        if tokens == r.unfilled:
            left.granted += to_come(r)
            self.greatest = max(self.greatest, to_come(r))
        if r.prefix:
            left.fresh.update(r.blocks[r.computed // self.page :])

    def find(self, b: Batch, r: Request, left: Left) -> list[Block]:
        """The cached blocks of the prompt of `r`, without those that this step computes."""
        hit = b.blocks.lookup(r)
        if r.preemptions > 0:
            hit = hit[: r.prompt // self.page]  # what it had sampled was not cached
        if left.fresh:
            for i, block in enumerate(hit):
                if block in left.fresh:
                    return hit[:i]
        return hit

    def paged(self, tokens: int) -> int:
        """`tokens` in whole blocks."""
        return -(-tokens // self.page) * self.page

    # --- memory -----------------------------------------------------------------

    def room(self, b: Batch, left: Left) -> int:
        """Tokens that are free, beside what was granted in this step."""
        return b.blocks.free * self.page - left.granted

    def affords(self, b: Batch, tokens: int, left: Left) -> bool:
        """Is there room for more than `tokens`, beside what the running may still need?"""
        room = self.room(b, left)
        if tokens >= room or tokens < room - len(b.running) * self.greatest:  # certain without a sum
            return tokens < room
        return tokens < room - self.promised(b, left)

    def promised(self, b: Batch, left: Left) -> float:
        """Tokens for which room is kept, for those who decode."""
        if left.promised < 0:
            tokens = [min(r.max_tokens - sampled(b, r), CLIP) for r in b.running if r.state != PREFILLING]
            left.promised = self.ratio.at(b.clock) * sum(tokens)
        return left.promised

    def retract(self, b: Batch) -> None:
        """Let requests wait again until the others can decode."""
        rows = by_outputs(b)
        while b.decode_blocks() > b.blocks.free:
            b.preempt(rows.pop())
        if rows:
            done = sum([sampled(b, r) + STEPS_AHEAD for r in rows])
            self.ratio.jump(min(done / (sum([r.max_tokens for r in rows]) + 1), 1.0), b.clock)
        else:
            self.ratio.skip()
        self.full.is_full = False


def to_come(r: Request) -> int:
    """Tokens that `r`, which waits or prefills, may still sample, as far as they are counted."""
    return min(max(r.max_tokens - r.generated, 0), CLIP)


def _check_chunks(flags: object) -> None:
    """Whole tokens, or -1."""
    value: object = vars(flags)["chunked_prefill_size"]
    if type(value) is not int or value != NO_CHUNKS:
        check_count("sglang", flags, "chunked_prefill_size")


def _check_together(flags: Sglang) -> None:
    """Flags that the engine does not take together."""
    if flags.version == "0.4":
        _check_old(flags)
    if flags.enable_mixed_chunk and flags.chunked_prefill_size == NO_CHUNKS:
        raise InputError("sglang: enable_mixed_chunk needs chunks; give chunked_prefill_size")
    if flags.enable_priority_scheduling and flags.order not in ("fcfs", "lof"):
        raise InputError(
            f"sglang: enable_priority_scheduling needs schedule_policy fcfs or lof, not {flags.order}"
        )
    if flags.schedule_low_priority_values_first and not flags.enable_priority_scheduling:
        raise InputError("sglang: schedule_low_priority_values_first needs enable_priority_scheduling")
    if flags.enable_prefill_delayer and flags.disable_overlap_schedule:
        raise InputError("sglang: enable_prefill_delayer needs overlap; leave disable_overlap_schedule out")
    for name in ("prefill_delayer_queue_min_ratio", "prefill_delayer_max_delay_ms"):
        if vars(flags)[name] is not None and not flags.enable_prefill_delayer:
            raise InputError(f"sglang: {name} needs enable_prefill_delayer")


def _check_old(flags: Sglang) -> None:
    """0.4 has fewer flags and orders."""
    for field in fields(flags):
        if field.name in NEWER and vars(flags)[field.name] != field.default:
            raise InputError(f"sglang@0.4 has no flag {field.name}; leave it out")
    if flags.order in NEWER_ORDERS:
        raise InputError(f"sglang@0.4 has no schedule_policy {flags.order}; choose another")


def _check_limits(flags: Sglang, batch: Batch) -> None:
    """What SGLang refuses to start with."""
    page, chunk = batch.limits.block_size, flags.chunked_prefill_size
    if chunk != NO_CHUNKS and chunk % page > 0:
        raise LimitError(
            f"sglang: chunked_prefill_size {chunk} is not a multiple of block_size {page}; give one that is"
        )
    if flags.order == "shortest-prefill-first" and not batch.blocks.caching:
        raise LimitError(
            "sglang: schedule_policy shortest-prefill-first needs the prefix cache; set enable_prefix_caching"
        )
