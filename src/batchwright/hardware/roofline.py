"""Seconds per unit of work of one model on one kind of GPU: the coefficients of the roofline.

Arithmetic runs at `flops * mfu` and memory at `bandwidth * mbu` on each of `tp` GPUs, which
share every matrix.  Two all-reduces per layer join their parts:

    2 (tp-1)/tp * tokens * hidden * 2 bytes / link + hops * latency

Source: roofline, Williams et al. 2009; transformer inference, Pope et al. 2022 (arXiv
2211.05102); all-reduces, Shoeybi et al. 2019 (arXiv 1909.08053).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import Final

from batchwright.hardware.gpus import Gpu
from batchwright.hardware.kv import kv_bytes_per_token
from batchwright.hardware.models import Model

# Real kernels reach about 0.4 to 0.7 of the peak FLOP/s in prefill and 0.6 to 0.85 of the bandwidth
# in decode.  These are starting values inside those ranges, to be calibrated.
MFU: Final = 0.6
MBU: Final = 0.75
# Launch of a captured graph, inputs and sampling: an estimate, to be calibrated.
FIXED_SECONDS: Final = 0.5e-3
# Latency of one hop.  Source: NCCL 2.2x, tuning table of its low-latency protocol.
SWITCHED_HOP: Final = 0.6e-6
PCIE_HOP: Final = 1.0e-6


@dataclass(frozen=True, kw_only=True)
class Coefficients:
    """Seconds, but for `missed`.

    token     arithmetic per token       core     reading what every step reads
    sample    and per sampled row        head     the output head
    transfer  on the links, per token    experts  and all routed experts; 0: the model is dense
    hops      latency of all all-reduces missed   chance that one token does not use one expert
    pair      attention arithmetic per query and key
    read      reading or writing the KV of one token
    """

    token: float
    sample: float
    core: float
    head: float
    experts: float
    missed: float
    hops: float
    transfer: float
    pair: float
    read: float


def coefficients(gpu: Gpu, model: Model, tp: int, mfu: float, mbu: float, link: float) -> Coefficients:
    """The coefficients; `link` in bytes/s per direction.  Attention and output head compute in 16 bits."""
    flops = gpu.flops * mfu * tp
    matrix_flops = gpu.rate(model.weight_bits) * mfu * tp
    bandwidth = gpu.bandwidth * mbu * tp
    head = model.embedding_parameters
    expert = model.moe_layers * model.expert_parameters
    weight = model.weight_bits / 8
    reduces = 2 * model.layers if tp > 1 else 0
    return Coefficients(
        token=2.0 * (model.core_parameters + expert * model.active_experts) / matrix_flops,
        sample=2.0 * head / flops,
        core=(model.core_matrices * weight + model.small_parameters * 2) / bandwidth,
        head=2.0 * head / bandwidth,
        experts=expert * model.experts * weight / bandwidth,
        missed=1.0 - model.active_experts / model.experts if model.moe_layers else 0.0,
        hops=reduces * hops(gpu, tp),
        transfer=reduces * (2 * (tp - 1) / tp) * model.hidden * 2 / link,
        pair=4.0 * model.layers * model.heads * model.head_dim / flops,
        read=kv_bytes_per_token(model, tp) / (gpu.bandwidth * mbu),
    )


def hops(gpu: Gpu, tp: int) -> float:
    """Latency of one all-reduce: up and down a tree through the switch, or twice round a ring."""
    return 2 * log2(tp) * SWITCHED_HOP if gpu.switched else 2 * (tp - 1) * PCIE_HOP
