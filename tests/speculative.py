"""The slow, obvious loop for speculative decoding; nothing here is imported from batchwright.

    timed(load, seconds, k, guess)    vLLM on real-valued time; `guess(row)`: which of its tokens
                                      a draft guesses right

What differs from `reference`: a decode computes 1 + k tokens, fewer if the budget or the longest request
says so, keeps the tokens before the first wrong guess, and one more.  Its blocks must hold all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from reference import Part, Plan, Row, Seconds, VllmReference, rows_of, work_of

Guess = Callable[[Row], list[bool]]


def guesses(acceptance: float, spread: float, seed: int) -> Guess:
    """As `Speculation` says that they are drawn."""

    def drawn(row: Row) -> list[bool]:
        random = Random(f"{seed} {row.index} {float(row.arrival).hex()} {row.prompt}")
        rate = acceptance
        if spread:
            size = acceptance * (1 - acceptance) / spread**2 - 1
            rate = random.betavariate(acceptance * size, (1 - acceptance) * size)
        return [random.random() < rate for _ in range(row.output)]

    return drawn


@dataclass
class Verified(Plan):
    """A step, and the tokens that each sampled row gains in it."""

    gained: dict[Row, int] = field(default_factory=dict)


class Speculative(VllmReference):
    """vLLM's scheduler with `k` drafts a decode."""

    def __init__(self, config: dict[str, Any], k: int, guess: Guess) -> None:
        super().__init__(config)
        self.k = k
        self.guess = guess
        self.plans: list[Verified] = []
        self.gained: dict[Row, int] = {}

    def schedule(self) -> Verified:
        self.gained = {}
        plan = super().schedule()
        return Verified(plan.parts, plan.admitted, plan.preempted, plan.padding, self.gained)

    def wanted(self, row: Row) -> int:
        if row.is_prefilling:
            return row.known - row.computed
        if row.sampled == row.output:  # its end is not seen yet
            return 0
        return min(1 + self.k, self.longest - 1 - row.computed)

    def advance(self, row: Row, tokens: int) -> Part:
        if row.is_prefilling:
            part = super().advance(row, tokens)
            self.gained[row] = 1
            return part
        right = [*self.guess(row)[row.sampled : row.sampled + tokens - 1], False]
        gained = min(right.index(False) + 1, row.output - row.sampled)
        self.gained[row] = gained
        past = row.computed
        row.computed += gained
        row.unseen += gained
        return Part(row, tokens, past, False, True)

    def output(self, plan: Plan, now: float = 0.0) -> list[Row]:
        assert isinstance(plan, Verified)
        sampled = [part.row for part in plan.parts if part.is_sampled]
        return [row for row in sampled if self.see_all(row, plan.gained[row])]

    def see_all(self, row: Row, gained: int) -> bool:
        """See the tokens of a step; is the last one among them?"""
        row.unseen -= gained - 1
        row.generated += gained - 1
        return self.see(row)


def work(plan: Plan) -> dict[str, float]:
    """What a step computes: a draft is a token of a prompt that follows its decode, and is sampled."""
    found = work_of(plan)
    found["draft_tokens"] = 0
    for part in plan.parts:
        drafts = 0 if part.is_prefill else part.tokens - 1
        found["draft_tokens"] += drafts
        found["prefill_tokens"] += drafts
        found["sampled_rows"] += drafts
        found["prefill_attention"] += sum(part.past + 1 + j + 0.5 for j in range(drafts))
    return found


def with_draft(seconds: Seconds, share: float, k: int) -> Seconds:
    """The time of a step with k passes of a draft that costs `share` of the model."""

    def drafted(of: dict[str, float]) -> float:
        rows = of["sampled_rows"] - of["draft_tokens"]
        passes = [seconds(of)]
        for j in range(1, k if rows else 1):
            context = of["context_tokens"] + j * rows
            passes.append(seconds(dict.fromkeys(of, 0) | {"num_decodes": rows, "context_tokens": context}))
        return seconds(of) + share * sum(passes)

    return drafted


def timed(
    load: dict[str, Any], seconds: Seconds, k: int, guess: Guess, empty: float = 0.0
) -> list[dict[str, float]]:
    """`first_token`, `finished`, `preemptions` and `steps` (those in which it decoded) of every request."""
    engine = Speculative(load["config"], k, guess)
    rows = list(rows_of(load))
    coming = deque(rows)
    flight: deque[Verified] = deque()
    decodes = dict.fromkeys(rows, 0)
    now = 0.0
    while coming or engine.holds():
        while coming and coming[0].arrival <= now:
            engine.enqueue(coming.popleft())
        if not engine.holds():
            now = coming[0].arrival
            continue
        plan = engine.schedule()
        now += seconds(work(plan)) if plan.parts else empty
        note(plan, now, decodes)
        flight.append(plan)
        if len(flight) > engine.lag:
            engine.output(flight.popleft(), now)
    return [
        {
            "first_token": row.first_token,
            "finished": row.finished,
            "preemptions": row.preemptions,
            "steps": decodes[row],
        }
        for row in rows
    ]


def note(plan: Verified, now: float, decodes: dict[Row, int]) -> None:
    """Tokens come when their step ends."""
    for part in plan.parts:
        row = part.row
        decodes[row] += not part.is_prefill
        if not part.is_sampled:
            continue
        if row.sampled == 0:
            row.first_token = now
        row.sampled += plan.gained[row]
        if row.sampled == row.output:
            row.finished = now
