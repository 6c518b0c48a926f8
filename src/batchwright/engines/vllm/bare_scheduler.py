"""vLLM's scheduler alone: no model, no engine, tokens that are made up.

One full-attention KV group, no speculative decoding.  vLLM calls `num_gpu_blocks` what a recording
calls `num_blocks`: its first block, the null block, is never given out.
"""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

FLAGS: Final = (
    "watermark", "scheduler_reserve_full_isl", "long_prefill_token_threshold_adaptive", "max_num_active_seqs",
)  # fmt: skip
MODEL: Final = {  # only its lengths matter
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
    "head_dim": 64, "vocab_size": 256000, "max_position_embeddings": 1 << 20, "rms_norm_eps": 1e-6,
    "torch_dtype": "float32", "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip

Row = dict[str, Any]


@cache
def _model_config(max_model_len: int) -> Any:
    from vllm.config import ModelConfig

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(MODEL))
        return ModelConfig(
            model=folder, skip_tokenizer_init=True, dtype="float32", seed=0, max_model_len=max_model_len
        )


def vllm_config(config: Row, scheduler_options: Row | None = None) -> Any:
    """What vLLM would have been started with; `scheduler_options`: of a scheduler of ours."""
    from vllm.config import CacheConfig, DeviceConfig, SchedulerConfig, VllmConfig

    is_asynchronous = config.get("async_scheduling", False)
    scheduler = SchedulerConfig(
        max_num_seqs=config["max_num_seqs"],
        max_num_batched_tokens=config["max_num_batched_tokens"],
        max_model_len=config["max_model_len"],
        is_encoder_decoder=False,
        enable_chunked_prefill=config["enable_chunked_prefill"],
        long_prefill_token_threshold=config["long_prefill_token_threshold"],
        policy=config["policy"],
        async_scheduling=is_asynchronous,
        **{name: config[name] for name in FLAGS if config.get(name) is not None},
    )
    cache = CacheConfig(
        block_size=config["block_size"], enable_prefix_caching=config["enable_prefix_caching"]
    )
    whole = VllmConfig(
        model_config=_model_config(config["max_model_len"]),
        cache_config=cache,
        scheduler_config=scheduler,
        device_config=DeviceConfig("cpu"),
        additional_config={"batchwright": scheduler_options or {}},
    )
    scheduler.async_scheduling = is_asynchronous  # which vLLM turns off on a CPU
    cache.num_gpu_blocks = config["num_blocks"]
    return whole


def bare_scheduler(config: Row, kind: Any = None, options: Row | None = None) -> tuple[Any, Any]:
    """A scheduler that lists whom it preempts, as `preempted`; and what hashes blocks, None without caching.

    `kind`: its class; None: the one that vLLM would take.
    """
    import torch
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    whole = vllm_config(config, options)
    size = config["block_size"]
    spec = FullAttentionSpec(block_size=size, num_kv_heads=1, head_size=64, dtype=torch.float32)
    scheduler = _listing(kind or whole.scheduler_config.get_scheduler_cls())(
        vllm_config=whole,
        kv_cache_config=KVCacheConfig(
            num_blocks=config["num_blocks"],
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer0"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(whole),
        block_size=size,
    )
    if not config["enable_prefix_caching"]:
        return scheduler, None
    hash_of = get_hash_fn_by_name("sha256")
    init_none_hash(hash_of)
    return scheduler, get_request_block_hasher(size, hash_of)


def _listing(kind: Any) -> Any:
    """`kind`, which also lists whom it preempts."""

    class Listing(kind):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.preempted: list[str] = []

        def _preempt_request(self, request: Any, *rest: Any, **named: Any) -> Any:
            self.preempted.append(request.request_id)
            return super()._preempt_request(request, *rest, **named)

    return Listing


def request_of(index: int, row: Row, hasher: Any, arrival: float) -> Any:
    """A request of vLLM that comes at `arrival` and ends at its `output_len`."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    return Request(
        request_id=row["id"],
        prompt_token_ids=_prompt(index, row),
        sampling_params=SamplingParams(temperature=0.0, max_tokens=row["output_len"], ignore_eos=True),
        pooling_params=None,
        arrival_time=arrival,
        priority=row.get("priority", 0),
        block_hasher=hasher,
    )


def _prompt(index: int, row: Row) -> list[int]:
    """Token ids: shared inside a prefix group, otherwise the request's own."""
    group, count = row.get("prefix_group"), row["prompt_len"]
    shared = 0 if group is None else min(row["prefix_len"], count)
    prefix = [100_000 + ((group or 0) * 7919 + i * 31) % 50_000 for i in range(shared)]
    return prefix + [1_000 + (index * 104_729 + i * 17) % 90_000 for i in range(count - shared)]


def outputs_of(planned: Any, scheduler: Any) -> Any:
    """What a model returns for the step just planned: a token for each request that lacks no other one."""
    from vllm.v1.outputs import ModelRunnerOutput

    ids = list(planned.num_scheduled_tokens)
    return ModelRunnerOutput(
        req_ids=ids,
        req_id_to_index={id: i for i, id in enumerate(ids)},
        sampled_token_ids=[_sampled(scheduler.requests[id]) for id in ids],
    )


def _sampled(request: Any) -> list[int]:
    """A placeholder stands for a token that is sampled in flight, this step's included."""
    known = request.num_tokens + max(request.num_output_placeholders - 1, 0)
    if request.num_computed_tokens < known:
        return []
    index = int(request.request_id[1:])
    return [150_000 + (index * 997 + request.num_computed_tokens) % 100_000]  # its own, at every place
