"""What each engine's flags are here: keys of a scenario, or flags of its policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from batchwright.server_command.flags import Given
from batchwright.server_command.values import Value, count, number, switch, unswitch, word

Reader = Callable[[Given], Value]
Rules = Mapping[str, tuple[str, Reader]]  # flag -> our name, and how its value is read


@dataclass(frozen=True, kw_only=True)
class EngineRules:
    """One engine.

    title     as it is printed
    model     the flag that names the model, besides a word of its own
    keys      flags that are keys of a scenario
    policy    flags that are flags of the engine's policy
    both      flags of the policy that are limits of the server, too, for the policies beside it
    files     flags that name a file with more flags, which is not read
    defaults  keys of a scenario whose default here is another one than the engine's, and why
    """

    title: str
    model: str
    keys: Rules
    policy: Rules
    both: Mapping[str, str]
    files: tuple[str, ...]
    defaults: Mapping[str, tuple[Value, str]]


_PARALLEL: Final[Rules] = {
    "tensor-parallel-size": ("tp", count),
    "pipeline-parallel-size": ("pp", count),
    "data-parallel-size": ("dp", count),
    "enable-expert-parallel": ("enable_expert_parallel", switch),
}
_WEIGHTS: Final[Rules] = {
    "dtype": ("dtype", word),
    "quantization": ("quantization", word),
    "kv-cache-dtype": ("kv_cache_dtype", word),
}

VLLM: Final = EngineRules(
    title="vLLM",
    model="model",
    keys={
        **_PARALLEL,
        **_WEIGHTS,
        "gpu-memory-utilization": ("gpu_memory_utilization", number),
        "kv-cache-memory-bytes": ("kv_cache_memory_bytes", count),
        "max-num-seqs": ("max_num_seqs", count),
        "max-num-batched-tokens": ("max_num_batched_tokens", count),
        "max-model-len": ("max_model_len", count),
        "block-size": ("block_size", count),
        "num-gpu-blocks-override": ("num_gpu_blocks_override", count),
        "enable-prefix-caching": ("enable_prefix_caching", switch),
    },
    policy={
        "max-num-scheduled-tokens": ("max_num_scheduled_tokens", count),
        "max-num-active-seqs": ("max_num_active_seqs", count),
        "enable-chunked-prefill": ("enable_chunked_prefill", switch),
        "long-prefill-token-threshold": ("long_prefill_token_threshold", count),
        "long-prefill-token-threshold-adaptive": ("long_prefill_token_threshold_adaptive", switch),
        "scheduler-reserve-full-isl": ("scheduler_reserve_full_isl", switch),
        "watermark": ("watermark", number),
        "scheduling-policy": ("policy", word),
        "async-scheduling": ("async_scheduling", switch),
        "max-num-partial-prefills": ("max_num_partial_prefills", count),
        "max-long-partial-prefills": ("max_long_partial_prefills", count),
    },
    both={},
    files=("config",),
    defaults={},
)  # fmt: skip
SGLANG: Final = EngineRules(
    title="SGLang",
    model="model-path",
    keys={
        "tp-size": ("tp", count),
        "pp-size": ("pp", count),
        **_WEIGHTS,
        "context-length": ("max_model_len", count),
        "page-size": ("block_size", count),
        "disable-radix-cache": ("enable_prefix_caching", unswitch),
    },
    policy={
        "max-running-requests": ("max_running_requests", count),
        "max-prefill-tokens": ("max_prefill_tokens", count),
        "chunked-prefill-size": ("chunked_prefill_size", count),
        "prefill-max-requests": ("prefill_max_requests", count),
        "enable-mixed-chunk": ("enable_mixed_chunk", switch),
        "schedule-policy": ("schedule_policy", word),
        "schedule-conservativeness": ("schedule_conservativeness", number),
        "enable-priority-scheduling": ("enable_priority_scheduling", switch),
        "schedule-low-priority-values-first": ("schedule_low_priority_values_first", switch),
        "random-seed": ("random_seed", count),
        "disable-overlap-schedule": ("disable_overlap_schedule", switch),
        "enable-prefill-delayer": ("enable_prefill_delayer", switch),
        "prefill-delayer-queue-min-ratio": ("prefill_delayer_queue_min_ratio", number),
        "prefill-delayer-max-delay-ms": ("prefill_delayer_max_delay_ms", number),
    },
    both={"max-running-requests": "max_num_seqs"},
    files=("config",),
    defaults={"block_size": (1, "SGLang's page_size")},
)  # fmt: skip
TGI: Final = EngineRules(
    title="TGI",
    model="model-id",
    keys={
        "num-shard": ("tp", count),
        "dtype": ("dtype", word),
        "quantize": ("quantization", word),
        "kv-cache-dtype": ("kv_cache_dtype", word),
        "max-total-tokens": ("max_model_len", count),
    },
    policy={
        "max-concurrent-requests": ("max_concurrent_requests", count),
        "waiting-served-ratio": ("waiting_served_ratio", number),
        "max-waiting-tokens": ("max_waiting_tokens", count),
        "max-batch-prefill-tokens": ("max_batch_prefill_tokens", count),
        "max-batch-total-tokens": ("max_batch_total_tokens", count),
        "max-batch-size": ("max_batch_size", count),
        "prefill-chunking": ("prefill_chunking", switch),
    },
    both={},
    files=(),
    defaults={},
)
TENSORRT_LLM: Final = EngineRules(
    title="TensorRT-LLM",
    model="model",
    keys={
        "tensor-parallel-size": ("tp", count),
        "pipeline-parallel-size": ("pp", count),
        "max-seq-len": ("max_model_len", count),
        "kv-cache-dtype": ("kv_cache_dtype", word),
    },
    policy={
        "max-batch-size": ("max_batch_size", count),
        "max-num-tokens": ("max_num_tokens", count),
        "enable-chunked-prefill": ("enable_chunked_context", switch),
    },
    both={"max-batch-size": "max_num_seqs", "max-num-tokens": "max_num_batched_tokens"},
    files=("config",),
    defaults={"block_size": (32, "TensorRT-LLM's tokens_per_block")},
)
RULES: Final = {"vllm": VLLM, "sglang": SGLANG, "tgi": TGI, "tensorrt_llm": TENSORRT_LLM}
