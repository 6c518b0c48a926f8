"""The flags of `batchwright kv`, which are vLLM's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from batchwright.errors import InputError, LimitError
from batchwright.server_command.values import whole_number

AUTO: Final = -1  # max_model_len: the longest that fits
DEFAULT_LENGTHS: Final = (1000, 4000, 16000)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One server.  None: vLLM's default.

    max_model_len          AUTO (-1): the longest that the blocks hold
    lengths                tokens of requests to say the concurrency of; None: 1k, 4k, 16k
    use                    `server` or `llm` (the LLM class), which have other default limits
    """

    gpu: str
    model: str
    engine: str | None = None
    dtype: str = "auto"
    quantization: str | None = None
    kv_cache_dtype: str = "auto"
    tp: int = 1
    pp: int = 1
    dp: int = 1
    enable_expert_parallel: bool = False
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    block_size: int = 16
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enable_chunked_prefill: bool | None = None
    enforce_eager: bool = False
    use: str = "server"
    lengths: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.max_model_len is not None and self.max_model_len < 1 and self.max_model_len != AUTO:
            raise LimitError(f"max_model_len is {self.max_model_len}, but must be at least 1, or -1 for auto")
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise LimitError(f"{name} is {value}, but must be at least 1")
        override = self.num_gpu_blocks_override
        if override is not None and override < 2:
            raise LimitError(f"num_gpu_blocks_override is {override}, but must be at least 2")
        for length in self.lengths or ():
            if length < 1:
                raise LimitError(f"a length is {length} tokens, but must be at least 1")


def number(text: str, flag: str) -> int:
    """The whole number of a text such as 8192, 8k (8000) or 8K (8192), as vLLM reads its flags."""
    found = whole_number(text.strip())
    if found is None or found < 0:
        raise InputError(
            f"{flag} is {text!r}, but must be a whole number such as 8192, 8k (8000) or 8K (8192)"
        )
    return found


def numbers(text: str, flag: str) -> tuple[int, ...]:
    """The whole numbers of a comma-separated list, in order, each once."""
    return tuple(sorted({number(part, flag) for part in text.split(",")}))
