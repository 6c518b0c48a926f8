"""The keys of a scenario.  One field here is one key in YAML, one flag and one line of the schema.

This module imports no NumPy, so that the command can list its flags at once.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

WORKLOAD: Final = "Workload"
SERVER: Final = "Server (a model on a GPU, or a cost)"
LIMITS: Final = "Limits (as vLLM names them)"
MEASUREMENT: Final = "Measurement"


def _key(description: str, panel: str, *flags: str) -> Meta:
    return Meta(description=description, extra={"panel": panel, "flags": flags})


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is run and how.  None: not given, so that a default applies, which is printed."""

    workload: Annotated[str, _key("trace file, or a load such as chat or poisson(rate=4, n=1000)", WORKLOAD)]
    policies: Annotated[
        str | list[str] | dict[str, str] | None,
        _key("such as 'static(batch_size=32),dynamic(window=0.25),vllm@0.19'", WORKLOAD),
    ] = None
    policy_file: Annotated[
        list[str], _key("Python file that defines `policy`; may be given more than once", WORKLOAD)
    ] = []
    batch_size: Annotated[
        int | str | None, _key("of a second static beside the default one: a number, or auto", WORKLOAD)
    ] = None
    columns: Annotated[
        str | dict[str, str] | None,
        _key("names of a file's columns: arrival=ts,prompt=in,output=out", WORKLOAD),
    ] = None
    time_unit: Annotated[str | None, _key("of a file's arrivals: s, ms, us or ns", WORKLOAD)] = None
    between: Annotated[
        str | None, _key("only arrivals in this part of the load, as 10m:20m", WORKLOAD)
    ] = None
    sample: Annotated[float | None, _key("this share of the requests, drawn by the seed", WORKLOAD)] = None
    tile: Annotated[int | None, _key("the load so many times, one after the other", WORKLOAD)] = None
    time_scale: Annotated[float | None, _key("gaps between arrivals times this", WORKLOAD)] = None
    prompt_scale: Annotated[float | None, _key("prompt tokens times this", WORKLOAD)] = None
    output_scale: Annotated[float | None, _key("output tokens times this", WORKLOAD)] = None
    rate: Annotated[
        float | None, _key("mean requests/s; all at once become Poisson arrivals", WORKLOAD)
    ] = None
    requests: Annotated[int | None, _key("use the first N requests", WORKLOAD)] = None
    max_tokens: Annotated[
        int | str | None,
        _key("limit that clients send: a number, or exact (an oracle); default: greatest output", WORKLOAD),
    ] = None
    gpu: Annotated[str | None, _key("default: H100-SXM", SERVER)] = None
    model: Annotated[
        str | None, _key("name, or path of a config.json; default: llama-3.1-8b", SERVER)
    ] = None
    tp: Annotated[
        int | None, _key("GPUs that share the model", SERVER, "--tp", "--tensor-parallel-size")
    ] = None
    pp: Annotated[
        int | None, _key("stages that the layers are cut into", SERVER, "--pp", "--pipeline-parallel-size")
    ] = None
    dp: Annotated[
        int | None,
        _key("ranks with requests of their own, in lock step", SERVER, "--dp", "--data-parallel-size"),
    ] = None
    enable_expert_parallel: Annotated[bool, _key("whole experts, spread over all GPUs", SERVER)] = False
    dtype: Annotated[
        str | None, _key("of weights and activations: auto, bfloat16, float16 or float32", SERVER)
    ] = None
    quantization: Annotated[
        str | None, _key("of weights, as vLLM names it: fp8, awq, gptq, w8a8, mxfp4...", SERVER)
    ] = None
    kv_cache_dtype: Annotated[str | None, _key("auto, bfloat16, fp8, fp8_e4m3 or fp8_e5m2", SERVER)] = None
    gpu_memory_utilization: Annotated[
        float | None, _key("default: 0.92; 0.9 before vllm@0.21", SERVER)
    ] = None
    like: Annotated[
        str | None,
        _key("command of a server, whose flags and policy to take: 'vllm serve MODEL ...'", SERVER),
    ] = None
    cost: Annotated[
        str | None, _key("instead of a GPU: 'constant(0.025)', 'linear(base=0.005, prefill=2e-5)'", SERVER)
    ] = None
    profile: Annotated[str | None, _key("instead of both: a calibrated server that fit -o wrote", SERVER)] = (
        None
    )
    max_num_seqs: Annotated[int | None, _key("requests that run at once", LIMITS)] = None
    max_num_batched_tokens: Annotated[int | None, _key("tokens of one step", LIMITS)] = None
    max_model_len: Annotated[int | None, _key("prompt + output of one request", LIMITS)] = None
    block_size: Annotated[int, _key("tokens of one KV block", LIMITS)] = 16
    num_gpu_blocks_override: Annotated[
        int | None, _key("KV blocks, vLLM's null block included", LIMITS)
    ] = None
    enable_prefix_caching: Annotated[bool, _key("keep blocks for prompts that start alike", LIMITS)] = True
    prefix_cache_blocks: Annotated[
        int | None, _key("free KV blocks that keep their prefix; default: all, as in vLLM", LIMITS)
    ] = None
    prefix_eviction: Annotated[
        str | None, _key("whose prefix is lost first: lru (default, as in vLLM) or lfu", LIMITS)
    ] = None
    over_length: Annotated[
        str, _key("a prompt of max_model_len or more: reject (and count), or fail", LIMITS)
    ] = "reject"
    seed: Annotated[int | None, _key("of a load that is made, of samples and of repeats", MEASUREMENT)] = None
    repeat: Annotated[
        int, _key("so many loads: other seeds, or bootstrap samples of a trace", MEASUREMENT)
    ] = 1
    slo: Annotated[str | dict[str, str] | None, _key("such as ttft=500ms,tpot=50ms", MEASUREMENT)] = None


def is_given(scenario: Scenario, key: str) -> bool:
    """Is the key, which is None or off by default, given?"""
    value = getattr(scenario, key)
    return value is not None and value is not False
