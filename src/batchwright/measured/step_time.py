"""What a step takes on one machine, fitted to measured steps.

    seconds = shared(tokens) + head(sampled rows) + chunk * chunks + decode * rows that decode
              + context * KV tokens read + pair * prefill attention
              + switch, if the step before had another number of tokens

tokens are those of chunks, decodes and padding alike: they go through the same matrices.  Padded rows
count as rows that decode.  `shared` and `head` are lines between knots, because kernels change with the
number of rows, and may jump from 4 to 5; neither ever falls.  `switch` is what an engine takes to
prepare for other shapes; it is one number for steps with chunks, whose shapes are mostly new, and another
one for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.cost.line import Line
from batchwright.step import Step


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds, but for `most_tokens`: those of the greatest step that it was fitted to.

    As a cost model it is of a step after one of as many tokens, for a cost model knows no step before.
    """

    shared: Line
    head: Line
    chunk: float
    decode: float
    context: float
    pair: float
    switch: float
    chunk_switch: float
    most_tokens: int

    def seconds(self, step: Step) -> float:
        return self.stretch(step, 1)

    def stretch(self, step: Step, steps: int) -> float:
        decodes = step.num_decodes + step.padded_rows
        each = self.shared.at(tokens_of(step)) + self.head.at(step.sampled_rows)
        each += self.chunk * step.num_chunks + self.decode * decodes
        each += self.context * (step.context_tokens + step.past_tokens)
        each += self.pair * step.prefill_attention
        if steps == 1:
            return each
        return steps * each + self.context * (decodes * (steps * (steps - 1) // 2))

    def switch_seconds(self, step: Step) -> float:
        """What `step` takes more after one of another number of tokens."""
        return self.chunk_switch if step.num_chunks else self.switch

    def decode_seconds(self, rows: int, context: int) -> float:
        """Of a step of so many decodes, each over `context` tokens."""
        step = Step()
        step.quiet(rows, 0, rows * context)
        return self.seconds(step)


def tokens_of(step: Step) -> int:
    """All that go through the matrices."""
    return step.prefill_tokens + step.num_decodes + step.padded_rows
