"""The work of one step (one forward pass), as cost models see it.

A quiet step repeats the one before, except that every row reads one token more:

    context_tokens(j) = context_tokens + j * (num_decodes + padded_rows)

so a cost model can price `k` quiet steps at once.  The least and the greatest context, where a cost
model asks for them, grow by one token a step.

A decode that verifies d draft tokens (`speculation`) costs what a decode and a chunk of d tokens
on the same context cost that read its KV once: drafts are among `prefill_tokens`, their pairs in
`prefill_attention`, and each of them is a sampled row.
"""

from __future__ import annotations


class Step:
    """What one step computes.  Counts of rows and tokens, summed over the batch.

    The simulator keeps one `Step` and writes it anew before every step: a cost
    model reads it at once and never keeps it.
    """

    __slots__ = (
        "context_tokens", "draft_tokens", "greatest_context", "least_context", "num_chunks", "num_decodes",
        "padded_rows", "past_tokens", "prefill_attention", "prefill_tokens", "sampled_rows",
    )  # fmt: skip

    def __init__(self) -> None:
        self.prefill_tokens = 0  # prompt tokens computed, padding and draft tokens included
        self.num_chunks = 0  # requests with prompt tokens in this step
        self.prefill_attention = 0.0  # sum over chunks of tokens * (past + tokens / 2)
        self.past_tokens = 0  # KV tokens that the chunks start from, and read
        self.num_decodes = 0
        self.padded_rows = 0  # rows that have ended and are still computed (padded static)
        self.context_tokens = 0  # KV tokens that decodes and padded rows read
        self.sampled_rows = 0  # rows that yield a token: decodes and last chunks; and draft tokens
        self.draft_tokens = 0  # that decodes verify
        self.least_context = 0  # KV tokens of the row with the fewest, and of the one with the most;
        self.greatest_context = 0  # 0: the cost model does not ask (`reads_extremes`), or no row

    def same(self, other: Step) -> bool:
        """Do both compute the same?"""
        return (
            self.context_tokens == other.context_tokens
            and self.num_decodes == other.num_decodes
            and self.prefill_tokens == other.prefill_tokens
            and self.padded_rows == other.padded_rows
            and self.num_chunks == other.num_chunks
            and self.past_tokens == other.past_tokens
            and self.prefill_attention == other.prefill_attention
            and self.sampled_rows == other.sampled_rows
            and self.draft_tokens == other.draft_tokens
            and self.least_context == other.least_context
            and self.greatest_context == other.greatest_context
        )

    def later(self, steps: int) -> Step:
        """The step that comes so many quiet steps later."""
        step = Step()
        step.prefill_tokens = self.prefill_tokens
        step.num_chunks = self.num_chunks
        step.prefill_attention = self.prefill_attention
        step.past_tokens = self.past_tokens
        step.num_decodes = self.num_decodes
        step.padded_rows = self.padded_rows
        step.context_tokens = self.context_tokens + steps * (self.num_decodes + self.padded_rows)
        step.sampled_rows = self.sampled_rows
        step.draft_tokens = self.draft_tokens
        if self.greatest_context > 0:
            step.least_context = self.least_context + steps
            step.greatest_context = self.greatest_context + steps
        return step

    def quiet(self, num_decodes: int, padded_rows: int, context_tokens: int) -> None:
        """Make this a step without prompt tokens, whose rows have the context that they have on average."""
        self.prefill_tokens = 0
        self.num_chunks = 0
        self.prefill_attention = 0.0
        self.past_tokens = 0
        self.num_decodes = num_decodes
        self.padded_rows = padded_rows
        self.context_tokens = context_tokens
        self.sampled_rows = num_decodes
        self.draft_tokens = 0
        self.least_context = 0
        self.greatest_context = 0
