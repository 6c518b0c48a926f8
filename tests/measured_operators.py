"""Made-up operator times, for tests of tables: smooth, with a floor and tiles as real ones have."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass
class Made:
    """Seconds by formulas.  `asked`: how many questions there were."""

    tile: float = 1e-4  # of every 256 tokens begun
    is_split: bool = False
    context_tokens: float = inf
    asked: int = 0

    def shared(self, tokens: int) -> float:
        self.asked += 1
        return 2e-3 + 4e-6 * tokens + self.tile * -(-tokens // 256)

    def decodes(self, tokens: int) -> float:
        return 0.5 * self.shared(tokens) if self.is_split else self.shared(tokens)

    def head(self, rows: int) -> float:
        self.asked += 1
        return 3e-4 + 1e-7 * rows

    def prefill(self, chunks: int, tokens: int, past: int) -> float:
        self.asked += 1
        return max(2e-4, 1e-9 * chunks * tokens * (past + tokens / 2))

    def decode(self, rows: int, context: int) -> float:
        self.asked += 1
        return max(1e-4, 2e-9 * rows * (context + 1)) + 1e-6 * rows

    def prompts(self, chunks: int, tokens: int, past: int) -> float:
        return self.shared(chunks * tokens) + self.head(chunks) + self.prefill(chunks, tokens, past)

    def rows(self, rows: int, context: int) -> float:
        return self.decodes(rows) + self.head(rows) + self.decode(rows, context)
