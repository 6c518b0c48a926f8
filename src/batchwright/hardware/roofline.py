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

from batchwright.hardware.gpu import Gpu
from batchwright.hardware.kv import kv_bytes_per_token
from batchwright.hardware.model import Model

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
    pair      attention arithmetic per query and key of a prompt
    absorbed  the same of a decode, as a multiple of `pair`; 1 but with latent attention
    remade    arithmetic per KV token that chunks start from, as a multiple of `pair`; 0 likewise
    read      reading or writing the KV of one token, all layers
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
    absorbed: float
    remade: float
    read: float


def coefficients(gpu: Gpu, model: Model, tp: int, mfu: float, mbu: float, link: float) -> Coefficients:
    """The coefficients; `link` in bytes/s per direction."""
    flops = gpu.rate(model.plain_arithmetic) * mfu * tp
    matrix_flops = gpu.rate(model.arithmetic()) * mfu * tp
    expert_flops = gpu.rate(model.arithmetic(is_expert=True)) * mfu * tp
    bandwidth = gpu.bandwidth * mbu * tp
    head = model.embedding_parameters
    expert = model.moe_layers * model.expert_parameters * model.active_experts
    copied = (tp - 1) * model.layers * model.copied_parameters
    reduces = 2 * model.layers if tp > 1 else 0
    return Coefficients(
        token=2.0 * (model.core_parameters + copied) / matrix_flops + 2.0 * expert / expert_flops,
        sample=2.0 * head / flops,
        core=(model.core_bytes + (tp - 1) * model.copied_bytes) / bandwidth,
        head=model.table_bytes / bandwidth,
        experts=model.moe_layers * model.experts * model.expert_bytes / bandwidth,
        missed=1.0 - model.active_experts / model.experts if model.moe_layers else 0.0,
        hops=reduces * hops(gpu, tp),
        transfer=reduces * (2 * (tp - 1) / tp) * model.hidden * model.dtype_bytes / link,
        pair=model.pair_flops / flops,
        absorbed=model.decode_pair_flops / model.pair_flops,
        remade=model.past_flops / model.pair_flops,
        read=kv_bytes_per_token(model, tp) / (gpu.bandwidth * mbu),
    )


def hops(gpu: Gpu, tp: int) -> float:
    """Latency of one all-reduce: up and down a tree through the switch, or twice round a ring."""
    return 2 * log2(tp) * SWITCHED_HOP if gpu.switched else 2 * (tp - 1) * PCIE_HOP
