"""The commands that would replay a load against a real vLLM server, to measure what was predicted.

The client is `vllm bench serve --dataset-name timed_trace`: it sends the requests of a Mooncake
trace at their timestamps, with prompts of exactly `input_length` tokens built from the hashes
(equal hashes, equal tokens), and lets each run to `output_length` tokens.

Source: vLLM, `vllm/benchmarks/serve.py`, `benchmarks/datasets` (`TimedTrace`) and
`engine/arg_utils.py`; vLLM 0.19.1 and later have these flags.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np

from batchwright.export.exported import Exported
from batchwright.export.mooncake import hash_tokens_of, mooncake_trace
from batchwright.limits import UNLIMITED, Limits
from batchwright.metrics import Numbers
from batchwright.policies import Vllm
from batchwright.ranked import LRU
from batchwright.workload import Workload

NAMES: Final = {"policy": "scheduling-policy"}  # where the flag of `vllm serve` is called otherwise
NO_FLAG: Final = ("version",)


def replay_script(
    load: Workload,
    limits: Limits,
    policy: Any,
    *,
    trace: str,
    model: str,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    served: Mapping[str, str] | None = None,
    result: str = "result.json",
) -> Exported:
    """Two commands: start the server, and once it answers, send the load.

    `trace`: the file of `replay_trace`.  `result`: what the client writes.
    `policy`: what was simulated; only that of vLLM can be told to the server.  `limits`: as the
    flags state them, of one of the `dp` ranks.  `served`: further flags of the server, by name.
    """
    notes = tuple(" ".join(note.split()) for note in _notes(load, limits, policy))
    lines = [
        "# What this does not reproduce:",
        *(f"#   {note}" for note in notes),
        "",
        "# The server:",
        serve_command(limits, policy, model, tp, pp, dp, ep, served),
        "",
        "# The load, from another shell once the server answers:",
        bench_command(load, trace, model, result),
    ]
    return Exported(text="\n".join(lines) + "\n", notes=notes)


def serve_command(
    limits: Limits,
    policy: Any,
    model: str,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    served: Mapping[str, str] | None = None,
) -> str:
    """`vllm serve` under `limits`, and under the flags of `policy` where that is vLLM's."""
    flags: dict[str, Any] = {
        "tensor_parallel_size": tp,
        **_split(pp, dp, ep),
        **(served or {}),
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
        "max_model_len": limits.max_model_len,
        "block_size": limits.block_size,
        "enable_prefix_caching": limits.enable_prefix_caching,
    }
    if limits.blocks != UNLIMITED:
        flags["num_gpu_blocks_override"] = limits.blocks + 1  # vLLM keeps one as its null block
    if isinstance(policy, Vllm):
        flags |= _changed(policy)
    words = ["vllm", "serve", model]
    for name, value in flags.items():
        words += _words(name, value)
    return shlex.join(words)


def _split(pp: int, dp: int, ep: bool) -> dict[str, Any]:
    """The flags that split the model further, where it is split."""
    sizes = {"pipeline_parallel_size": pp, "data_parallel_size": dp}
    found: dict[str, Any] = {name: size for name, size in sizes.items() if size > 1}
    return found | ({"enable_expert_parallel": True} if ep else {})


def replay_trace(load: Workload, arrival: Numbers | None = None) -> Exported:
    """The trace that the client sends, with hashes as fine as those of the load.

    `arrival`: those of a run, for a load in which requests follow others.
    """
    tokens = hash_tokens_of(load)
    return mooncake_trace(load, arrival=arrival, private_hashes=True, hash_tokens=tokens)


def bench_command(load: Workload, trace: str, model: str, result: str = "result.json") -> str:
    """`vllm bench serve` that sends the requests of the trace `trace` at their times."""
    return shlex.join([
        "vllm", "bench", "serve", "--backend", "vllm", "--model", model,
        "--dataset-name", "timed_trace", "--dataset-path", trace, "--num-prompts", str(len(load)),
        "--self-timed", "--timed-trace-chunk-hash-size", str(hash_tokens_of(load)),
        "--timed-trace-sec-multiplier", "0.001", "--ignore-eos", "--temperature", "0",
        "--percentile-metrics", "ttft,tpot,itl,e2el",
        "--save-result", "--save-detailed", "--result-filename", result,
    ])  # fmt: skip


def _changed(policy: Vllm) -> dict[str, Any]:
    """The flags that differ from vLLM's defaults, and whether scheduling is asynchronous."""
    found = {}
    for field in fields(policy):
        value = getattr(policy, field.name)
        if field.name not in NO_FLAG and value != field.default:
            found[field.name] = value
    return {"async_scheduling": policy.async_scheduling, **found}


def _words(name: str, value: Any) -> list[str]:
    flag = NAMES.get(name, name).replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [] if value is None else [f"--{flag}", str(value)]


def _notes(load: Workload, limits: Limits, policy: Any) -> Iterator[str]:
    if not isinstance(policy, Vllm):
        yield f"the policy: the server schedules as vLLM does, not as {policy!r}"
    yield "the step times and the host: those of your server are what you measure"
    yield "the text: prompts are made-up tokens of the right lengths, and outputs ignore the end of text"
    if not load.has_prefixes:
        yield "prefix hits: the load does not say how prompts begin, so no two of them share a prefix"
    if not np.array_equal(load.max_tokens, load.output):
        yield "max_tokens: each request asks for exactly the output that it gets"
    if load.has_followers:
        yield "the clients' loop: requests come at the times of the run, not when the one before has ended"
    if load.priority is not None:
        yield "priority: the trace format has no place for it"
    over = int(np.count_nonzero(load.prompt + load.output > limits.longest))
    if over:
        yield (
            f"{over} requests whose prompt and output are over max_model_len {limits.longest}: the server "
            "refuses them, where the simulation cuts the output or rejects the prompt"
        )
    if limits.prefix_cache_blocks is not None or limits.prefix_eviction != LRU:
        yield "the prefix cache: vLLM keeps what fits and evicts the least recently used"
    if limits.blocks == UNLIMITED:
        yield "KV memory: it is not modelled, so the server takes what fits its GPU"
