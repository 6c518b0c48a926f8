"""What the flags come to: the limits of a step, the memory of a GPU, its KV blocks, and whether it starts.

vLLM starts if one sequence of `max_model_len` fits the blocks that requests can use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Final

from batchwright.errors import LimitError
from batchwright.hardware import (
    BatchLimits,
    Engine,
    Gpu,
    Memory,
    Model,
    Serving,
    batch_limits,
    find_engine,
    find_gpu,
    find_model,
    kv_bytes,
    memory,
    served,
)
from batchwright.hardware.batch_limits import UNCHUNKED
from batchwright.hardware.blocks import why_not
from batchwright.hardware.split import Split
from batchwright.kv_report.asked import AUTO, DEFAULT_LENGTHS, Asked

WINDOWS: Final = (0, 10)  # since then vLLM frees what is outside of a layer's window


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One server, with all defaults filled in.

    num_gpu_blocks   as vLLM prints them, a null block included from 0.8 on
    blocks           those that requests can use
    max_model_len    as given, the model's own, or the longest that fits
    """

    asked: Asked
    engine: Engine
    gpu: Gpu
    model: Model
    split: Split
    limits: BatchLimits
    max_model_len: int
    memory: Memory
    num_gpu_blocks: int

    @property
    def blocks(self) -> int:
        return max(self.num_gpu_blocks - self.engine.is_v1, 0)

    @property
    def tokens(self) -> int:
        """That the KV cache of one data-parallel rank holds."""
        return self.blocks * self.memory.block_size

    @property
    def starts(self) -> bool:
        return self.concurrency(self.max_model_len) >= 1

    @property
    def num_gpus(self) -> int:
        return self.split.tp * self.split.pp * self.split.dp

    @property
    def lengths(self) -> tuple[int, ...]:
        """To say the concurrency of: those asked for, else usual ones below max_model_len; and that."""
        asked = self.asked.lengths
        if asked is not None:
            return asked
        return (*(each for each in DEFAULT_LENGTHS if each < self.max_model_len), self.max_model_len)

    def concurrency(self, length: int) -> float:
        """Requests of so many tokens that fit at once, as vLLM prints its maximum concurrency."""
        size = self.memory.block_size
        padded = ceil(length / size) * size
        return self.tokens * self.memory.per_token / self._bytes(padded)

    def _bytes(self, tokens: int) -> int:
        """That one request needs; from 0.10 on a layer with a window keeps only that."""
        if self.engine.release < WINDOWS:
            return tokens * self.memory.per_token
        return kv_bytes(self.model, tokens, self.split.tp, self.split.pp)


def plan(asked: Asked) -> Plan:
    """Raises InputError on an unknown name, LimitError if the model cannot be split or does not fit."""
    engine, gpu = find_engine(asked.engine), find_gpu(asked.gpu)
    precision = asked.dtype, asked.quantization, asked.kv_cache_dtype
    model = served(find_model(asked.model), gpu, *precision)
    split = Split(asked.tp, asked.pp, asked.dp, asked.enable_expert_parallel)
    longest = _longest(asked, model, engine)
    limits = _limits(asked, engine, gpu, longest)
    serving = _serving(asked, engine, split, limits)
    found = memory(gpu, model, serving)
    override = asked.num_gpu_blocks_override
    made = Plan(
        asked=asked,
        engine=engine,
        gpu=gpu,
        model=model,
        split=split,
        limits=limits,
        max_model_len=longest,
        memory=found,
        num_gpu_blocks=found.num_gpu_blocks if override is None else override,
    )
    if made.blocks < 1:
        raise LimitError(why_not(gpu, model, serving, found))
    return replace(made, max_model_len=min(longest, made.tokens)) if asked.max_model_len == AUTO else made


def _longest(asked: Asked, model: Model, engine: Engine) -> int:
    given, most = asked.max_model_len, model.max_position_embeddings
    if given == AUTO and not engine.is_v1:
        raise LimitError(f"max_model_len is -1, but {engine} does not know that; give a number")
    if given is not None and given > most:
        raise LimitError(
            f"max_model_len {given} is over max_position_embeddings {most} of the model; lower it"
        )
    return most if given is None or given == AUTO else given


def _limits(asked: Asked, engine: Engine, gpu: Gpu, longest: int) -> BatchLimits:
    usual = batch_limits(engine, gpu, longest, asked.use, asked.tp * asked.pp)
    if asked.enable_chunked_prefill is not None and asked.enable_chunked_prefill != usual.is_chunked:
        usual = _other_chunking(usual, engine, gpu, longest)
    tokens = asked.max_num_batched_tokens or usual.max_num_batched_tokens
    seqs = asked.max_num_seqs or min(usual.max_num_seqs, tokens)
    if seqs > tokens:
        raise LimitError(
            f"max_num_seqs {seqs} is over max_num_batched_tokens {tokens}; lower the one or raise the other"
        )
    if not usual.is_chunked and tokens < longest:
        raise LimitError(
            f"max_num_batched_tokens {tokens} is below max_model_len {longest}, and prompts run whole; "
            "raise it, lower max_model_len or enable chunked prefill"
        )
    return BatchLimits(seqs, tokens, usual.is_chunked)


def _other_chunking(usual: BatchLimits, engine: Engine, gpu: Gpu, longest: int) -> BatchLimits:
    """Chunks that V0 would not use for this max_model_len, or whole prompts."""
    if not usual.is_chunked:
        return batch_limits(engine, gpu, UNCHUNKED + 1)
    return BatchLimits(usual.max_num_seqs, max(longest, usual.max_num_batched_tokens), is_chunked=False)


def _serving(asked: Asked, engine: Engine, split: Split, limits: BatchLimits) -> Serving:
    return Serving(
        engine=engine,
        split=split,
        gpu_memory_utilization=asked.gpu_memory_utilization,
        block_size=asked.block_size,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_num_seqs=limits.max_num_seqs,
        is_chunked=limits.is_chunked,
        enforce_eager=asked.enforce_eager,
        kv_cache_memory_bytes=asked.kv_cache_memory_bytes,
    )
