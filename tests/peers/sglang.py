"""SGLang: any settings, and a slow loop that plans as the engine's own does.

Each step looks for a prefill batch first, with a list of budgets; if there is none, it takes out
who has ended and decodes.  Nothing is clever, and everything is summed anew.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from random import Random
from typing import Any

from batchwright.policies.sglang import Sglang
from reference import Plan, Row, VllmReference

KIND = Sglang
COUNTS = (0, -1, 1.0, True, "8", nan)
BOOLS = (0, 1, None, "true")
NUMBERS = (-0.1, nan, inf, "1", True)
BAD: dict[str, tuple[Any, ...]] = {
    "version": ("1", 0.5, None),
    "max_running_requests": COUNTS,
    "max_prefill_tokens": (*COUNTS, None),
    "chunked_prefill_size": (0, -2, -1.0, 8.0, True, "8", None, nan),
    "prefill_max_requests": COUNTS,
    "enable_mixed_chunk": BOOLS,
    "schedule_policy": ("lifo", "", 1, "routing-key", "priority"),
    "schedule_conservativeness": (*NUMBERS, None),
    "enable_priority_scheduling": BOOLS,
    "schedule_low_priority_values_first": BOOLS,
    "random_seed": (-1, 1.0, True, None, "8"),
    "disable_overlap_schedule": BOOLS,
    "enable_prefill_delayer": BOOLS,
    "prefill_delayer_queue_min_ratio": NUMBERS,
    "prefill_delayer_max_delay_ms": NUMBERS,
}
CACHE_ORDERS = ("lpm", "dfs-weight", "hrrn", "shortest-prefill-first")


def settings(random: Random) -> Sglang:
    """Any settings that can be written as text."""
    return Sglang(**_flags(random, 1))


def drawn(random: Random, config: dict[str, Any]) -> tuple[Sglang, Callable[[dict[str, Any]], Any]]:
    flags = _flags(random, config["block_size"])
    flags["max_running_requests"] = random.choice([None, min(2, config["max_num_seqs"])])
    if flags.get("schedule_policy") == "shortest-prefill-first" and not config["enable_prefix_caching"]:
        del flags["schedule_policy"]
    policy = Sglang(**flags)
    return policy, lambda config: SglangReference(config, policy)


def _flags(random: Random, page: int) -> dict[str, Any]:
    flags: dict[str, Any] = {
        "max_running_requests": random.choice([None, 1, 64]),
        "max_prefill_tokens": random.choice([8, 64, 700, 16384]),
        "chunked_prefill_size": random.choice([1, 2, 5, 20]) * page,
        "prefill_max_requests": random.choice([None, None, 1, 3]),
        "enable_mixed_chunk": random.random() < 0.4,
        "schedule_conservativeness": random.choice([0.0, 0.3, 1.0, 1.0, 5]),
        "random_seed": random.choice([0, 7]),
    }
    if random.random() < 0.2 and not flags["enable_mixed_chunk"]:
        flags["chunked_prefill_size"] = -1
    return flags | random.choice([_old, _prioritized, _ordered, _delayed])(random)


def _old(random: Random) -> dict[str, Any]:
    policy = random.choice([None, "fcfs", "lpm", "dfs-weight", "lof", "random"])
    return {"version": "0.4", "prefill_max_requests": None, "schedule_policy": policy}


def _prioritized(random: Random) -> dict[str, Any]:
    return {
        "schedule_policy": random.choice([None, "fcfs", "lof"]),
        "enable_priority_scheduling": True,
        "schedule_low_priority_values_first": random.random() < 0.5,
        "disable_overlap_schedule": random.random() < 0.5,
    }


def _ordered(random: Random) -> dict[str, Any]:
    orders = [None, "fcfs", "lof", "random", *CACHE_ORDERS, *CACHE_ORDERS]
    return {
        "schedule_policy": random.choice(orders),
        "disable_overlap_schedule": random.random() < 0.5,
    }


def _delayed(random: Random) -> dict[str, Any]:
    return {
        "enable_prefill_delayer": True,
        "prefill_delayer_queue_min_ratio": random.choice([None, 0.1, 0.5, 3.0]),
        "prefill_delayer_max_delay_ms": random.choice([None, 0.0, 1000.0, 20000]),
        "schedule_policy": random.choice([None, "lof", "lpm"]),
    }


class SglangReference(VllmReference):
    """Pool, blocks and outputs are those of the vLLM loop; what a step is made of is SGLang's."""

    def __init__(self, config: dict[str, Any], flags: Sglang) -> None:
        super().__init__(config)
        self.flags = flags
        self.lag = 0 if flags.disable_overlap_schedule else 1
        self.seats = flags.max_running_requests or config["max_num_seqs"]
        self.order = flags.schedule_policy or {"0.5": "fcfs", "0.4": "lpm"}[flags.version]
        if self.order in CACHE_ORDERS and not self.pool.caching:
            self.order = "fcfs"
        self.start = min(0.7 * flags.schedule_conservativeness, 1.0)
        self.least = self.start * 0.14
        self.ratio, self.decayed = self.start, 0
        self.is_full = False
        self.has_gone = False
        self.members: list[Row] = []  # those that ran after the last step was planned
        self.tick = -1
        self.prefilled: list[tuple[int, int]] = []  # step and prompt tokens of every prefill step
        self.largest = 0
        self.delayed_since: float | None = None
        self.queued: dict[Row, int] = {}  # the step before which each queued

    def enqueue(self, row: Row) -> None:
        self.waiting.append(row)
        self.queued[row] = self.tick + 1

    def plan(self, now: float, draining: bool) -> Plan | None:
        if not self.holds():
            return None
        self.now = now
        return self.schedule()

    def schedule(self) -> Plan:
        plan = Plan()
        self.tick += 1
        self.taken: set[int] = set()
        has_gone = any(row not in self.running for row in self.members)
        was_prefill = bool(self.prefilled) and self.prefilled[-1][0] == self.tick - 1
        if not self.running:
            self.ratio, self.decayed, self.is_full = self.start, 0, False
        if has_gone and was_prefill:
            self.is_full = False
        self.has_gone = bool(self.running) and (self.has_gone or (has_gone and not was_prefill))
        self.prefill(plan)
        if not plan.parts:
            self.is_full = self.is_full and not self.has_gone  # only now they are taken out
            self.has_gone = False
            self.decode(plan)
        self.members = list(self.running)
        return plan

    # --- prefill --------------------------------------------------------------

    def prefill(self, plan: Plan) -> None:
        cut = [row for row in self.running if row.is_prefilling]
        decodes = [row for row in self.running if not row.is_prefilling]
        assert len(cut) <= 1
        if not cut and (self.is_full or not self.waiting):
            return
        if len(decodes) >= self.seats:
            self.is_full = True
            return
        beside = decodes if self.flags.enable_mixed_chunk else []
        self.input = max(self.flags.max_prefill_tokens, self.longest) - len(beside)
        self.chunk = 10**9 if self.flags.chunked_prefill_size < 0 else self.flags.chunked_prefill_size
        self.chunk -= len(beside)
        if self.chunk <= 0 or (self.chunk < self.block_size and not cut):
            return
        running = [row for row in beside if self.wanted(row)]
        if self.blocks_needed(running) > len(self.pool.free):
            return
        line = self.line()
        for row in running:
            assert self.grow(row, 1)
        self.promised = self.current_ratio() * sum(min(self.left(row), 4096) for row in decodes)
        self.granted = 0
        self.planned: list[tuple[Row, int]] = []
        is_stuck = bool(cut) and not self.go_on(cut[0])
        if not is_stuck and self.waiting and not self.is_delayed(len(decodes)):
            self.is_full = False
            self.admit_in(line)
        if not self.planned:
            return
        self.largest = max(self.largest, len(self.planned))
        self.prefilled.append((self.tick, sum(tokens for _, tokens in self.planned)))
        everybody = [(row, 1) for row in running] + self.planned
        plan.parts = [self.advance(row, tokens) for row, tokens in everybody]

    def go_on(self, row: Row) -> bool:
        free = len(self.pool.free) * self.block_size
        tokens = min(row.known - row.computed, self.chunk)
        tokens = min(tokens, len(row.blocks) * self.block_size - row.computed + free)
        spare = int(free - self.promised)
        if spare > 0:
            tokens = min(tokens, spare)
        if tokens < 1:
            return False
        self.run(row, tokens)
        return True

    def admit_in(self, line: list[Row]) -> None:
        for row in line:
            if len(self.running) >= self.seats:
                self.is_full = True
                return
            if self.flags.prefill_max_requests and len(self.planned) >= self.flags.prefill_max_requests:
                return
            if not self.try_one(row):
                return

    def try_one(self, row: Row) -> bool:
        assert row.unseen == 0
        hit = self.find(row)
        missing = row.known - len(hit) * self.block_size
        unused = sum(self.pool.users[block] == 0 for block in hit)
        free = (len(self.pool.free) - unused) * self.block_size - self.granted - self.promised
        need = missing + min(max(self.left(row), 0), 4096) + self.block_size
        if self.running and need >= free:
            self.is_full = True
            return False
        tokens = missing
        if self.ceil(missing) > self.chunk:
            tokens = self.chunk // self.block_size * self.block_size
            if tokens < 1 or any(done < other.known - other.computed for other, done in self.planned):
                return False
        if self.flags.chunked_prefill_size < 0 and self.planned and self.ceil(missing) >= self.input:
            return False
        self.waiting.remove(row)
        self.running.append(row)
        self.pool.share(hit)
        row.blocks, row.named = list(hit), len(hit)
        row.computed = len(hit) * self.block_size
        self.run(row, tokens)
        return self.input > 0 and self.chunk > 0

    def run(self, row: Row, tokens: int) -> None:
        before = len(row.blocks)
        assert self.grow(row, tokens)
        self.taken |= set(row.blocks[before:])
        self.planned.append((row, tokens))
        self.input -= self.ceil(tokens)
        self.chunk -= self.ceil(tokens)
        if row.computed + tokens == row.known:
            self.granted += min(max(self.left(row), 0), 4096)

    def find(self, row: Row) -> list[int]:
        """Cached blocks of the prompt, without those that this step computes."""
        hit: list[int] = []
        for block in self.lookup(row)[: row.prompt // self.block_size]:
            if block in self.taken:
                break
            hit.append(block)
        return hit

    def left(self, row: Row) -> int:
        return row.max_tokens - row.generated - row.unseen

    def ceil(self, tokens: int) -> int:
        return self.count(tokens) * self.block_size

    def is_delayed(self, running: int) -> bool:
        if not self.flags.enable_prefill_delayer:
            return False
        ratio = self.flags.prefill_delayer_queue_min_ratio or 0.0
        longest = self.flags.prefill_delayer_max_delay_ms
        seconds = 5.0 if longest is None else longest / 1000
        lacks_seats = self.seats - running < self.largest
        is_few = len(self.waiting) < min(int(ratio * running), self.largest)
        if is_few and self.delayed_since is not None:
            is_few = self.now < self.delayed_since + seconds
        if not lacks_seats and not is_few:
            self.delayed_since = None
            return False
        if self.delayed_since is None:
            self.delayed_since = self.now
        return True

    # --- decode ---------------------------------------------------------------

    def decode(self, plan: Plan) -> None:
        rows = [row for row in self.running if not row.is_prefilling]
        kept = sorted(rows, key=lambda row: (-row.generated - row.unseen, row.prompt))
        while self.blocks_needed([row for row in kept if self.wanted(row)]) > len(self.pool.free):
            victim = kept.pop()
            self.preempt(victim)
            plan.preempted.append(victim)
        if not plan.preempted and rows:
            self.decayed += 1
        elif kept:
            done = sum(row.generated + row.unseen + 20 for row in kept)
            self.ratio = min(done / (sum(row.max_tokens for row in kept) + 1), 1.0)
            self.decayed = 0
        if plan.preempted:
            self.is_full = False
        for row in rows:
            if row in kept and self.wanted(row):
                assert self.grow(row, 1)
                plan.parts.append(self.advance(row, 1))

    def preempt(self, row: Row) -> None:
        super().preempt(row)
        self.waiting.remove(row)
        self.enqueue(row)  # behind those that wait
        self.queued[row] = self.tick

    def blocks_needed(self, rows: list[Row]) -> int:
        return sum(self.count(row.computed + 1) - len(row.blocks) for row in rows)

    def current_ratio(self) -> float:
        if self.decayed == 0:
            return self.ratio
        return max(self.ratio - self.decayed * ((self.start - self.least) / 600), self.least)

    # --- order ----------------------------------------------------------------

    def line(self) -> list[Row]:
        sign = 1 if self.flags.schedule_low_priority_values_first else -1
        sign = sign if self.flags.enable_priority_scheduling else 0
        longest_first = self.order == "lof"
        queue = sorted(
            self.waiting,
            key=lambda row: (sign * row.priority, -row.max_tokens if longest_first else 0),
        )
        if self.order == "random":
            Random((self.flags.random_seed << 64) + self.tick).shuffle(queue)
        if self.order in ("lpm", "hrrn") and len(queue) > 128:
            return queue
        cached = {row: len(self.find(row)) * self.block_size for row in queue}
        late = self.duplicates(queue, cached)
        if self.order == "lpm":
            return [row for row in sorted(queue, key=lambda row: -cached[row]) if row not in late] + late
        if self.order == "shortest-prefill-first":
            short = sorted(queue, key=lambda row: row.known - cached[row])
            return [row for row in short if row not in late] + [row for row in short if row in late]
        if self.order == "hrrn":
            return self.by_ratio([row for row in queue if row not in late], cached) + sorted(
                late, key=lambda row: row.index
            )
        return self.depth_first(queue) if self.order == "dfs-weight" else queue

    def by_ratio(self, rows: list[Row], cached: dict[Row, int]) -> list[Row]:
        def ratio(row: Row) -> float:
            waited = sum(tokens for step, tokens in self.prefilled if step >= self.queued[row])
            uncached = row.prompt - cached[row]
            return waited / uncached if uncached > 0 else inf

        return sorted(rows, key=lambda row: (-ratio(row), row.index))

    def duplicates(self, queue: list[Row], cached: dict[Row, int]) -> list[Row]:
        first: list[Row] = []
        late: list[Row] = []
        for row in queue:
            if cached[row] > 32:
                continue
            alike = [min(row.shared, other.shared) for other in first if other.group == row.group]
            is_late = any(tokens // self.block_size * self.block_size >= 32 for tokens in alike)
            (late if is_late else first).append(row)
        return late

    def depth_first(self, queue: list[Row]) -> list[Row]:
        paths = {row: [row.key(j, self.block_size) for j in range(len(self.find(row)))] for row in queue}
        line: list[Row] = []

        def visit(depth: int, rows: list[Row]) -> None:
            """Those of `rows`, whose paths agree on the first `depth` blocks."""
            children: dict[Any, list[Row]] = {}
            for row in rows:
                if len(paths[row]) > depth:
                    children.setdefault(paths[row][depth], []).append(row)
            for inside in sorted(children.values(), key=lambda rows: -len(rows)):
                end = depth + 1  # down to where they part, or one of them ends
                while len({tuple(paths[row][:end]) for row in inside}) == 1 and end < min(
                    len(paths[row]) for row in inside
                ):
                    end += 1
                if len({tuple(paths[row][:end]) for row in inside}) > 1:
                    end -= 1
                visit(end, inside)
            line.extend(row for row in rows if len(paths[row]) == depth)

        visit(0, queue)
        return line
