"""How far tables are from what they were asked of, over steps drawn at random.

A third of the steps are decodes alone, a third chunks alone, a third both.  Numbers of rows, chunks and
tokens are drawn evenly on a logarithmic scale within the tables' range, and together at most as many
tokens as a step can have; half of the chunks start from no KV tokens.  Chunks of one step are alike and
end their prompts.  Steps of one kind are asked for as a whole, and the others part by part.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final, Protocol

from batchwright.cost import Table
from batchwright.operators.source import Direct, Operators
from batchwright.operators.tables import ROWS, TOKENS
from batchwright.step import Step

STEPS: Final = 3000
KV_TOKENS: Final = 1 << 19  # of all rows of a step, about what a GPU of 80 GB holds for a small model
CHUNK_PAST: Final = 1 << 16


class Asked(Operators, Direct, Protocol):
    """What can be asked both ways."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Relative errors of tables against direct questions, in absolute value, of so many steps."""

    steps: int
    mean: float
    p99: float
    greatest: float


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The numbers of a step."""

    rows: int
    context: int
    chunks: int
    tokens: int
    past: int

    def step(self) -> Step:
        step = Step()
        step.quiet(self.rows, 0, self.rows * self.context)
        step.num_chunks = self.chunks
        step.prefill_tokens = self.chunks * self.tokens
        step.past_tokens = self.chunks * self.past
        step.prefill_attention = step.prefill_tokens * (self.past + self.tokens / 2)
        step.sampled_rows = self.rows + self.chunks
        return step

    def seconds(self, source: Asked) -> float:
        """What the source says of it."""
        if not self.chunks:
            return source.rows(self.rows, self.context)
        if not self.rows:
            return source.prompts(self.chunks, self.tokens, self.past)
        total = source.shared(self.rows + self.chunks * self.tokens) + source.head(self.rows + self.chunks)
        total += source.prefill(self.chunks, self.tokens, self.past)
        return total + source.decode(self.rows, self.context)


def difference(table: Table, source: Asked, steps: int = STEPS, seed: int = 0) -> Difference:
    """Errors of `table` against `source` over steps drawn by `seed`.  Raises InputError."""
    most = int(min(KV_TOKENS, table.times.context_tokens))
    drawn = [draw(Random(f"{seed} {i}"), i % 3, most) for i in range(steps)]
    errors = sorted(abs(table.seconds(each.step()) / each.seconds(source) - 1.0) for each in drawn)
    mean = sum(errors) / len(errors)
    return Difference(steps=steps, mean=mean, p99=errors[int(0.99 * len(errors))], greatest=errors[-1])


def draw(random: Random, kind: int, kv_tokens: int = KV_TOKENS) -> Drawn:
    """A step of decodes (kind 0), chunks (1) or both (2); the decodes have at most `kv_tokens`."""
    rows = 0 if kind == 1 else _number(random, 1, ROWS)
    chunks = 0 if kind == 0 else _number(random, 1, 256)
    most = (TOKENS - rows) // max(chunks, 1)
    return Drawn(
        rows=rows,
        context=_number(random, 1, kv_tokens // max(rows, 4)) if rows else 0,
        chunks=chunks,
        tokens=_number(random, 1, most) if chunks else 0,
        past=_number(random, 1, CHUNK_PAST) if chunks and random.random() < 0.5 else 0,
    )


def _number(random: Random, least: int, most: int) -> int:
    """A whole number, evenly on a logarithmic scale."""
    return min(int(least * ((most + 1) / least) ** random.random()), most)
