"""The work of one step (one forward pass), as cost models see it.

A quiet step repeats the one before, except that every row reads one token more:

    context_tokens(j) = context_tokens + j * (num_decodes + padded_rows)

so a cost model can price `k` quiet steps at once.
"""

from __future__ import annotations


class Step:
    """What one step computes.  Counts of rows and tokens, summed over the batch.

    The simulator keeps one `Step` and writes it anew before every step: a cost
    model reads it at once and never keeps it.
    """

    __slots__ = (
        "context_tokens", "num_chunks", "num_decodes", "padded_rows", "past_tokens",
        "prefill_attention", "prefill_tokens", "sampled_rows",
    )  # fmt: skip

    def __init__(self) -> None:
        self.prefill_tokens = 0  # prompt tokens computed, padding included
        self.num_chunks = 0  # requests with prompt tokens in this step
        self.prefill_attention = 0.0  # sum over chunks of tokens * (past + tokens / 2)
        self.past_tokens = 0  # KV tokens that the chunks start from, and read
        self.num_decodes = 0
        self.padded_rows = 0  # rows that have ended and are still computed (padded static)
        self.context_tokens = 0  # KV tokens that decodes and padded rows read
        self.sampled_rows = 0  # rows that yield a token: decodes and last chunks

    def quiet(self, num_decodes: int, padded_rows: int, context_tokens: int) -> None:
        """Make this a step without prompt tokens."""
        self.prefill_tokens = 0
        self.num_chunks = 0
        self.prefill_attention = 0.0
        self.past_tokens = 0
        self.num_decodes = num_decodes
        self.padded_rows = padded_rows
        self.context_tokens = context_tokens
        self.sampled_rows = num_decodes
