"""What each engine's flags are here: keys of a scenario, flags of its policy, or not modelled."""

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
    apart     what other flags do, and why it is not modelled: reason -> flags
    files     flags that name a file with more flags, which is not read
    defaults  keys of a scenario whose default here is another one than the engine's, and why
    """

    title: str
    model: str
    keys: Rules
    policy: Rules
    both: Mapping[str, str]
    apart: Mapping[str, tuple[str, ...]]
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
    apart={
        "speculation needs its acceptance; write --policies 'vllm(num_speculative_tokens=..., acceptance=...)'": (
            "speculative-config", "spec-method", "spec-model", "spec-tokens", "speculative-model",
            "num-speculative-tokens",
        ),
        "LoRA": ("enable-lora", "lora-modules", "max-loras", "max-lora-rank", "max-cpu-loras", "fully-sharded-loras"),
        "KV that goes to other servers or tiers": (
            "kv-transfer-config", "kv-offloading-size", "kv-offloading-backend", "ec-transfer-config",
            "swap-space",
        ),
        "weights that are not on the GPU": (
            "cpu-offload-gb", "offload-backend", "offload-group-size", "offload-num-in-group",
            "offload-prefetch-step", "cpu-offload-params", "offload-params",
        ),
        "time of a step without CUDA graphs or compilation": (
            "enforce-eager", "compilation-config", "cudagraph-capture-sizes", "max-cudagraph-capture-size",
            "max-seq-len-to-capture", "cuda-graph-sizes", "optimization-level",
        ),
        "time of a step by kernel": (
            "attention-backend", "attention-config", "moe-backend", "linear-backend", "all2all-backend",
            "kernel-config", "disable-custom-all-reduce", "disable-cascade-attn", "enable-flashinfer-autotune",
            "mamba-backend", "dcp-comm-backend",
        ),
        "context parallelism": ("decode-context-parallel-size", "prefill-context-parallel-size"),
        "two batches overlapped": ("enable-dbo", "ubatch-size", "dbo-decode-token-threshold", "dbo-prefill-token-threshold"),
        "placement of experts": ("enable-eplb", "eplb-config", "expert-placement-strategy", "enable-elastic-ep"),
        "the front end refuses requests": ("max-num-queued-reqs", "max-num-queued-tokens"),
        "steps that wait for other ranks": ("prefill-schedule-interval", "dp-sync-interval"),
        "several steps at once": ("num-scheduler-steps", "num-lookahead-slots"),
        "V0 waits before it admits": ("scheduler-delay-factor",),
        "another scheduler": ("scheduler-cls",),
        "kinds of KV cache": (
            "disable-sliding-window", "disable-hybrid-kv-cache-manager", "mamba-cache-dtype", "mamba-block-size",
            "mamba-cache-mode", "kv-sharing-fast-prefill", "kv-cache-dtype-skip-layers", "swa-bounded-replay",
        ),
        "images and other input": ("limit-mm-per-prompt", "mm-encoder-tp-mode", "skip-mm-profiling", "disable-chunked-mm-input"),
        "another shape of the model": ("hf-overrides", "rope-scaling", "model-class-overrides", "quantization-config"),
        "pooling models": ("runner", "convert", "task", "pooler-config"),
        "doubles the default limits; write --max-num-seqs and --max-num-batched-tokens": ("performance-mode",),
    },
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
    apart={
        "a share of the memory for weights and KV; write --num-gpu-blocks-override, from the server's log": (
            "mem-fraction-static",
        ),
        "replicas; write --policies 'replicas(n=2, policy=sglang)'": ("dp-size",),
        "speculation": ("speculative-algorithm", "speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens", "speculative-draft-model-path"),
        "experts over ranks": ("ep-size", "moe-a2a-backend", "enable-eplb", "ep-num-redundant-experts", "moe-dp-size"),
        "attention by data parallelism": ("enable-dp-attention", "attn-dp-size", "load-balance-method"),
        "context parallelism": ("dcp-size", "attn-cp-size"),
        "disaggregation": ("disaggregation-mode", "disaggregation-transfer-backend", "num-reserved-decode-tokens"),
        "KV in host memory": ("enable-hierarchical-cache", "hicache-ratio", "hicache-size"),
        "weights that are not on the GPU": ("cpu-offload-gb", "offload-mode"),
        "LoRA": ("enable-lora", "lora-paths", "max-loras-per-batch"),
        "steps between looks at the queue": (
            "num-continuous-decode-steps", "scheduler-recv-interval", "prefill-decode-interval",
            "prefill-decode-interval-min-bs", "min-free-slots-delay",
        ),
        "whose prefix is lost first": ("radix-eviction-policy",),
        "preemption by priority": ("priority-scheduling-preemption-threshold", "retraction-policy"),
        "chunks that change their size": ("enable-dynamic-chunking",),
        "kinds of KV cache": ("swa-full-tokens-ratio", "disable-hybrid-swa-memory", "mamba-full-memory-ratio", "max-mamba-cache-size"),
        "the front end refuses requests": ("max-queued-requests",),
        "two batches overlapped": ("enable-two-batch-overlap", "enable-single-batch-overlap"),
        "time of a step without CUDA graphs or compilation": (
            "disable-cuda-graph", "cuda-graph-max-bs", "cuda-graph-bs", "cuda-graph-max-bs-decode", "enable-torch-compile",
            "torch-compile-max-bs", "disable-cuda-graph-padding",
        ),
        "time of a step by kernel": ("attention-backend", "decode-attention-backend", "prefill-attention-backend", "moe-runner-backend", "fp8-gemm-backend", "disable-custom-all-reduce"),
        "micro-batches": ("pp-max-micro-batch-size", "pp-async-batch-depth"),
    },
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
    apart={
        "a limit of prompts alone": ("max-input-tokens", "max-input-length"),
        "a share of the memory; write --gpu-memory-utilization": ("cuda-memory-fraction",),
        "speculation": ("speculate",),
        "LoRA": ("lora-adapters",),
        "time of a step without CUDA graphs": ("cuda-graphs", "disable-custom-kernels"),
        "several GPUs that are not told": ("sharded",),
        "another shape of the model": ("rope-scaling", "rope-factor"),
    },
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
    apart={
        "a share of the memory that weights leave; write --num-gpu-blocks-override, from the server's log": (
            "free-gpu-memory-fraction",
        ),
        "beams": ("max-beam-width",),
        "context parallelism": ("context-parallel-size",),
        "experts over ranks": ("moe-expert-parallel-size", "moe-cluster-parallel-size"),
        "disaggregation": ("server-role", "disagg-cluster-uri", "metadata-server-config-file"),
    },
    files=("config",),
    defaults={"block_size": (32, "TensorRT-LLM's tokens_per_block")},
)
RULES: Final = {"vllm": VLLM, "sglang": SGLANG, "tgi": TGI, "tensorrt_llm": TENSORRT_LLM}
