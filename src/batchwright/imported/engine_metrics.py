"""What vLLM and SGLang call the numbers of their /metrics.

Each entry names the metric in our words, and its names there, the newest first.

Source: vLLM 0.4 to 0.32, `v1/metrics/loggers.py`; SGLang 0.4 and 0.5, `metrics_collector.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class EngineMetrics:
    """The metrics of one engine, without `prefix`.

    counters    since the start: preemptions, prompt_tokens, output_tokens, num_completed, ...
    gauges      now: running, waiting, kv_usage
    histograms  of seconds: ttft_s, itl_s, tpot_s, e2e_s, queue_s, inference_s, prefill_s, decode_s; and of
                tokens: prompt_tokens_of_request, output_tokens_of_request, tokens_of_step
    facts       gauges that say how the server was started
    info        gauge whose labels do; `labels`: label to our word
    """

    name: str
    prefix: str
    counters: Names
    gauges: Names
    histograms: Names
    facts: Names
    info: str
    labels: Mapping[str, str]
    conventions: tuple[str, ...]


VLLM = EngineMetrics(
    name="vllm",
    prefix="vllm:",
    counters={
        "preemptions": ("num_preemptions_total",),
        "prompt_tokens": ("prompt_tokens_total",),
        "output_tokens": ("generation_tokens_total",),
        "num_completed": ("request_success_total",),
        "prefix_queries": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        "prefix_hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
    },
    gauges={
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "kv_usage": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    },
    histograms={
        "ttft_s": ("time_to_first_token_seconds",),
        "itl_s": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "tpot_s": ("request_time_per_output_token_seconds",),
        "e2e_s": ("e2e_request_latency_seconds",),
        "queue_s": ("request_queue_time_seconds",),
        "inference_s": ("request_inference_time_seconds",),
        "prefill_s": ("request_prefill_time_seconds",),
        "decode_s": ("request_decode_time_seconds",),
        "prompt_tokens_of_request": ("request_prompt_tokens",),
        "output_tokens_of_request": ("request_generation_tokens",),
        "tokens_of_step": ("iteration_tokens_total",),
    },
    facts={},
    info="cache_config_info",
    labels={
        "num_gpu_blocks": "num_gpu_blocks",
        "block_size": "block_size",
        "gpu_memory_utilization": "gpu_memory_utilization",
        "enable_prefix_caching": "enable_prefix_caching",
        "cache_dtype": "kv_cache_dtype",
        "kv_cache_size_tokens": "kv_tokens",
    },
    conventions=(
        "TTFT and E2E start when the front end has the request, before it is sent to the engine; as ours",
        "ITL: gaps of all requests, each weighted alike; TPOT: (last - first) / (output - 1) of each request",
        "time_per_output_token_seconds of older versions is ITL, whatever its name says",
        "queue ends at the first admission; prefill at the first token, pauses by preemption in decode",
    ),
)
SGLANG = EngineMetrics(
    name="sglang",
    prefix="sglang:",
    counters={
        "preemptions": ("num_retracted_requests_total",),
        "prompt_tokens": ("prompt_tokens_total",),
        "output_tokens": ("generation_tokens_total",),
        "num_completed": ("num_requests_total",),
        "prefix_hits": ("cached_tokens_total",),
    },
    gauges={
        "running": ("num_running_reqs",),
        "waiting": ("num_queue_reqs",),
        "kv_usage": ("token_usage",),
    },
    histograms={
        "ttft_s": ("time_to_first_token_seconds",),
        "itl_s": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
        "tpot_s": ("request_time_per_output_token_seconds",),
        "e2e_s": ("e2e_request_latency_seconds",),
        "queue_s": ("queue_time_seconds",),
    },
    facts={
        "kv_tokens": ("max_total_num_tokens",),
        "block_size": ("page_size",),
        "num_gpu_blocks": ("num_pages",),
        "max_model_len": ("context_len",),
    },
    info="",
    labels={},
    conventions=(
        "TTFT and E2E start when the tokenizer has the request; as ours",
        "ITL: a gap with several tokens is split evenly among them, so stalls look smaller than to a client",
        "time_per_output_token_seconds of older versions is ITL, whatever its name says",
        "preemptions are SGLang's retractions",
    ),
)
ENGINES = (VLLM, SGLANG)
