"""What an engine must offer: run one step, and tell the time.  Nothing else.

An engine owns the weights and the KV memory.  It decides nothing: who is in the step, with
which tokens and in which KV blocks, is the batch's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from batchwright.engines.work import Work
from batchwright.errors import LimitError
from batchwright.limits import Limits


class Engine(Protocol):
    """A model that runs the steps of one batch."""

    capacity: Capacity

    def run(self, work: Work) -> list[int]:
        """Run one step; the sampled token ids, one for each of `work.sampled`, in that order.

        What was `released` is free before the step begins; a step without rows does no more than that.
        Raises whatever went wrong: the requests of the step fail then, and the next step may run.
        """

    def now(self) -> float:
        """Seconds on the engine's clock, which never runs backwards."""

    def sleep(self, until: float) -> None:
        """Return when `now()` is at least `until`, or a little earlier."""


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """What an engine was loaded with.  Lengths in tokens.

    block_size       tokens of one KV block; None: any, the engine has slots instead of blocks
    num_kv_blocks    KV blocks with ids 0 to `num_kv_blocks` - 1, beside the scratch block, whose id is
                     `num_kv_blocks`; None: slots of `max_model_len`
    max_num_seqs     sequences that it can hold at once; None: as many as its blocks hold
    max_model_len    prompt + output of one sequence
    shares_prefixes  may two sequences have the same block?
    """

    block_size: int | None
    num_kv_blocks: int | None
    max_num_seqs: int | None
    max_model_len: int
    shares_prefixes: bool

    def settle(self, limits: Limits) -> Limits:
        """`limits` with what the engine leaves no choice in.  Raises LimitError on more than it has."""
        for name in ("num_kv_blocks", "max_num_seqs", "max_model_len"):
            most, asked = getattr(self, name), getattr(limits, name)
            if most is not None and asked is not None and asked > most:
                raise LimitError(f"{name} is {asked}, but the engine was loaded with {most}; lower it")
        if self.block_size is not None and limits.block_size != self.block_size:
            raise LimitError(
                f"block_size is {limits.block_size}, but the engine has blocks of {self.block_size} tokens; "
                f"give {self.block_size}"
            )
        return replace(
            limits,
            num_kv_blocks=limits.num_kv_blocks if limits.num_kv_blocks is not None else self.num_kv_blocks,
            max_model_len=limits.max_model_len if limits.max_model_len is not None else self.max_model_len,
            enable_prefix_caching=limits.enable_prefix_caching and self.shares_prefixes,
        )
