"""One step as the policy left it, in the flat columns that engines read.

    rows       one sequence per row: chunks in the policy's order, then decodes, then padded rows
    counts     tokens of each row in this step
    past       KV tokens that each row starts from; its first token has this position
    padding    how many of the row's last tokens are padding, computed for its time alone
    tokens     the token ids of all rows, one row after the other
    sampled    the sequences that get a token, in order of their rows
    samples    for each of them, the index in `tokens` of the token that its next one follows
    released   sequences that have lost their KV since the last step (ended, preempted, cancelled)

Row i reads and writes the KV blocks `rows[i].table`, whose entry j holds its tokens j * block_size
to (j + 1) * block_size - 1.  Two tables may start with the same blocks, which hold the same tokens;
a block may be written in the same step in which another row reads it.  Where a table is too short for
the padding behind a chunk, the padding goes to the block `scratch`, which is nobody's.  A padded row
has ended, is padding alone, and gets no token.
"""

from __future__ import annotations

from batchwright.engines.sequence import Sequence
from batchwright.request import PREFILLING
from batchwright.step import Step


class Work:
    """One step.  The driver keeps one `Work` and writes it anew; an engine reads it at once."""

    def __init__(self, scratch: int) -> None:
        self.rows: list[Sequence] = []
        self.counts: list[int] = []
        self.past: list[int] = []
        self.padding: list[int] = []
        self.tokens: list[int] = []
        self.sampled: list[Sequence] = []
        self.samples: list[int] = []
        self.released: list[Sequence] = []
        self.special: list[int] = []  # indices in `sampled` of those that are not `is_plain`
        self.scratch = scratch

    def clear(self) -> None:
        """No rows; those that were released are still to be told."""
        self.rows = []
        self.counts = []
        self.past = []
        self.padding = []
        self.tokens = []
        self.sampled = []
        self.samples = []
        self.special = []

    def measure(self, step: Step) -> None:
        """Write into `step` what this one computes, as `Batch.measure` does."""
        step.quiet(0, 0, 0)
        of_padding = 0.0
        for i in range(len(self.rows)):
            tokens, past, state = self.counts[i] - self.padding[i], self.past[i], self.rows[i].request.state
            if state == PREFILLING:
                step.num_chunks += 1
                step.prefill_tokens += self.counts[i]
                step.past_tokens += past
                step.prefill_attention += tokens * (past + 0.5 * tokens)
                of_padding += self.padding[i] * (past + tokens + self.padding[i] / 2)
            else:
                step.num_decodes += tokens
                step.padded_rows += self.padding[i]
                step.context_tokens += past
        step.prefill_attention += of_padding
        step.sampled_rows = len(self.sampled)

    def add(self, s: Sequence, past: int, tokens: list[int], padding: int, is_sampled: bool) -> None:
        """A row of `tokens`, and so much padding behind them."""
        self.rows.append(s)
        self.counts.append(len(tokens) + padding)
        self.past.append(past)
        self.padding.append(padding)
        self.tokens += tokens
        if is_sampled:
            if not s.is_plain:
                self.special.append(len(self.sampled))
            self.sampled.append(s)
            self.samples.append(len(self.tokens) - 1)
        self.tokens += [0] * padding
