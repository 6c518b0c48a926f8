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
