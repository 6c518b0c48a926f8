"""How a scenario's model is split over GPUs, and what its limits come to for all of them together.

An engine's flags bound one data-parallel rank, and its token budget one micro-batch.  A simulated
step is a round of all micro-batches of all ranks, so its limits are that many times as great.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from batchwright.limits import Limits
from batchwright.scenario.keys import Scenario

SPLITS: Final = ("tp", "pp", "dp", "enable_expert_parallel")  # keys of a scenario


@dataclass(frozen=True, kw_only=True)
class Split:
    """As `Roofline` splits a model: tensor, pipeline, data and expert parallel."""

    tp: int
    pp: int
    dp: int
    ep: bool

    def __str__(self) -> str:
        """Its sizes, if there is more to say than the number of GPUs."""
        if self.pp == self.dp == 1 and not self.ep:
            return ""
        sizes = (("tp", self.tp), ("pp", self.pp), ("dp", self.dp))
        words = [f"{name} {size}" for name, size in sizes if size > 1]
        return f" ({', '.join([*words, 'expert parallel'] if self.ep else words)})"

    @property
    def num_gpus(self) -> int:
        return self.tp * self.pp * self.dp

    def together(self, flags: Limits) -> Limits:
        """The limits of all ranks and micro-batches, from those of one."""
        blocks = flags.num_kv_blocks
        return replace(
            flags,
            max_num_seqs=flags.max_num_seqs * self.dp,
            max_num_batched_tokens=flags.max_num_batched_tokens * self.dp * self.pp,
            num_kv_blocks=None if blocks is None else blocks * self.dp,
        )

    def notes(self, limits: Limits) -> list[str]:
        """What to say of limits that `together` made."""
        if self.pp == self.dp == 1:
            return []
        parts = [f"{self.dp} data-parallel ranks"] if self.dp > 1 else []
        parts += [f"{self.pp} pipeline stages"] if self.pp > 1 else []
        held = "" if limits.num_kv_blocks is None else f" and {limits.num_kv_blocks} KV blocks"
        return [
            f"a step is a round of {' and '.join(parts)}: together {limits.max_num_batched_tokens} tokens, "
            f"{limits.max_num_seqs} requests{held}"
        ]


def split_of(scenario: Scenario) -> Split:
    """What the scenario says, or 1 of each."""
    return Split(
        tp=1 if scenario.tp is None else scenario.tp,
        pp=1 if scenario.pp is None else scenario.pp,
        dp=1 if scenario.dp is None else scenario.dp,
        ep=scenario.enable_expert_parallel,
    )
