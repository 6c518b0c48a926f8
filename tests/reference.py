"""The slow, obvious loop that the simulator is compared with.

One list per request and one pass over the running requests per step; nothing here
is clever and nothing is imported from batchwright.

    replay(workload)                    vLLM's steps, in the format of tests/golden
    timed(workload, seconds)            vLLM on real-valued time
    timed(workload, seconds, static(8)) the same loop, another policy

Synchronous: the tokens of a step are known before the next step is planned.
Asynchronous: they are known one step later; until then a request carries one
unseen token for each step in flight.  Source: scheduler of vLLM 0.32.0.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple, Protocol

Key = tuple[str, int, int]
Seconds = Callable[[dict[str, float]], float]


class Row:
    """One request.  `known` tokens are those that the scheduler has seen."""

    def __init__(self, index: int, request: dict[str, Any], max_model_len: int) -> None:
        room = max_model_len - request["prompt_len"]
        self.index = index
        self.id: str = request["id"]
        self.arrival: float = request.get("arrival", request.get("arrival_step", 0))
        self.prompt: int = request["prompt_len"]
        self.output: int = min(request["output_len"], room)
        self.max_tokens: int = min(request.get("max_tokens", self.output), room)
        self.priority: int = request.get("priority", 0)
        self.group: int = request.get("prefix_group") or 0
        grouped = request.get("prefix_group") is not None
        self.shared: int = min(request["prefix_len"], self.prompt) if grouped else 0
        self.computed = 0  # tokens whose KV is in the cache, or will be after the steps in flight
        self.generated = 0  # tokens that the scheduler has seen
        self.unseen = 0  # tokens of steps in flight
        self.sampled = 0  # tokens that the model has sampled, seen or not
        self.is_prefilling = True
        self.blocks: list[int] = []
        self.named = 0  # leading blocks that others can hit
        self.reserved = 0  # blocks set aside (all policies but vLLM's)
        self.preemptions = 0
        self.first_token = 0.0
        self.finished = 0.0
        self.after: int | None = request.get("after")  # the request whose end its client waits for,
        self.think: float = request.get("think", 0.0)  # and for so long after it

    @property
    def known(self) -> int:
        return self.prompt + self.generated

    @property
    def urgency(self) -> tuple[int, float, int]:
        return (self.priority, self.arrival, self.index)

    def key(self, block: int, block_size: int) -> Key:
        """What the first `block + 1` blocks hold: equal if and only if all their tokens are."""
        end = (block + 1) * block_size
        return ("group", self.group, end) if end <= self.shared else ("own", self.index, end)


class Part(NamedTuple):
    """What one request computes in one step."""

    row: Row
    tokens: int
    past: int  # tokens in the cache before
    is_prefill: bool
    is_sampled: bool


@dataclass
class Plan:
    """One step."""

    parts: list[Part] = field(default_factory=list)
    admitted: dict[Row, int] = field(default_factory=dict)  # prefix tokens found
    preempted: list[Row] = field(default_factory=list)
    padding: list[int] = field(default_factory=list)  # contexts of the rows computed for nothing


class Pool:
    """KV blocks.  Block 0 is never given out.

    `free` is in the order of reuse: blocks that nobody can hit first, then the
    others, least recently released first.
    """

    def __init__(self, num_blocks: int, caching: bool) -> None:
        self.caching = caching
        self.free = list(range(1, num_blocks))
        self.users = [0] * num_blocks
        self.key_of: dict[int, Key] = {}
        self.holders: dict[Key, list[int]] = {}  # the first one is hit

    def take(self, count: int) -> list[int]:
        taken, self.free = self.free[:count], self.free[count:]
        assert len(taken) == count
        for block in taken:
            self.users[block] = 1
            if block in self.key_of:
                self.holders[self.key_of.pop(block)].remove(block)
        return taken

    def share(self, blocks: list[int]) -> None:
        for block in blocks:
            if self.users[block] == 0:
                self.free.remove(block)
            self.users[block] += 1

    def release(self, blocks: list[int]) -> None:
        """Give blocks back, the tail of the sequence first."""
        for block in blocks:
            self.users[block] -= 1
        unused = [block for block in reversed(blocks) if self.users[block] == 0]
        nameless = [block for block in unused if block not in self.key_of]
        named = [block for block in unused if block in self.key_of]
        self.free = nameless + self.free + named

    def name(self, block: int, key: Key) -> None:
        if self.caching:
            self.key_of[block] = key
            self.holders.setdefault(key, []).append(block)

    def find(self, key: Key) -> int | None:
        holders = self.holders.get(key)
        return holders[0] if holders else None


class Policy(Protocol):
    """What the loop over real-valued time needs."""

    lag: int  # steps by which outputs are seen late

    def enqueue(self, row: Row) -> None: ...
    def holds(self) -> bool: ...
    def plan(self, now: float, draining: bool) -> Plan | None: ...
    def wake(self) -> float | None: ...
    def output(self, plan: Plan, now: float) -> list[Row]: ...


class VllmReference:
    """vLLM's default scheduler, on a `config` as in the recordings."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.block_size: int = config["block_size"]
        self.longest: int = config["max_model_len"]
        self.budget: int = config["max_num_batched_tokens"]
        self.seats: int = config.get("max_num_active_seqs") or config["max_num_seqs"]
        self.threshold: int = config["long_prefill_token_threshold"]
        self.adaptive: bool = config.get("long_prefill_token_threshold_adaptive", False)
        self.chunking: bool = config["enable_chunked_prefill"]
        self.whole: bool = config.get("scheduler_reserve_full_isl", True)
        self.watermark = int(config.get("watermark", 0.0) * config["num_blocks"])
        self.by_priority: bool = config["policy"] == "priority"
        self.lag = 1 if config.get("async_scheduling") else 0
        self.pool = Pool(config["num_blocks"], config["enable_prefix_caching"])
        self.running: list[Row] = []
        self.waiting: list[Row] = []

    @property
    def decoding(self) -> list[Row]:
        return [row for row in self.running if not row.is_prefilling]

    @property
    def prefilling(self) -> list[Row]:
        return [row for row in self.running if row.is_prefilling]

    def enqueue(self, row: Row) -> None:
        self.waiting.append(row)

    def holds(self) -> bool:
        return bool(self.running or self.waiting)

    def wake(self) -> float | None:
        return None

    def plan(self, now: float, draining: bool) -> Plan | None:
        return self.schedule() if self.holds() else None

    # --- one step --------------------------------------------------------------

    def schedule(self) -> Plan:
        plan = Plan()
        scheduled: dict[Row, int] = {}
        cap = self.chunk_cap()
        self.continue_running(plan, scheduled, cap)
        if not plan.preempted:
            self.admit_waiting(plan, scheduled, cap)
        plan.parts = [self.advance(row, tokens) for row, tokens in scheduled.items()]
        return plan

    def chunk_cap(self) -> int:
        """The longest chunk of one request; a lone request has none."""
        requests = len(self.running) + len(self.waiting)
        if self.threshold == 0 or requests < 2:
            return self.longest
        return max(self.threshold, self.budget // requests) if self.adaptive else self.threshold

    def continue_running(self, plan: Plan, scheduled: dict[Row, int], cap: int) -> None:
        i = 0
        while i < len(self.running) and sum(scheduled.values()) < self.budget:
            row = self.running[i]
            tokens = min(self.wanted(row), cap, self.budget - sum(scheduled.values()))
            if tokens == 0:
                i += 1
                continue
            while row in self.running and not self.grow(row, tokens):
                victim = self.victim()
                i -= self.running.index(victim) < i
                self.preempt(victim)
                plan.preempted.append(victim)
                scheduled.pop(victim, None)
            if row not in self.running:
                return  # it was its own victim: those behind it get nothing
            scheduled[row] = tokens
            i += 1

    def wanted(self, row: Row) -> int:
        """Tokens that a running request lacks; none if the steps in flight yield its last one."""
        if row.unseen and row.computed - row.unseen + 2 >= row.prompt + row.output:
            return 0
        return min(row.known + row.unseen, self.longest - 1) - row.computed

    def grow(self, row: Row, tokens: int) -> bool:
        """Take the blocks for `tokens` more tokens, if there are enough."""
        need = max(self.count(row.computed + tokens) - len(row.blocks), 0)
        if need > len(self.pool.free):
            return False
        row.blocks += self.pool.take(need)
        self.name_blocks(row, min(row.computed + tokens, row.known))
        return True

    def victim(self) -> Row:
        return max(self.running, key=lambda row: row.urgency) if self.by_priority else self.running[-1]

    def preempt(self, row: Row) -> None:
        self.running.remove(row)
        self.waiting.insert(0, row)
        self.pool.release(row.blocks)
        row.blocks, row.named, row.computed = [], 0, 0
        row.is_prefilling = True
        row.preemptions += 1

    def admit_waiting(self, plan: Plan, scheduled: dict[Row, int], cap: int) -> None:
        while self.waiting and sum(scheduled.values()) < self.budget and len(self.running) < self.seats:
            left = self.budget - sum(scheduled.values())
            row = self.head()
            assert row.unseen == 0, "its last token came before pass 2 could look at it"
            hit = self.lookup(row)
            done = len(hit) * self.block_size
            tokens = min(row.known - done, cap)
            if tokens > left and not self.chunking:
                return
            tokens = min(tokens, left)
            if not self.fits(row.known if self.whole else done + tokens, hit):
                return
            self.admit(row, hit, tokens)
            plan.admitted[row] = done
            scheduled[row] = tokens

    def head(self) -> Row:
        return min(self.waiting, key=lambda row: row.urgency) if self.by_priority else self.waiting[0]

    def lookup(self, row: Row) -> list[int]:
        """The cached blocks that `row` can start on; its last token is always computed."""
        hit: list[int] = []
        for j in range((row.known - 1) // self.block_size):
            block = self.pool.find(row.key(j, self.block_size))
            if block is None:
                break
            hit.append(block)
        return hit

    def fits(self, tokens: int, hit: list[int]) -> bool:
        need = self.count(tokens) - len(hit)
        need += sum(self.pool.users[block] == 0 for block in hit)
        need += self.watermark if self.running else 0
        return need <= len(self.pool.free)

    def admit(self, row: Row, hit: list[int], tokens: int) -> None:
        self.waiting.remove(row)
        self.running.append(row)
        self.pool.share(hit)
        row.blocks, row.named = list(hit), len(hit)
        row.computed = len(hit) * self.block_size
        assert self.grow(row, tokens), "the test for admission covers the first chunk"

    def advance(self, row: Row, tokens: int) -> Part:
        """Count the tokens as computed: the next step may be planned before they are."""
        past, was_prefilling = row.computed, row.is_prefilling
        row.computed += tokens
        is_sampled = row.computed == row.known + row.unseen
        if is_sampled:
            row.unseen += 1
            row.is_prefilling = False
        return Part(row, tokens, past, was_prefilling, is_sampled)

    def output(self, plan: Plan, now: float = 0.0) -> list[Row]:
        """See the tokens of a step; the requests that have ended with it, in scheduled order."""
        rows = [part.row for part in plan.parts if part.is_sampled]
        return [row for row in rows if self.see(row)]

    def see(self, row: Row) -> bool:
        """See one token of `row`; is it the last one?"""
        row.unseen -= 1
        row.generated += 1
        if row in self.running:
            # The newest block may be full now although the step in flight does not have `row`:
            # a decode that was held, or one that has ended.  Blocks are named before they are freed.
            self.name_blocks(row, row.computed - row.unseen)
        if row.generated < row.output:
            return False
        (self.running if row in self.running else self.waiting).remove(row)
        self.pool.release(row.blocks)
        row.blocks = []
        return True

    def name_blocks(self, row: Row, tokens: int) -> None:
        """Let others hit the full blocks among the first `tokens` tokens of `row`."""
        for j in range(row.named, tokens // self.block_size):
            self.pool.name(row.blocks[j], row.key(j, self.block_size))
            row.named = j + 1

    def count(self, tokens: int) -> int:
        return -(-tokens // self.block_size)


# --- recorded steps --------------------------------------------------------------


def replay(workload: dict[str, Any]) -> list[dict[str, Any]]:
    """Every step, in the format of the recordings, synchronous or asynchronous."""
    engine = VllmReference(workload["config"])
    coming = rows_of(workload)
    return _replay_late(engine, coming) if engine.lag else _replay(engine, coming)


def _replay(engine: VllmReference, coming: deque[Row]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    step = 0
    while coming or engine.holds():
        if not engine.holds():
            step = max(step, int(coming[0].arrival))
        _enqueue(engine, coming, step)
        plan = engine.schedule()
        record = _record(step, plan) | {"free_blocks_sched": len(engine.pool.free)}
        record["finished"] = [row.id for row in engine.output(plan)]
        steps.append(record | {"free_blocks": len(engine.pool.free)} | _counts(engine))
        step += 1
    return steps


def _replay_late(engine: VllmReference, coming: deque[Row]) -> list[dict[str, Any]]:
    """With two steps in flight: a call after the last end is recorded too, though nothing is held."""
    steps: list[dict[str, Any]] = []
    step = 0
    flight: deque[Plan] = deque()
    finished: list[Row] = []
    while coming or engine.holds() or flight or finished:
        if not (engine.holds() or flight or finished):
            step = max(step, int(coming[0].arrival))
        _enqueue(engine, coming, step)
        if engine.holds() or finished:
            plan = engine.schedule()
            record = _record(step, plan) | {"finished_before": [row.id for row in finished]}
            steps.append(record | {"free_blocks_sched": len(engine.pool.free)} | _counts(engine))
            step += 1
            finished = []
            flight.append(plan)
            if len(flight) < 2:
                continue
        finished = engine.output(flight.popleft())
    return steps


def _record(step: int, plan: Plan) -> dict[str, Any]:
    return {
        "step": step,
        "scheduled": {part.row.id: part.tokens for part in plan.parts},
        "admitted": {row.id: tokens for row, tokens in plan.admitted.items()},
        "preempted": [row.id for row in plan.preempted],
    }


def _counts(engine: VllmReference) -> dict[str, int]:
    return {"running": len(engine.running), "waiting": len(engine.waiting)}


def rows_of(workload: dict[str, Any]) -> deque[Row]:
    longest = workload["config"]["max_model_len"]
    return deque(Row(i, request, longest) for i, request in enumerate(workload["requests"]))


def _enqueue(policy: Policy, coming: deque[Row], now: float) -> None:
    while coming and coming[0].arrival <= now:
        policy.enqueue(coming.popleft())


# --- real-valued time ------------------------------------------------------------


def timed(
    workload: dict[str, Any],
    seconds: Seconds,
    policy: Callable[[dict[str, Any]], Policy] = VllmReference,
    empty: float = 0.0,
    ahead: bool = False,
) -> dict[str, dict[str, float]]:
    """`arrival`, `first_token`, `finished` and `preemptions` of every request.

    `ahead`: a step is planned when the one before it begins, unless nothing runs.

    A step starts when the one before has ended; one without any token takes `empty` seconds.
    A request with `after` comes `think` seconds after its client has seen the end of that one.
    """
    engine = policy(workload["config"])
    rows = list(rows_of(workload))
    coming = deque(row for row in rows if row.after is None)
    thinking = [row for row in rows if row.after is not None]
    flight: deque[Plan] = deque()
    now, begun = 0.0, inf
    while coming or engine.holds():
        _enqueue(engine, coming, min(now, begun) if ahead else now)
        plan = engine.plan(now, not coming and not thinking)
        if plan is None and not coming and engine.wake() is None:
            plan = engine.plan(now, True)  # nobody comes before one of those that wait is served
        if plan is None:
            now, begun = _next_event(engine, coming, now), inf
            continue
        begun = now
        now += seconds(work_of(plan)) if plan.parts else empty
        ended = _note_tokens(plan, now)
        flight.append(plan)
        if len(flight) > engine.lag:
            left = engine.output(flight.popleft(), now)
            ended = ended if getattr(engine, "streamed", True) else left
        _follow(coming, thinking, ended)
    return {
        row.id: {
            "arrival": row.arrival,
            "first_token": row.first_token,
            "finished": row.finished,
            "preemptions": row.preemptions,
        }
        for row in rows
    }


def _follow(coming: deque[Row], thinking: list[Row], ended: list[Row]) -> None:
    for last in ended:
        for row in [row for row in thinking if row.after == last.index]:
            thinking.remove(row)
            row.arrival = last.finished + row.think
            coming.insert(sum(other.arrival <= row.arrival for other in coming), row)


def _next_event(engine: Policy, coming: deque[Row], now: float) -> float:
    wake = engine.wake()
    events = [row.arrival for row in coming] + ([] if wake is None else [wake])
    assert events, "the policy starves its requests"
    return max(now, min(events))


def _note_tokens(plan: Plan, now: float) -> list[Row]:
    """A token comes when its step ends, whenever the scheduler sees it; whose last one it is."""
    ended = []
    for part in plan.parts:
        part.row.sampled += part.is_sampled
        if part.is_sampled and part.row.sampled == 1:
            part.row.first_token = now
        if part.is_sampled and part.row.sampled == part.row.output:
            part.row.finished = now
            ended.append(part.row)
    return ended


def work_of(plan: Plan) -> dict[str, float]:
    """What a step computes, under the names that cost models know."""
    chunks = [part for part in plan.parts if part.is_prefill]
    decodes = [part for part in plan.parts if not part.is_prefill]
    return {
        "prefill_tokens": sum(part.tokens for part in chunks),
        "num_chunks": len(chunks),
        "prefill_attention": sum(part.tokens * (part.past + part.tokens / 2) for part in chunks),
        "past_tokens": sum(part.past for part in chunks),
        "num_decodes": len(decodes),
        "padded_rows": len(plan.padding),
        "context_tokens": sum(part.past for part in decodes) + sum(plan.padding),
        "sampled_rows": sum(part.is_sampled for part in plan.parts),
        "least_context": min([part.past for part in decodes] + plan.padding, default=0),
        "greatest_context": max([part.past for part in decodes] + plan.padding, default=0),
    }


def linear(
    step: float = 2**-2,
    prefill: float = 2**-10,
    decode: float = 2**-7,
    context: float = 2**-13,
    attention: float = 2**-16,
) -> Seconds:
    """Seconds, linear in the work.  The defaults are powers of two, so sums of them are exact
    and two ways of adding up the same steps agree to the last bit."""

    def seconds(work: dict[str, float]) -> float:
        rows = work["num_decodes"] + work["padded_rows"]
        read = work["past_tokens"] + work["context_tokens"]
        flat = step + prefill * work["prefill_tokens"] + decode * rows
        return flat + context * read + attention * work["prefill_attention"]

    return seconds


# --- the other policies ------------------------------------------------------------


class _Reserving:
    """What static, dynamic and orca share: FCFS, whole prompts, blocks set aside at admission."""

    lag = 0

    def __init__(self, config: dict[str, Any]) -> None:
        self.block_size: int = config["block_size"]
        self.longest: int = config["max_model_len"]
        self.free: int = config["num_blocks"] - 1
        self.running: list[Row] = []
        self.waiting: list[Row] = []

    def enqueue(self, row: Row) -> None:
        self.waiting.append(row)

    def holds(self) -> bool:
        return bool(self.running or self.waiting)

    def wake(self) -> float | None:
        return None

    def admit(self, most: int, slot: int | None = None) -> list[Row]:
        """Admit the first `most` waiting requests, fewer if the blocks do not last.

        `slot`: tokens reserved for each; None: its own prompt and `max_tokens`.
        """
        admitted: list[Row] = []
        while self.waiting and len(admitted) < most:
            row = self.waiting[0]
            tokens = row.prompt + row.max_tokens if slot is None else slot
            row.reserved = -(-tokens // self.block_size)
            if row.reserved > self.free:
                break
            self.free -= row.reserved
            admitted.append(self.waiting.pop(0))
        self.running += admitted
        return admitted

    def leave(self, rows: list[Row]) -> list[Row]:
        for row in rows:
            self.running.remove(row)
            self.free += row.reserved
        return rows

    def output(self, plan: Plan, now: float) -> list[Row]:
        for part in plan.parts:
            part.row.generated += 1
        return self.leave([part.row for part in plan.parts if part.row.generated == part.row.output])


def _prompt(row: Row, tokens: int) -> Part:
    row.computed = row.prompt
    return Part(row, tokens, 0, True, True)


def _decode(row: Row) -> Part:
    row.computed += 1
    return Part(row, 1, row.computed - 1, False, True)


class _Static(_Reserving):
    """Wait for a batch, run it until its longest output ends."""

    def __init__(self, config: dict[str, Any], batch_size: int, padded: bool, streamed: bool) -> None:
        super().__init__(config)
        self.batch_size = batch_size
        self.padded = padded
        self.streamed = streamed

    def plan(self, now: float, draining: bool) -> Plan | None:
        if self.running:
            return self._decodes()
        if len(self.waiting) < self.batch_size and not draining:
            return None
        batch = self.admit(self.batch_size)
        longest = max(row.prompt for row in batch)
        return Plan([_prompt(row, longest if self.padded else row.prompt) for row in batch])

    def _decodes(self) -> Plan:
        plan = Plan()
        for row in self.running:
            if row.generated < row.output:
                plan.parts.append(_decode(row))
            elif self.padded:
                plan.padding.append(row.computed)
                row.computed += 1
        return plan

    def output(self, plan: Plan, now: float) -> list[Row]:
        for part in plan.parts:
            part.row.generated += 1
        if any(row.generated < row.output for row in self.running):
            return []
        if not self.streamed:  # the client sees everything when the batch ends
            for row in self.running:
                row.first_token = row.finished = now
        return self.leave(list(self.running))


class _Dynamic(_Reserving):
    """Send a batch when it is full or its oldest request has waited for `window` seconds."""

    def __init__(self, config: dict[str, Any], most: int, window: float, sizes: tuple[int, ...]) -> None:
        super().__init__(config)
        self.most = most
        self.window = window
        self.sizes = sizes or (most,)

    def wake(self) -> float | None:
        return self.waiting[0].arrival + self.window if self.waiting else None

    def plan(self, now: float, draining: bool) -> Plan | None:
        if self.running:
            return Plan([_decode(row) for row in self.running])
        batch = self.admit(self._size(now))
        return Plan([_prompt(row, row.prompt) for row in batch]) if batch else None

    def _size(self, now: float) -> int:
        """How many of the waiting requests to send now."""
        ready = min(len(self.waiting), self.most)
        if ready == 0:
            return 0
        is_old = now >= self.waiting[0].arrival + self.window
        preferred = [size for size in self.sizes if size <= ready]
        if preferred and (not is_old or self.window == 0):
            return max(preferred)
        return ready if is_old else 0


class _Orca(_Reserving):
    """Join and leave after every step; slots for the longest possible request."""

    def __init__(self, config: dict[str, Any], most: int) -> None:
        super().__init__(config)
        self.most = most

    def plan(self, now: float, draining: bool) -> Plan | None:
        decodes = [_decode(row) for row in self.running]
        joining = self.admit(self.most - len(self.running), self.longest)
        parts = decodes + [_prompt(row, row.prompt) for row in joining]
        return Plan(parts) if parts else None


def static(
    batch_size: int, padded: bool = True, streamed: bool = False
) -> Callable[[dict[str, Any]], Policy]:
    return lambda config: _Static(config, batch_size, padded, streamed)


def dynamic(
    max_batch_size: int, window: float, preferred_sizes: tuple[int, ...] = ()
) -> Callable[[dict[str, Any]], Policy]:
    return lambda config: _Dynamic(config, max_batch_size, window, preferred_sizes)


def orca(max_batch_size: int) -> Callable[[dict[str, Any]], Policy]:
    return lambda config: _Orca(config, max_batch_size)
