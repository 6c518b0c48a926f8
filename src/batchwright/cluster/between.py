"""The link over which one replica sends KV to another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from batchwright.cluster.replicas import MOST
from batchwright.cost import CostModel, Roofline, memory_of
from batchwright.errors import InputError
from batchwright.link import Link
from batchwright.policies.check import check_number


class LinkFlags(Protocol):
    """The flags of a cluster that hands KV over.

    bandwidth           bytes/s of each GPU in each direction; None: a default of the cluster's
    kv_bytes_per_token  on each GPU; None: the model's
    latency             seconds of every transfer beside
    """

    @property
    def bandwidth(self) -> float | None: ...
    @property
    def kv_bytes_per_token(self) -> float | None: ...
    @property
    def latency(self) -> float: ...


def check_servers(name: str, *counts: int) -> None:
    """Raises InputError on more servers in all than anybody can run."""
    if sum(counts) > MOST:
        given = " + ".join(map(str, counts))
        raise InputError(f"{name}: there are {given} servers, but must be at most {MOST}; take fewer")


def check_link(name: str, flags: LinkFlags) -> None:
    """Raises InputError on a flag that cannot be."""
    check_number(name, flags, "bandwidth", 1.0, 1e18, optional=True)
    check_number(name, flags, "kv_bytes_per_token", 1.0, 1e12, optional=True)
    check_number(name, flags, "latency", 0.0, 1e6)


def link_between(name: str, flags: LinkFlags, cost: CostModel, default: Callable[[Roofline], float]) -> Link:
    """Each GPU sends its share of the KV to its peer.

    `default`: the bandwidth, where no flag says it.  Raises InputError if neither flags nor cost know all.
    """
    device = memory_of(cost)
    bandwidth, each = flags.bandwidth, flags.kv_bytes_per_token
    if device is not None:
        bandwidth = default(device) if bandwidth is None else bandwidth
        each = device.kv_bytes_per_token if each is None else each
    if bandwidth is None or each is None:
        raise InputError(
            f"{name}: bandwidth and kv_bytes_per_token must be given where the cost is not that of a GPU and "
            "a model; give both, such as bandwidth=25e9, kv_bytes_per_token=131072"
        )
    return Link(bandwidth=bandwidth, bytes_per_token=each, latency=flags.latency)
