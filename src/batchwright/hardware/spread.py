"""Seconds per unit of work where a model is spread over ranks and stages, beside `roofline`.

GPUs send one another, per layer with experts, in the model's `dtype`:

    expert parallel   2 * hidden per token and other GPU that has an expert of it: there and back
    experts cut       2 (R-1)/R * hidden per token of all ranks: gathered, then summed (as an all-reduce)

and from stage to stage the hidden state and the residual, 2 * hidden per token.  One rank alone
(`dp` 1) joins its experts in the all-reduce of tensor parallelism, with `ep` or without.

Source: vLLM 0.32, `FusedMoEParallelConfig.use_all2all_kernels`, and the documentation of its data
parallel deployment; all-to-all of tokens, GShard, Lepikhin et al. 2020 (arXiv 2006.16668).
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.hardware.gpu import Gpu
from batchwright.hardware.model import Model
from batchwright.hardware.roofline import PCIE_HOP, SWITCHED_HOP, hops


@dataclass(frozen=True, kw_only=True)
class Spread:
    """Seconds, but for `ranks`.

    ranks     groups of experts between which the router chooses: GPUs with `ep`, else 1
    token     arithmetic per token of a rank, routed experts apart
    used      arithmetic per token and expert that it uses
    expert    reading one expert, of all layers
    reduced   share of the all-reduces of tensor parallelism that is left
    gather    on the links, per token of all ranks
    dispatch  on the links, per token and expert of the busiest GPU
    latency   of all exchanges between ranks, and of the ranks' barrier
    send      from one stage to the next, per token
    hop       and its latency
    """

    ranks: int
    token: float
    used: float
    expert: float
    reduced: float
    gather: float
    dispatch: float
    latency: float
    send: float
    hop: float


def spread(gpu: Gpu, model: Model, tp: int, dp: int, ep: bool, mfu: float, mbu: float, link: float) -> Spread:
    """The coefficients; `link` in bytes/s per direction."""
    ranks = tp * dp
    width = 1 if ep else ranks  # GPUs that share one expert
    rate = gpu.rate(model.arithmetic()) * mfu
    expert_rate = gpu.rate(model.arithmetic(is_expert=True)) * mfu
    parameters = model.moe_layers * model.expert_parameters
    exchanges = model.moe_layers if dp > 1 else 0
    vector = model.hidden * model.dtype_bytes / link
    hop = SWITCHED_HOP if gpu.switched else PCIE_HOP
    each = 2 * hop * (1 if gpu.switched else ranks - 1) if ep else hops(gpu, ranks)
    return Spread(
        ranks=ranks if ep else 1,
        token=2.0 * (model.core_parameters + (tp - 1) * model.layers * model.copied_parameters) / (rate * tp),
        used=2.0 * parameters / (expert_rate * width),
        expert=model.moe_layers * model.expert_bytes / (gpu.bandwidth * mbu * width),
        reduced=1.0 - exchanges / (2 * model.layers),
        gather=0.0 if ep else exchanges * 2 * (ranks - 1) / ranks * vector,
        dispatch=exchanges * 2 * _copies(model, ranks) * vector if ep else 0.0,
        latency=exchanges * each + (hops(gpu, dp) if dp > 1 else 0.0),
        send=2 * vector,
        hop=hop,
    )


def _copies(model: Model, ranks: int) -> float:
    """Copies of a token that go to other GPUs, per expert that it uses, under a uniform router.

    A GPU that holds several of a token's experts gets it once:
    (R - 1) (1 - C(E - E/R, k) / C(E, k)) / k of the R GPUs are others, and have an expert of it.
    """
    held, missed = model.experts / ranks, 1.0
    for chosen in range(model.active_experts):
        missed *= max(model.experts - held - chosen, 0.0) / (model.experts - chosen)
    return (ranks - 1) * (1.0 - missed) / model.active_experts
