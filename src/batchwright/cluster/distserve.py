"""DistServe: prompts on some replicas, decodes on others.

    a request comes          to the prefill instance with the fewest tokens of prompts to compute
    its prompt is complete   it goes to the decoding instance with the fewest requests
    that has room            it pulls the KV, unless as much is on its way as back-pressure allows

`policies.prompts` and `policies.pulls` are what the two kinds of instances do.
Source: Zhong et al., DistServe, OSDI 2024, sections 4.2 and 4.3, and its code.  Left out: the search for
the parallelism of each kind, and pipelines within an instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batchwright.cluster.between import check_link, check_servers, link_between
from batchwright.cluster.cluster import Cluster
from batchwright.cluster.replica import Replica
from batchwright.cluster.routers import least_loaded
from batchwright.config import ordinary
from batchwright.cost import CostModel
from batchwright.limits import Limits
from batchwright.policies.about import About
from batchwright.policies.check import check_count, check_number
from batchwright.policies.preemption import check_swap
from batchwright.policies.prompts import Prompts
from batchwright.policies.pulls import Pulls
from batchwright.request import Request
from batchwright.simulator import Simulator


@ordinary
@dataclass(frozen=True, kw_only=True)
class DistServe:
    """`prefill` and `decode`: instances of each kind, each a server of its own.

    max_batch_size                 requests of one step; None: `max_num_seqs`
    max_tokens_per_batch           prompt tokens of one step; None: `max_num_batched_tokens`
    waiting_block_prop_threshold   share of a decoding instance's KV blocks: it pulls no more while those
                                   whose KV is on its way hold as many
    bandwidth                      bytes/s from GPU to GPU in each direction; None: the GPU's link
    latency                        seconds of every transfer beside
    kv_bytes_per_token             on each GPU; None: the model's
    preemption_mode                of a decoding instance that is short of blocks: swap or recompute
    swap_space                     GiB of host memory for each GPU
    swap_bandwidth                 bytes/s to it in each direction; None: the GPU's slot

    Raises InputError on values that cannot be.
    """

    about = About(
        engine="DistServe, on several servers",
        order="first come",
        first="prompts on the prefill instances, decodes on the others",
        chunking="none",
        kv="prefill: the prompt; decode: what has come, and one token",
        victim="where it decodes: the newest; is swapped out, or recomputes",
        leave="at once",
        source="DistServe, OSDI 2024, and its code",
        left_out="search for the parallelism, pipelines in an instance, prefix cache",
    )
    prefill: int = 1
    decode: int = 1
    max_batch_size: int | None = None
    max_tokens_per_batch: int | None = None
    waiting_block_prop_threshold: float = 0.05
    bandwidth: float | None = None
    latency: float = 0.0
    kv_bytes_per_token: float | None = None
    preemption_mode: str = "swap"
    swap_space: float = 4.0
    swap_bandwidth: float | None = None

    def __post_init__(self) -> None:
        for name in ("prefill", "decode"):
            check_count("distserve", self, name)
        check_servers("distserve", self.prefill, self.decode)
        for name in ("max_batch_size", "max_tokens_per_batch"):
            check_count("distserve", self, name, optional=True)
        check_number("distserve", self, "waiting_block_prop_threshold", 1e-6, 1.0)
        check_link("distserve", self)
        check_swap("distserve", self)

    def cluster(self, cost: CostModel, limits: Limits) -> Cluster:
        """The instances, ready to run.  Raises InputError if `cost` does not know a link that it needs."""
        link = link_between("distserve", self, cost, lambda device: device.gpu.link)
        size = self.max_batch_size or limits.max_num_seqs
        tokens = self.max_tokens_per_batch or limits.max_num_batched_tokens
        prompts = Prompts(max_batch_size=size, max_tokens_per_batch=tokens)
        pulls = Pulls(
            max_batch_size=size,
            waiting_block_prop_threshold=self.waiting_block_prop_threshold,
            preemption_mode=self.preemption_mode,
            swap_space=self.swap_space,
            swap_bandwidth=self.swap_bandwidth,
            kv_bytes_per_token=self.kv_bytes_per_token,
        )
        policies = [prompts] * self.prefill + [pulls] * self.decode
        simulators = [Simulator(policy, cost, limits) for policy in policies]
        return Cluster(simulators, Least(0, self.prefill, "tokens"), self._decoder, link)

    @property
    def _decoder(self) -> Least:
        return Least(self.prefill, self.prefill + self.decode, "requests")


class Least:
    """The least loaded of the replicas `first` .. `end` - 1."""

    def __init__(self, first: int, end: int, measure: str) -> None:
        self.first = first
        self.end = end
        self.measure = measure

    def __call__(self, r: Request, replicas: Sequence[Replica]) -> int:
        return least_loaded(replicas[self.first : self.end], self.measure)
