"""Orca with a stated reservation: what a slot sets aside for its request, prompt and output.

order fcfs · gate free KV cache · KV set aside at admission, to the end · composition decodes and
whole prompts in one step · victim none · leave at once

The buddy allocator gives contiguous space in powers of two.  Source: Kwon et al., SOSP 2023,
section 6.1, "Baseline 2: Orca".  Left out: fragmentation between its pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.batch import Batch
from batchwright.contract import Policy
from batchwright.policies.kv import admit_whole, can_reserve, whole_length


@dataclass(frozen=True, kw_only=True)
class Reserving:
    """A slot reserves the prompt and `max_tokens` of its request, or `max_model_len`.

    whole  `max_model_len`, whatever the request asks for
    buddy  round up to a power of two
    """

    whole: bool = False
    buddy: bool = True

    def begin(self, batch: Batch) -> Policy:
        return self.admit

    def admit(self, b: Batch) -> None:
        """Plan one step."""
        if b.edits > 0:
            return
        while b.num_waiting > 0 and b.num_running < b.max_running:
            first = b.waiting.first()
            tokens = self.tokens(b.limits.longest if self.whole else whole_length(first))
            if not can_reserve(b, tokens):
                return
            admit_whole(b, first, tokens)

    def tokens(self, needed: int) -> int:
        """What the allocator gives for `needed` tokens."""
        return power_of_two(needed) if self.buddy else needed


def power_of_two(tokens: int) -> int:
    """The least power of two of at least `tokens`."""
    return 1 << (tokens - 1).bit_length()
