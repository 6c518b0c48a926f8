"""The server of an edge case: a model on GPUs, and vLLM's limits for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from batchwright.cost import Hosted, Roofline
from batchwright.limits import Limits
from batchwright.settled import check_model_len, kv_blocks, longest_model_len, usual_batch

GPU: Final = "H100-SXM"
MODEL: Final = "llama-3.1-8b"


@dataclass(frozen=True)
class Server:
    """`model` on `tp` GPUs, on an uncalibrated roofline with vLLM's measured host time.

    Raises InputError on an unknown name, LimitError if the model cannot be split or does not fit.
    """

    gpu: str = GPU
    model: str = MODEL
    tp: int = 1

    def __str__(self) -> str:
        return f"{self.model} on {self.tp} x {self.gpu}"

    @property
    def device(self) -> Roofline:
        return Roofline(self.gpu, self.model, self.tp)

    @property
    def cost(self) -> Hosted:
        return Hosted(self.device)

    @property
    def usual(self) -> tuple[int, int]:
        """vLLM's `max_num_seqs` and `max_num_batched_tokens` on this GPU."""
        return usual_batch(self.device)

    def limits(self, longest: int | None, *, seats: int | None = None, budget: int | None = None) -> Limits:
        """The limits with `max_model_len` `longest`, and with the KV blocks that they leave.

        `seats`, `budget`: `max_num_seqs` and `max_num_batched_tokens`; None: vLLM's on this GPU.
        """
        usual_seats, usual_budget = self.usual
        tokens = max(budget or usual_budget, seats or 1)
        cost = self.cost
        found = Limits(max_num_seqs=min(seats or usual_seats, tokens), max_num_batched_tokens=tokens)
        found = replace(found, num_kv_blocks=kv_blocks(found, cost))
        if longest is not None:
            check_model_len(longest, longest_model_len(cost))
        return replace(found, max_model_len=longest)
