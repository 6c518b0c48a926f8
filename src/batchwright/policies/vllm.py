"""vLLM's default scheduler (V1), step for step.

order fcfs or priority · gate a seat is free and nobody was preempted · KV the blocks of the
prompt · composition running requests first, in admission order, in one token budget, then
chunks of waiting ones · victim the newest, or the least urgent; recompute · leave at once

A step plans in two passes: every running request gets its tokens; what is left of the budget
admits from the head of the queue, until one does not fit.  Under asynchronous scheduling a
step is planned before the tokens of the one before are known, so an end is seen a step late.
Under speculative decoding a decode takes 1 + `num_speculative_tokens` tokens of the budget, fewer
if that is all that is left, and as many slots in its blocks.

Source: vLLM 0.32.0, `v1/core/sched/scheduler.py` and `async_scheduler.py`; vLLM 0.19.0, the
same step with fewer flags.  Left out: LoRA, multimodal input, KV connectors, queues and budgets of
each data-parallel rank and pipeline stage (whose time is in the cost); of speculation the further
slots that a draft model keeps for itself, the block that EAGLE drops of a prefix hit, and, if
asynchronous, the slots and the row of a step that is planned as if all drafts of the one before
were accepted.
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
from batchwright.policies.kv import blocks_to_take
from batchwright.policies.order import by_priority
from batchwright.policies.victim import least_urgent
from batchwright.request import DECODING, ENDED, WAITING, Block, Request
from batchwright.speculation import Draft, Speculation, check_speculation

SHARED_FLAGS: Final = (
    "max_num_seqs", "max_num_batched_tokens", "max_num_scheduled_tokens", "enable_chunked_prefill",
    "long_prefill_token_threshold", "scheduler_reserve_full_isl", "policy", "async_scheduling",
    "num_speculative_tokens", "acceptance", "acceptance_spread", "draft", "acceptance_seed",
)  # fmt: skip
FLAGS: Final = {  # what each version knows, beside `version`
    "0.32": (*SHARED_FLAGS, "watermark", "long_prefill_token_threshold_adaptive", "max_num_active_seqs"),
    "0.19": (*SHARED_FLAGS, "max_num_partial_prefills", "max_long_partial_prefills"),
}
COUNTS: Final = (
    "max_num_seqs", "max_num_batched_tokens", "max_num_scheduled_tokens", "max_num_active_seqs",
)  # fmt: skip
SWITCHES: Final = (
    "enable_chunked_prefill", "long_prefill_token_threshold_adaptive", "scheduler_reserve_full_isl",
    "async_scheduling",
)  # fmt: skip
POLICIES: Final = ("fcfs", "priority")
SPECULATION: Final = ("acceptance", "acceptance_spread", "draft", "acceptance_seed")


@ordinary
@dataclass(frozen=True, kw_only=True)
class Vllm:
    """vLLM's scheduler under its own flags and defaults.

    None means vLLM's default: `max_num_seqs` and `max_num_batched_tokens` are those of the
    server's limits, `max_num_active_seqs` is `max_num_seqs`.  `async_scheduling` is on by
    default, as on a GPU.  `max_num_partial_prefills` and `max_long_partial_prefills` are
    accepted by 0.19 and have no effect there.

    `num_speculative_tokens` is that of vLLM's `speculative_config`; 0: no speculation.  The flags
    after it say how its draft does on this load, and are those of `Speculation`.

    Raises InputError on an unknown version, a flag that the version lacks, or a bad value.
    """

    about = About(
        engine="vLLM V1, 0.32 and 0.19",
        order="first come, or priority",
        first="those that run, in admission order, then new prompts, in one token budget",
        chunking="to what the budget leaves",
        kv="the prompt, less its cached prefix",
        victim="the newest, or the least urgent; recomputes",
        leave="at once, seen a step late if asynchronous",
        source="vLLM 0.32.0 and 0.19.0, v1/core/sched",
        left_out="LoRA, multimodal input, KV connectors, queues of each data-parallel rank, a draft model's "
        "own KV slots",
    )
    version: str = "0.32"
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_scheduled_tokens: int | None = None
    max_num_active_seqs: int | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    policy: str = "fcfs"
    async_scheduling: bool = True
    max_num_partial_prefills: int = 1
    max_long_partial_prefills: int = 1
    num_speculative_tokens: int = 0
    acceptance: float | None = None
    acceptance_spread: float = 0.0
    draft: Draft = 0.0
    acceptance_seed: int = 0

    def __post_init__(self) -> None:
        check_choice("vllm", self, "version", FLAGS)
        self._check_flags()
        for name in COUNTS:
            check_count("vllm", self, name, optional=True)
        check_count("vllm", self, "max_num_partial_prefills")
        check_count("vllm", self, "max_long_partial_prefills")
        check_count("vllm", self, "long_prefill_token_threshold", least=0)
        for name in SWITCHES:
            check_bool("vllm", self, name)
        check_number("vllm", self, "watermark", 0.0, 1.0)
        check_choice("vllm", self, "policy", POLICIES)
        check_count("vllm", self, "num_speculative_tokens", least=0)
        self._check_speculation()

    def _check_flags(self) -> None:
        for field in fields(self):
            is_set = getattr(self, field.name) != field.default
            if is_set and field.name != "version" and field.name not in FLAGS[self.version]:
                raise InputError(f"vllm@{self.version} has no flag {field.name}; leave it out")

    def _check_speculation(self) -> None:
        tokens = self.num_speculative_tokens
        if tokens == 0:
            for field in fields(self):
                if field.name in SPECULATION and getattr(self, field.name) != field.default:
                    raise InputError(
                        f"vllm: {field.name} is given, but num_speculative_tokens is 0; give both or none"
                    )
            return
        if self.acceptance is None:
            raise InputError(
                f"vllm: num_speculative_tokens is {tokens}, but acceptance is not given; give the share of "
                "draft tokens that the model accepts, as measured"
            )
        check_speculation("vllm", self)
        if 0 < self.long_prefill_token_threshold <= tokens:
            raise InputError(
                f"vllm: long_prefill_token_threshold {self.long_prefill_token_threshold} is below the "
                f"{tokens + 1} tokens that a decode verifies; raise it, or 0 for no bound"
            )

    def speculation(self) -> Speculation | None:
        """What the server speculates; None: nothing."""
        if self.acceptance is None:
            return None
        return Speculation(
            num_speculative_tokens=self.num_speculative_tokens,
            acceptance=self.acceptance,
            acceptance_spread=self.acceptance_spread,
            draft=self.draft,
            acceptance_seed=self.acceptance_seed,
        )

    def begin(self, batch: Batch) -> Policy:
        if self.policy == "priority":
            batch.order_by(by_priority)
        speculation = self.speculation()
        if speculation is not None:
            batch.speculate(speculation)
        batch.overlap = self.async_scheduling
        if self.max_num_seqs is not None:
            batch.max_running = self.max_num_seqs
        return VllmRun(self, batch)


class VllmRun:
    """vLLM's scheduler on one batch."""

    def __init__(self, flags: Vllm, batch: Batch) -> None:
        limits = batch.limits
        seats = flags.max_num_seqs or limits.max_num_seqs
        tokens = flags.max_num_batched_tokens or limits.max_num_batched_tokens
        _check_limits(flags, seats, tokens, limits.max_model_len)
        self.budget = flags.max_num_scheduled_tokens or tokens
        self.adaptive_budget = tokens if flags.long_prefill_token_threshold_adaptive else 0
        self.seats = flags.max_num_active_seqs or seats
        self.threshold = flags.long_prefill_token_threshold
        self.has_chunking = flags.enable_chunked_prefill
        self.reserves_prompt = flags.scheduler_reserve_full_isl
        self.watermark = int(flags.watermark * (limits.blocks + 1))  # of all blocks, the null block too
        self.has_priority = flags.policy == "priority"

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        cap = self.budget if self.threshold == 0 else self.chunk_cap(b.num_running + b.num_waiting)
        left = self.budget - (b.num_decoding if b.drafts is None else b.decode_tokens())
        need = b.decode_blocks()
        if left < 0:
            left = self.walk(b, cap)
        elif b.prefilling:
            left = self.continue_chunks(b, left, need, cap)
        elif need > b.blocks.free:
            left = self.walk(b, cap)
        elif need > 0:
            b.reserve()
        if left > 0 and b.num_waiting > 0:
            self.admit_waiting(b, left, cap)

    def chunk_cap(self, requests: int) -> int:
        """The longest chunk of one request; a lone request has the whole budget."""
        if requests < 2:
            return self.budget
        if self.adaptive_budget > 0:
            return max(self.threshold, self.adaptive_budget // requests)
        return self.threshold

    # --- pass 1: running requests ---------------------------------------------

    def continue_chunks(self, b: Batch, left: int, need: int, cap: int) -> int:
        """Grant every running request its tokens, some prompts being incomplete; the budget left.

        `left`, `need`: the budget that the decodes leave, and the blocks that they need.
        """
        chunks: list[tuple[Request, int]] = []
        for r in b.prefilling:
            tokens = min(r.unfilled, cap)
            if tokens > left:
                if r is not b.newest():
                    return self.walk(b, cap)
                tokens = left
            left -= tokens
            need += b.needs(r, tokens)
            chunks.append((r, tokens))
        if left < 0 or need > b.blocks.free:
            return self.walk(b, cap)
        b.reserve()
        for r, tokens in chunks:
            if tokens > 0:
                b.chunk(r, tokens)
        return left

    def walk(self, b: Batch, cap: int) -> int:
        """Pass 1 one by one, in admission order: who comes late may find no budget or no blocks."""
        left = self.budget
        order = list(b.running)
        for r in order:
            if left == 0 or r.state == WAITING or r.state == ENDED:
                continue
            tokens = min(b.row_tokens(r) if r.state == DECODING else min(r.unfilled, cap), left)
            left += self.make_room(b, r, tokens)
            if r.state == WAITING:
                break
            self.run(b, r, tokens)
            left -= tokens
        self.settle(b, order)
        return 0 if b.has_preempted else left

    def make_room(self, b: Batch, r: Request, tokens: int) -> int:
        """Preempt until `r` has blocks for `tokens` tokens; the tokens of this step given back."""
        if r.state == DECODING:
            r.computed = b.clock + r.shift
        given_back = 0
        while r.state != WAITING and b.needs(r, tokens) > b.blocks.free:
            victim = least_urgent(b) if self.has_priority else b.newest()
            given_back += victim.planned
            b.preempt(victim)
        return given_back

    def run(self, b: Batch, r: Request, tokens: int) -> None:
        if r.state == DECODING:
            b.grant(r, tokens)
        else:
            b.chunk(r, tokens)

    def settle(self, b: Batch, order: list[Request]) -> None:
        """Hold the decodes that the walk did not reach."""
        for r in order:
            if r.state == DECODING:
                if r.planned == 0:
                    b.hold(r)
                r.planned = 0
        b.is_reserved = True

    # --- pass 2: waiting requests ---------------------------------------------

    def admit_waiting(self, b: Batch, left: int, cap: int) -> None:
        """Admit from the head of the queue until one does not fit."""
        while left > 0 and b.num_waiting > 0 and len(b.running) < self.seats:
            r = b.waiting.first()
            hit = b.blocks.lookup(r)
            done = len(hit) * b.blocks.block_size
            missing = r.prompt + r.generated - done
            tokens = min(missing, cap)
            if tokens > left:
                if not self.has_chunking:
                    return
                tokens = left
            if not self.fits(b, done + (missing if self.reserves_prompt else tokens), hit):
                return
            b.admit(r, tokens, hit)
            left -= tokens

    def fits(self, b: Batch, tokens: int, hit: list[Block]) -> bool:
        """Are there blocks for a request's first `tokens` tokens, `hit` among them?"""
        need = blocks_to_take(b, tokens, hit)
        if self.watermark > 0 and b.running:
            need += self.watermark
        return need <= b.blocks.free


def _check_limits(flags: Vllm, seats: int, tokens: int, longest: int | None) -> None:
    """What vLLM refuses to start with."""
    if seats > tokens:
        raise LimitError(
            f"vllm: max_num_seqs {seats} is over max_num_batched_tokens {tokens}; "
            "lower max_num_seqs or raise max_num_batched_tokens"
        )
    for name, value, most in (
        ("max_num_active_seqs", flags.max_num_active_seqs, seats),
        ("max_num_scheduled_tokens", flags.max_num_scheduled_tokens, tokens),
    ):
        if value is not None and value > most:
            raise LimitError(f"vllm: {name} {value} is over the {most} that may be; lower it")
    if not flags.enable_chunked_prefill and (longest is None or tokens < longest):
        raise LimitError(
            f"vllm: without chunked prefill max_num_batched_tokens {tokens} must be at least "
            f"max_model_len {longest or 'of the KV cache'}; raise it or enable_chunked_prefill"
        )
