"""LightLLM: a request joins if the predicted peak of all KV stays below the limit.

order fcfs · gate none, or some decode steps after a prefill · KV the predicted peak · composition
chunks of new prompts alone while the decodes pause, then decodes · victim the newest; recompute ·
leave at once

A request holds `now` tokens, may yet take `left`, and then gives all back.  With out tokens out:

    now  = prompt + out + 1
    left = max(0, ceil(unfilled / chunked_prefill_size) + max_tokens - out - 1) + 6
    peak = max over i of (now[1] + ... + now[i] + i * left[i]),  most left first

An admission needs peak < max_total_tokens, first chunks and decodes within `batch_max_tokens`, and
blocks for the prompt.  While nothing happens those that run draw nearer to their ends, so a
request that does not fit may fit some steps later: `first_fit` says when.

Source: LightLLM @fc72ffa, `server/router/req_queue/chunked_prefill/impl.py` and
`continues_batch/impl.py`, `server/core/objs/req.py`, `mode_backend/chunked_prefill/control_state.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.batch import Batch
from batchwright.config import ordinary
from batchwright.contract import Policy
from batchwright.errors import LimitError
from batchwright.limits import Limits
from batchwright.policies.about import About
from batchwright.policies.check import batch_size, check_bool, check_count, check_number, kv_tokens
from batchwright.policies.kv import blocks_to_take, sampled
from batchwright.policies.victim import preempt_newest
from batchwright.request import DECODING, PREFILLING, Request

SPARE: Final = 6  # tokens that every request is given beyond its estimate
MOST_REQUESTS: Final = 1000  # default of running_max_req_size
GROWTH: Final = 1.1  # an output is expected to grow by a tenth at least

Part = tuple[int, int]  # of the peak: tokens left, tokens now


@ordinary
@dataclass(frozen=True, kw_only=True)
class Lightllm:
    """LightLLM's scheduler under its own flags.

    None means LightLLM's default: `max_total_tokens` all of the KV cache; `batch_max_tokens` twice
    `chunked_prefill_size`, or the longest request if that is less; `running_max_req_size` 1000, or
    the server's `max_num_seqs` if that is less.  Without chunks `batch_max_tokens` is the longest request.

    Raises InputError on a bad value.
    """

    about = About(
        engine="LightLLM",
        order="first come",
        first="chunks of prompts alone while decodes pause, then decodes",
        chunking="at most chunked_prefill_size of each prompt a step",
        kv="the predicted peak of all that run, and the blocks of the prompt",
        victim="the newest; recomputes",
        leave="at once",
        source="ModelTC/lightllm @fc72ffa, server/router and server/core/objs/req.py",
        left_out="that the router looks at its queue every few milliseconds only; ignore_eos; "
        "paused requests that keep their place; pages of one token: with larger blocks they can be short "
        "below the peak; data parallelism; beam search",
    )
    max_total_tokens: int | None = None
    batch_max_tokens: int | None = None
    chunked_prefill_size: int = 4096
    disable_chunked_prefill: bool = False
    running_max_req_size: int | None = None
    router_token_ratio: float = 0.0
    router_max_new_token_len: int = 1024
    router_max_wait_tokens: int = 6
    disable_aggressive_schedule: bool = False

    def __post_init__(self) -> None:
        for name in ("max_total_tokens", "batch_max_tokens", "running_max_req_size"):
            check_count("lightllm", self, name, optional=True)
        for name in ("chunked_prefill_size", "router_max_new_token_len"):
            check_count("lightllm", self, name)
        check_count("lightllm", self, "router_max_wait_tokens", least=0)
        check_number("lightllm", self, "router_token_ratio", 0.0, 1.0)
        check_bool("lightllm", self, "disable_chunked_prefill")
        check_bool("lightllm", self, "disable_aggressive_schedule")

    def begin(self, batch: Batch) -> Policy:
        seats = batch.limits.max_num_seqs
        size = self.running_max_req_size
        batch.max_running = min(MOST_REQUESTS, seats)
        if size is not None:
            batch.max_running = batch_size("lightllm", "running_max_req_size", size, seats)
        return LightllmRun(self, batch.limits)


class LightllmRun:
    """LightLLM on one batch."""

    def __init__(self, flags: Lightllm, limits: Limits) -> None:
        self.limit = kv_tokens("lightllm", "max_total_tokens", flags.max_total_tokens, limits)
        self.chunk = limits.longest if flags.disable_chunked_prefill else flags.chunked_prefill_size
        self.has_chunking = not flags.disable_chunked_prefill
        self.batch_tokens = _batch_tokens(flags, self.chunk, limits)
        self.pause = max(1, flags.router_max_wait_tokens) if flags.disable_aggressive_schedule else 0
        self.busy_ratio = flags.router_token_ratio
        self.guess = flags.router_max_new_token_len
        self.prefilled = 0  # tick after the last step that prefilled
        self.most_left = 0  # of any request that was asked about: above every `left` of those that run

    def __call__(self, b: Batch) -> None:
        if b.edits > 0:
            return
        closed = self.prefilled + self.pause - b.tick_count if b.num_decoding > 0 else 0
        if closed <= 0:
            self.prefill(b)
        elif b.num_waiting > 0 or b.prefilling:
            b.wake_after(closed)
        if b.chunks:
            b.decodes_run = False
            self.prefilled = b.tick_count + 1
        else:
            preempt_newest(b)

    # --- prefill --------------------------------------------------------------

    def prefill(self, b: Batch) -> None:
        """Run the next chunks of all unfinished prompts, and of new ones."""
        used = b.num_decoding if self.has_chunking else 0
        for r in list(b.prefilling):
            tokens = min(r.unfilled, self.chunk)
            while r.state == PREFILLING and b.needs(r, tokens) > b.blocks.free:
                b.preempt(b.newest())
            if r.state == PREFILLING:
                b.chunk(r, tokens)
                used += tokens
        if not b.has_preempted:
            self.admit_waiting(b, used)

    def admit_waiting(self, b: Batch, used: int) -> None:
        """Admit from the head of the queue until one does not fit.  `used`: tokens of those that run."""
        while b.num_waiting > 0 and b.num_running < b.max_running:
            r = b.waiting.first()
            used += min(r.unfilled, self.chunk)
            hit = b.blocks.lookup(r)
            if used > self.batch_tokens or blocks_to_take(b, r.tokens, hit) > b.spare_blocks:
                return
            if not self.stays_below(b, r):
                if not b.chunks:
                    self.wake(b, r)
                return
            self.most_left = max(self.most_left, self.part(r, r.generated, True)[0])
            b.admit(r, min(r.unfilled - len(hit) * b.blocks.block_size, self.chunk), hit)

    # --- the peak -------------------------------------------------------------

    def stays_below(self, b: Batch, r: Request) -> bool:
        """Does the predicted peak stay below the limit with `r`?  A lone request joins whatever it is."""
        if b.num_running == 0:
            return True
        part = self.part(r, r.generated, self.is_busy(b))
        held = b.context + 2 * b.num_decoding + part[1]
        for other in b.prefilling:
            held += other.tokens + 1
        if held + (b.num_running + 1) * max(self.most_left, part[0]) < self.limit:
            return True  # as if all ended last: quick, and above the peak
        return peak([*self.parts(b), part]) < self.limit

    def parts(self, b: Batch) -> list[Part]:
        is_busy = self.is_busy(b)
        return [self.part(r, sampled(b, r), is_busy) for r in b.running]

    def part(self, r: Request, out: int, is_busy: bool) -> Part:
        """What `r`, which has `out` tokens out, adds to the peak."""
        limit = r.max_tokens if is_busy else self.expected(r, out)
        unfilled = 1 if r.state == DECODING else r.unfilled
        chunks = (unfilled + self.chunk - 1) // self.chunk if self.has_chunking else 0
        return max(0, chunks + limit - out - 1) + SPARE, r.prompt + out + 1

    def expected(self, r: Request, out: int) -> int:
        """The guess at how long the output of `r` becomes, of a server that is not busy."""
        return min(r.max_tokens, max(int(GROWTH * out), self.guess))

    def is_busy(self, b: Batch) -> bool:
        """Is so much KV in use that every request is expected to take all that it may?"""
        used = b.context
        for r in b.prefilling:
            used += r.computed
        return used / self.limit >= self.busy_ratio

    def wake(self, b: Batch, r: Request) -> None:
        """Ask again when `r`, which is over the peak now, may be below it: all others decode.

        What is left falls by one a step at most, less while outputs are expected to grow, so that
        `r` fits no earlier than that.
        """
        left, now = self.part(r, r.generated, self.is_busy(b))
        steps = first_fit(self.parts(b), left, now, self.limit)
        if steps > 0:
            b.wake_after(steps)


def peak(parts: list[Part]) -> int:
    """The most KV tokens at once, if each request holds `now`, takes one a step and ends after `left`."""
    most = held = 0
    for count, (left, now) in enumerate(sorted(parts, reverse=True), start=1):
        held += now
        most = max(most, held + count * left)
    return most


def first_fit(parts: list[Part], left: int, now: int, limit: int) -> int:
    """Steps, at least 1, after which the peak with a request that waits is below `limit`; 0: never.

    The others (`parts`) decode: s steps on, each has s tokens more and s fewer left.  With k of them
    ahead of the new one, the peak is below the limit when all three are:

        before    max over i <= k of E[i],   E[i] = now[1] + ... + now[i] + i * left[i]
        at it     now[1] + ... + now[k] + k * s + now + (k + 1) * left
        behind    max over i > k of (E[i] + left[i]) + now - s
    """
    ordered = sorted(parts, reverse=True)
    held, before = [0], [0]
    for count, (rest, has) in enumerate(ordered, start=1):
        held.append(held[-1] + has)
        before.append(max(before[-1], held[-1] + count * rest))
    behind = 0
    earliest = 1
    for k in range(len(ordered), -1, -1):  # from now on; the later, the fewer are ahead
        spare = limit - 1 - held[k] - now - (k + 1) * left
        latest = spare if k == 0 else min(spare // k, ordered[k - 1][0] - left)
        if before[k] < limit and (earliest <= latest or k == 0 <= spare):
            return earliest
        if k > 0:
            rest = ordered[k - 1][0]
            behind = max(behind, held[k] + (k + 1) * rest)
            earliest = max(1, rest - left + 1, behind + now - limit + 1)
    return 0


def _batch_tokens(flags: Lightllm, chunk: int, limits: Limits) -> int:
    """`batch_max_tokens`, with its default.  Raises LimitError if it cannot hold one chunk."""
    if flags.batch_max_tokens is None:
        return chunk if flags.disable_chunked_prefill else max(chunk, min(2 * chunk, limits.longest))
    if flags.batch_max_tokens < chunk:
        what = "max_model_len, without chunks," if flags.disable_chunked_prefill else "chunked_prefill_size"
        raise LimitError(
            f"lightllm: batch_max_tokens {flags.batch_max_tokens} is below {what} {chunk}; raise it or "
            "lower that"
        )
    return flags.batch_max_tokens
