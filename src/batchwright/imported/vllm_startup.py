"""What vLLM says of itself when it starts: version, flags, memory, KV blocks.

    non-default args: {'model': 'meta-llama/Llama-3.1-8B', 'max_num_seqs': 128}
    Initializing a V1 LLM engine (v0.19.0) with config: model='meta-llama/Llama-3.1-8B', ...
    Available KV cache memory: 5.05 GiB
    GPU KV cache size: 41,408 tokens
    Maximum concurrency for 32,768 tokens per request: 1.26x

Where several workers speak, the least memory counts, as it does for vLLM.  Blocks are those of one
engine, the null block included; V1 tells tokens, which are blocks times their size.

Source: vLLM 0.4 to 0.32: `worker/worker.py`, `v1/worker/gpu_worker.py`, `v1/core/kv_cache_utils.py`,
`executor/executor_base.py`, `v1/engine/core.py`, `config/scheduler.py`, `entrypoints/utils.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from batchwright.imported.result import About

GIB: Final = 1 << 30
BLOCK_SIZE: Final = 16  # vLLM's on a GPU, where no flag says otherwise


class Fact(NamedTuple):
    """`pattern` has one group, the value.  `least`: of several, the least counts, not the last."""

    key: str
    pattern: re.Pattern[str]
    read: Callable[[str], str | int | float | bool]
    least: bool = False


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _truth(text: str) -> bool:
    return text == "True"


def _enabled(text: str) -> bool:
    return text == "enabled"


def _dtype(text: str) -> str:
    return text.removeprefix("torch.")


def _fact(
    key: str, pattern: str, read: Callable[[str], str | int | float | bool] = float, least: bool = False
) -> Fact:
    return Fact(key, re.compile(pattern), read, least)


def _flag(key: str, read: Callable[[str], str | int | float | bool], name: str = "") -> Fact:
    """A flag as `'name': value` or `name=value`."""
    shape = {_count: r"(\d+)", float: r"([\d.]+)", _truth: "(True|False)"}.get(read, r"'?([^',\s)}]+)")
    return _fact(key, rf"(?<![\w.]){name or key}'?(?:=|: ){shape}(?![\w.])", read)


STARTS: Final = ("LLM engine (v", "API server version", "non-default args", "args: Namespace(", "  version ")
ABOUT: Final = (
    _fact("engine_version", r"LLM engine \(v([\w.+-]+)\)", str),
    _fact("engine_version", r"API server version v?([\w.+-]+)", str),
    _fact("engine_version", r"  version (\d[\w.+-]+)$", str),
    _flag("model", str),
    _flag("dtype", _dtype),
    _flag("quantization", str),
    _fact("speculative_config", r"speculative_config'?(?:=|: )(\S.*?)(?:, tokenizer|$)", str),
    _flag("kv_cache_dtype", str),
    _flag("max_model_len", _count),
    _flag("max_model_len", _count, "max_seq_len"),
    _flag("max_num_seqs", _count),
    _flag("max_num_batched_tokens", _count),
    _flag("block_size", _count),
    _flag("gpu_memory_utilization", float),
    _flag("tp", _count, "tensor_parallel_size"),
    _flag("pp", _count, "pipeline_parallel_size"),
    _flag("dp", _count, "data_parallel_size"),
    _flag("enable_expert_parallel", _truth),
    _flag("enforce_eager", _truth),
    _flag("enable_prefix_caching", _truth),
    _flag("enable_chunked_prefill", _truth),
    _flag("async_scheduling", _truth),
)
LINES: Final = {  # words that such a line has, and the facts in it
    "Chunked prefill is enabled": (_flag("max_num_batched_tokens", _count),),
    "Using max model len": (_fact("max_model_len", r"Using max model len (\d+)", _count),),
    "cheduling is ": (
        _fact("async_scheduling", r"Asynchronous scheduling is (enabled|disabled)", _enabled),
    ),
    "num_gpu_blocks_override": (  # of 0 blocks only while CUDA graphs are profiled
        _fact("num_gpu_blocks", r"num_gpu_blocks=[1-9]\d* with num_gpu_blocks_override=(\d+)", _count),
    ),
    " blocks: ": (_fact("num_gpu_blocks", r"# (?:GPU|cuda|CPU) blocks: (\d+)", _count, least=True),),
    "KV cache size: ": (_fact("kv_tokens", r"KV cache size: ([\d,]+) tokens", _count, least=True),),
    "Maximum concurrency": (
        _fact("max_model_len", r"Maximum concurrency for ([\d,]+) tokens", _count),
        _fact("max_concurrency", r"tokens per request: ([\d.]+)x", least=True),
    ),
    "Available KV cache memory": (_fact("kv_gib", r"memory: (-?[\d.]+) ?GiB", least=True),),
    "for KV cache on node": (_fact("kv_gib", r"\(([\d.]+)/[\d.]+\) GiB for KV cache", least=True),),
    "total_gpu_memory": (
        _fact("gpu_gib", r"total_gpu_memory \(([\d.]+) ?Gi?B\)", least=True),
        _fact("gpu_memory_utilization", r"gpu_memory_utilization \(([\d.]+)\)"),
    ),
    "odel weights take": (
        _fact("weights_gib", r"odel weights take ([\d.]+) ?Gi?B"),
        _fact("activation_peak_gib", r"activation peak memory takes ([\d.]+) ?Gi?B"),
        _fact("kv_gib", r"reserved for KV Cache is (-?[\d.]+) ?Gi?B", least=True),
    ),
    "weights took": (_fact("weights_gib", r"weights took ([\d.]+) ?Gi?B"),),
    "Model loading took": (_fact("weights_gib", r"Model loading took ([\d.]+) ?Gi?B"),),
    "torch peak memory increase": (
        _fact("activation_peak_gib", r"torch peak memory increase: ([\d.]+) ?GiB"),
    ),
    "Graph capturing finished": (_fact("cuda_graph_gib", r"took ([\d.]+) ?GiB"),),
    "Estimated CUDA graph memory": (_fact("cuda_graph_estimate_gib", r"memory: ([\d.]+) ?GiB"),),
}  # fmt: skip
MEMORY: Final = (
    "gpu_gib",
    "weights_gib",
    "activation_peak_gib",
    "cuda_graph_gib",
    "cuda_graph_estimate_gib",
    "kv_gib",
)
_TOTALS: Final = ("kv_tokens", "max_concurrency")
WORDS: Final = (*STARTS, *LINES)
_WORD: Final = re.compile("|".join(map(re.escape, WORDS)))
_DEFAULTS: Final = ("None", "auto")


class StartUp:
    """What the start-up lines said so far."""

    def __init__(self) -> None:
        self.found: About = {}

    def take(self, text: str) -> None:
        """Learn what one line says."""
        word = _WORD.search(text)
        if word is None:
            return
        if word[0] in LINES:
            for line, facts in LINES.items():
                if line in text:
                    self._learn(facts, text)
            return
        if "kv_tokens" in self.found and word[0] != STARTS[0]:
            self.found = {}  # it was started again
        self._learn(ABOUT, text)

    def _learn(self, facts: tuple[Fact, ...], text: str) -> None:
        for fact in facts:
            match = fact.pattern.search(text)
            if match is None or match[1] in _DEFAULTS:
                continue
            try:
                value = fact.read(match[1])
            except ValueError:  # of text that only looks like such a line
                continue
            before = self.found.get(fact.key)
            if fact.least and before is not None:
                value = min(value, before)
            self.found[fact.key] = value

    def about(self) -> About:
        """By vLLM's names, without memory."""
        known = {key: value for key, value in self.found.items() if key not in (*MEMORY, *_TOTALS)}
        blocks = self._blocks()
        return {"engine": "vllm", **known, **({} if blocks is None else {"num_gpu_blocks": blocks})}

    def _blocks(self) -> int | None:
        """KV blocks of one engine, the null block included."""
        if "num_gpu_blocks" in self.found:
            return int(self.found["num_gpu_blocks"])
        tokens, size = self.found.get("kv_tokens"), self.found.get("block_size", BLOCK_SIZE)
        return None if tokens is None else int(tokens) // int(size)

    def totals(self) -> dict[str, float]:
        """Memory in GiB, as the log has it, and what fits the KV cache."""
        return {key: float(value) for key, value in self.found.items() if key in (*MEMORY, *_TOTALS)}

    @property
    def kv_tokens(self) -> float | None:
        """That the KV cache of one engine holds; None if it does not tell."""
        found = self.found.get("kv_tokens")
        return None if found is None else float(found)

    @property
    def speculates(self) -> bool:
        """Does it verify drafts?"""
        return "speculative_config" in self.found

    @property
    def assumes_block_size(self) -> bool:
        """Do the blocks rest on a block size that the log does not tell?"""
        keys = self.found.keys()
        return "kv_tokens" in keys and not {"num_gpu_blocks", "block_size"} & keys
