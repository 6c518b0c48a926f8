"""The article's workload with the step times of real GPUs: prompts cost, and steps grow with context."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from batchwright.article.claims import BATCH, OUTPUT, PROMPT
from batchwright.article.serve import over_seeds, serve
from batchwright.contract import Begins
from batchwright.cost import Hosted, Roofline
from batchwright.interval import Interval
from batchwright.limits import Limits
from batchwright.policies import Static, Vllm
from batchwright.settled import settle
from batchwright.step import Step
from batchwright.workload import Workload

GPUS: Final = ("L40S", "A100-80G-SXM", "H100-SXM")
MODEL: Final = "llama-3.1-8b"
MANY_SEATS: Final = 256  # vLLM's default below 70 GiB, and more than there are requests
BUDGET: Final = 8192  # tokens of a step


@dataclass(frozen=True, kw_only=True)
class GpuRow:
    """One GPU.  Seconds, total tokens/s of the first two policies, and gains of vllm over static.

    decode     a step of 32 decodes with a prompt and half an output of context each
    prefill    per prompt token, of one prompt of mean length
    unpadded   gain over static that pads neither prompts nor rows
    padded     gain over static that pads both
    all_seats  gain over static that pads neither, if vllm may run all requests at once
    """

    gpu: str
    decode: float
    prefill: float
    static: Interval
    vllm: Interval
    unpadded: Interval
    padded: Interval
    all_seats: Interval


def gpu_row(gpu: str, loads: list[Workload]) -> GpuRow:
    """Over all `loads`, with llama-3.1-8b on the uncalibrated roofline of `gpu`."""
    cost = Hosted(Roofline(gpu, MODEL))
    policies = Static(BATCH, padded=False), Static(BATCH), Vllm(), Vllm(max_num_seqs=MANY_SEATS)
    seconds = np.array([[_serve(load, policy, cost) for load in loads] for policy in policies])
    total = np.array([load.prompt.sum() + load.output.sum() for load in loads])
    unpadded, padded, vllm, all_seats = seconds
    return GpuRow(
        gpu=gpu,
        decode=decode_seconds(gpu, BATCH, (sum(PROMPT) + sum(OUTPUT) // 2) // 2),
        prefill=_prefill_seconds(gpu, sum(PROMPT) // 2),
        static=over_seeds(total / unpadded),
        vllm=over_seeds(total / vllm),
        unpadded=over_seeds(unpadded / vllm - 1),
        padded=over_seeds(padded / vllm - 1),
        all_seats=over_seeds(unpadded / all_seats - 1),
    )


def decode_seconds(gpu: str, running: int, context: int) -> float:
    """One step of the device with `running` decodes over `context` tokens each."""
    step = Step()
    step.quiet(running, 0, running * context)
    return Roofline(gpu, MODEL).seconds(step)


def _serve(load: Workload, policy: Begins, cost: Hosted) -> float:
    """32 seats, unless the policy has more of its own; the KV blocks that the GPU has."""
    seats = policy.max_num_seqs if isinstance(policy, Vllm) and policy.max_num_seqs else BATCH
    limits = settle(Limits(max_num_seqs=seats, max_num_batched_tokens=BUDGET), cost, load)
    return serve(load, policy, cost, limits)


def _prefill_seconds(gpu: str, tokens: int) -> float:
    step = Step()
    step.prefill_tokens, step.num_chunks, step.sampled_rows = tokens, 1, 1
    step.prefill_attention = tokens * tokens / 2
    return Roofline(gpu, MODEL).seconds(step) / tokens
