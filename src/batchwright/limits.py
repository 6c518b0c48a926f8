"""The limits of one server, under the names that engines give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.errors import LimitError
from batchwright.ranked import EVICTIONS, LRU
from batchwright.request import LONGEST

LARGEST_BLOCK: Final = 1 << 16  # tokens
UNLIMITED: Final = 1 << 40  # KV blocks of a server whose memory is not modelled


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What bounds a batch.  Lengths in tokens.

    max_num_seqs            requests that run at once
    max_num_batched_tokens  tokens of one step
    max_model_len           prompt + output of one request; None: what the KV cache holds
    block_size              tokens of one KV block
    num_kv_blocks           KV blocks that requests can use (vLLM's `num_gpu_blocks` - 1:
                            its null block is never given out); None: memory is not modelled
    enable_prefix_caching   keep released blocks for requests with the same prefix
    prefix_cache_blocks     free KV blocks that keep what is cached in them; None: all, as in vLLM
    prefix_eviction         whose is lost first: lru (vLLM's) or lfu; see `ranked`

    Raises LimitError on a value that no engine can start with.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    block_size: int = 16
    num_kv_blocks: int | None = None
    enable_prefix_caching: bool = True
    prefix_cache_blocks: int | None = None
    prefix_eviction: str = LRU

    def __post_init__(self) -> None:
        _check_positive("max_num_seqs", self.max_num_seqs)
        _check_positive("max_num_batched_tokens", self.max_num_batched_tokens)
        _check_positive("block_size", self.block_size)
        if self.max_model_len is not None:
            _check_positive("max_model_len", self.max_model_len)
        if self.num_kv_blocks is not None:
            _check_positive("num_kv_blocks", self.num_kv_blocks)
        if not isinstance(self.enable_prefix_caching, bool):
            raise LimitError(
                f"enable_prefix_caching is {self.enable_prefix_caching!r}, but must be True or False"
            )
        _check_cache(self.prefix_cache_blocks, self.prefix_eviction)
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise LimitError(
                f"max_num_seqs {self.max_num_seqs} is over max_num_batched_tokens "
                f"{self.max_num_batched_tokens}, the tokens of one step; "
                "lower max_num_seqs or raise max_num_batched_tokens"
            )
        if self.block_size > LARGEST_BLOCK:
            raise LimitError(f"block_size {self.block_size} is over {LARGEST_BLOCK}; lower it")
        longest = self.max_model_len
        if longest is not None and longest > self.blocks * self.block_size:
            raise LimitError(
                f"max_model_len {longest} cannot fit {self.blocks} KV blocks of {self.block_size} "
                f"({self.blocks * self.block_size} tokens); lower max_model_len or raise num_kv_blocks"
            )

    @property
    def blocks(self) -> int:
        """KV blocks that requests can use."""
        return UNLIMITED if self.num_kv_blocks is None else self.num_kv_blocks

    @property
    def longest(self) -> int:
        """Tokens that one request can have, prompt and output."""
        if self.max_model_len is not None:
            return self.max_model_len
        return LONGEST if self.num_kv_blocks is None else self.num_kv_blocks * self.block_size


def _check_cache(blocks: object, eviction: object) -> None:
    if blocks is not None:
        _check_positive("prefix_cache_blocks", blocks, least=0)
    if eviction not in EVICTIONS:
        raise LimitError(f"prefix_eviction is {eviction!r}; known: {', '.join(EVICTIONS)}")


def _check_positive(name: str, value: object, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise LimitError(f"{name} is {value!r}, but must be a whole number of at least {least}")
    if value > UNLIMITED:
        raise LimitError(f"{name} is {value}, over {UNLIMITED}; lower it")
